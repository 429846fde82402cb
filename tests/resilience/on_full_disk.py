"""Run on a small disk of its own: `python -m tests.resilience.on_full_disk FOLDER [own]`. Prints what each step gave.

own: first mount a file system of 2 MiB there (in a user's own name space that is allowed without privileges).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.cli.output import write_file
from experiments.run_file import export_run
from experiments.store import Store
from experiments.worker import LiveFile, log_path, work
from ledger.errors import CannotRunError

RECORD = {"steps": [{"index": number} for number in range(3)], "requests": [{"id": 1}]}


def fill(path: Path) -> None:
    """Take all that is left of the disk."""
    with path.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass


def tried(action: Callable[[], Any]) -> Any:
    """What an action gives, or its error."""
    try:
        return action()
    except CannotRunError as error:
        return f"CannotRunError: {error}"


def store_steps(home: Path) -> dict[str, Any]:
    """A store, an export and a worker before, on and after a full disk."""
    store = Store(home / "runs.sqlite3")
    done = store.create_run("bench", {"workload": "equal"}, state="done", result={"x": 1})
    store.add_record(done, 0, 1, RECORD)
    waiting = store.create_run("bench", {"settings": {"device": "cpu"}})
    export, report = home / "run.trilemma.zip", home / "report.html"
    export_run(done, store, export)
    write_file(report, b"the report of before")
    before = export.read_bytes()
    filler = home / "filler"
    said: dict[str, Any] = {}

    def execute(run: Any, _: Store, on_live: Any, should_cancel: Any) -> dict[str, Any]:
        store.add_record(run.id, 0, 1, RECORD)
        fill(filler)
        on_live({"phase": "running"})  # costs the picture, not the run
        assert not should_cancel()
        store.add_record(run.id, 0, 2, {"steps": [{"index": number} for number in range(200_000)]})
        return {"never": True}

    log_path(store, waiting).parent.mkdir(exist_ok=True)
    said["worker"] = tried(lambda: work(waiting, store, execute))
    said["list"] = tried(lambda: sorted(run.id for run in store.list_runs()) == sorted((done, waiting)))
    said["open"] = tried(lambda: Store(store.path).get_run(done).result)
    said["record"] = tried(lambda: Store(store.path).record(done, 0, 1) == RECORD)
    said["create"] = tried(lambda: store.create_run("bench", {"x": "y" * 100_000}))
    said["events"] = tried(lambda: store.add_record(done, 0, 2, {"steps": [{"x": n} for n in range(100_000)]}))
    said["export"] = tried(lambda: export_run(done, store, export) and None)
    said["report"] = tried(lambda: write_file(report, b"z" * 1_000_000))
    said["kept"] = export.read_bytes() == before and report.read_bytes() == b"the report of before"
    LiveFile(home / "live" / "x.json").write({"phase": "running"})
    said["beside"] = [path.name for path in home.rglob("*") if path.name.endswith((".part", ".tmp"))]
    filler.unlink()
    said["after"] = tried(lambda: store.add_record(done, 0, 2, RECORD))
    said["records"] = tried(lambda: [list(store.record_keys(run)) for run in (done, waiting)])
    return said


def main() -> None:
    """See the module."""
    home = Path(sys.argv[1])
    if sys.argv[2:] == ["own"]:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(home)], check=True)
    print(json.dumps(store_steps(home)))


if __name__ == "__main__":
    main()
