"""A full disk: stored runs stay readable, what is being written fails in one line, and files that were there stay."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from experiments.cli.output import write_file
from experiments.store import Store
from experiments.whole_file import check_place, write_whole
from ledger.errors import CannotRunError, InputError
from tests.resilience.helpers import ROOT

FULL = "the disk is full; runs stored before are intact"


@pytest.fixture(scope="module")
def own_disk() -> list[str]:
    """A command in front of another that lets it mount a file system; skips where that is not allowed."""
    command = ["unshare", "--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount a small disk")
    return command


def test_a_full_disk_keeps_every_run_readable(own_disk: list[str], tmp_path: Path) -> None:
    command = [*own_disk, sys.executable, "-m", "tests.resilience.on_full_disk", str(tmp_path), "own"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    said: dict[str, Any] = json.loads(ended.stdout)
    assert (said["list"], said["open"], said["record"]) == (True, {"x": 1}, True)
    for step in ("worker", "create", "events"):
        assert str(said[step]).endswith(FULL), (step, said[step])
    assert said["export"].endswith("run.trilemma.zip can't be written: No space left on device")
    assert said["report"].endswith("report.html can't be written: No space left on device")
    assert said["kept"] and said["beside"] == [] and said["after"] is None
    done, stopped = said["records"]
    assert done == [[0, 1], [0, 2]] and stopped == [[0, 1]], "what was finished before is kept"


def refuse(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """From now on files that are written whole fail halfway, with this number of the system."""
    opened = Path.open

    def open_part(path: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:
        refused = mode == "wb" and path.suffix == ".part"
        return _Refusing(path, number) if refused else opened(path, mode, *rest, **more)

    class _Refusing:
        def __init__(self, path: Path, number: int) -> None:
            self._file, self._number = opened(path, "wb"), number

        def __enter__(self) -> _Refusing:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        def write(self, body: bytes) -> int:
            self._file.write(body[: len(body) // 2])
            raise OSError(self._number, "refused")

    monkeypatch.setattr(Path, "open", open_part)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG], ids=["full", "quota", "limit"])
def test_events_that_cannot_be_written_leave_the_record_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    run_id = store.create_run("bench", {})
    store.add_record(run_id, 0, 1, {"steps": [{"x": 1}]})
    refuse(monkeypatch, number)
    with pytest.raises(CannotRunError, match=FULL):
        store.add_record(run_id, 0, 1, {"steps": [{"x": 2}]})
    assert store.record(run_id, 0, 1) == {"steps": [{"x": 1}]}
    assert len(list((tmp_path / "events" / run_id).iterdir())) == 1


def test_a_file_is_written_whole_or_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_whole(path, b"old")
    refuse(monkeypatch, errno.ENOSPC)
    with pytest.raises(CannotRunError, match=r"a\.json can't be written: refused"):
        write_file(path, b"a new text")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_a_place_is_checked_without_a_trace_and_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    check_place(link)
    check_place(tmp_path / "new")
    check_place(Path("/dev/null"))
    assert target.read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 2
    write_whole(link, b"new")
    write_whole(Path("/dev/null"), b"gone")
    assert link.is_symlink() and target.read_bytes() == b"new"
    with pytest.raises(InputError, match="a path that can be written"):
        write_file(tmp_path / "none" / "a", b"")
