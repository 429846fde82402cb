"""What may be named from a page: files within its folders, whatever leads there, and keys it was started with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments import confined, jobs
from experiments.interview.by_model import judge_of
from experiments.spec import CompareSpec
from experiments.store import Store
from ledger.errors import InputError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that the page may read, beside one with a secret, the home of the store elsewhere."""
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    allowed.mkdir()
    other.mkdir()
    (other / "secret.jsonl").write_text("{}", "utf-8")
    (allowed / "mine.jsonl").write_text("{}", "utf-8")
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path / "home"))
    for name, value in confined.environment([allowed], ["MY_KEY"]).items():
        monkeypatch.setenv(name, value)
    yield allowed


def hostile_paths(folder: Path) -> list[str]:
    secret = folder.parent / "other" / "secret.jsonl"
    (folder / "link.jsonl").symlink_to(secret)
    (folder / "link").symlink_to(secret.parent)
    return [
        str(secret), f"{folder}/../other/secret.jsonl", str(folder / "link.jsonl"), f"{folder}/link/secret.jsonl",
        "/etc/passwd", "/etc/there-is-no-such-file", "~root/.ssh/id_rsa", "../../etc/passwd", f"{folder}x/mine.jsonl",
        "/proc/self/environ", "/dev/zero", f"trace:burstgpt:{secret}", "trace:burstgpt:../../../etc/passwd", "/",
    ]  # fmt: skip


def test_a_path_outside_is_refused_at_any_depth_and_whatever_leads_there(folder: Path) -> None:
    for path in hostile_paths(folder):
        for spec in (
            {"workload": path}, {"items": [path]}, {"settings": {"model": path}}, {"values": ["embedded", path]},
            {"arms": [{"settings": {"draft_model": path}}]},
        ):  # fmt: skip
            with pytest.raises(InputError, match="within the folders of the page"):
                confined.require_allowed(spec)


def test_what_is_within_or_no_path_at_all_is_allowed(folder: Path) -> None:
    inside = str(folder / "mine.jsonl")
    known = str(folder.parent / "home" / "draft.safetensors")
    names = ("embedded", "mixed", "docs", "http://127.0.0.1:8000/v1", "tpot < 50 ms / token", "a\0b", "x" * 5000)
    for text in (inside, f"trace:burstgpt:{inside}", known, *names):
        confined.require_allowed({"settings": {"model": text}, "workload": text})


def test_no_job_is_started_or_stored_with_a_path_outside(folder: Path) -> None:
    store = Store()
    spec: dict[str, Any] = {**CompareSpec().to_dict(), "workload": "/etc/passwd"}
    with pytest.raises(InputError, match="workload"):
        jobs.start("compare", spec, store)
    # As an imported run would have it.
    run_id = store.create_run("compare", spec)
    store.update_run(run_id, state="failed")
    with pytest.raises(InputError, match="workload"):
        jobs.restart(run_id, store)
    assert [run.id for run in store.list_runs()] == [run_id]


def test_only_keys_that_the_page_was_started_with_are_sent_anywhere(folder: Path) -> None:
    assert judge_of("http://127.0.0.1:9", None, "MY_KEY").key_env == "MY_KEY"
    for name in ("AWS_SECRET_ACCESS_KEY", "MY_KEY,PATH", "PATH"):
        with pytest.raises(InputError, match="key_env"):
            judge_of("http://127.0.0.1:9", None, name)
    with pytest.raises(InputError, match="key_env"):
        confined.require_allowed({"endpoint": "http://127.0.0.1:9", "key_env": "HOME"})
    confined.require_allowed({"endpoint": "http://127.0.0.1:9", "key_env": None})


def test_the_command_line_may_read_whatever_its_user_can() -> None:
    confined.require_allowed({"workload": "/etc/passwd", "key_env": "HOME"})
