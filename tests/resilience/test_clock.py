"""A wall clock that is set, forward or back: durations come from another clock, and order and life from none."""

from __future__ import annotations

import ast
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from experiments import jobs, processes
from experiments.bench import run_bench
from experiments.store import Store, store
from experiments.worker import CancelCheck
from tests.core_engine.conftest import make_llama
from tests.resilience.helpers import ROOT, settings_of

# Who may ask what time of day it is: a stamp that is shown or kept, never a duration. All else takes a clock that
# nobody sets (time.monotonic, time.perf_counter, core_engine.clock).
STAMPS = {
    "core_engine/model/chat_template.py": "the date that a chat template writes",
    "core_engine/quant/cache.py": "the age of a file that a killed process left",
    "experiments/advisor/prediction.py": "when a prediction was made",
    "experiments/calibrate.py": "the date of a calibration",
    "experiments/claims/run_all.py": "when a check ran",
    "experiments/cli/output.py": "the name of a log",
    "experiments/interview/progress.py": "which day an answer was given",
    "experiments/labs/session.py": "when a lab was begun",
    "experiments/processes.py": "the age of a run that never got a process",
    "experiments/server/app.py": "`created` of the protocol",
    "experiments/server/run.py": "the time of a line of the log",
    "experiments/server/service.py": "`created` of the protocol",
    "experiments/simulator/calibration.py": "the date of a calibration",
    "experiments/store/events.py": "the age of a file that a killed process left",
    "experiments/store/store.py": "when a run was stored",
}
CLOCKS = {("time", "time"), ("time", "time_ns"), ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today")}


def asks_the_wall_clock(path: Path) -> bool:
    text = path.read_text("utf-8")
    if not any(f"{module}.{name}" in text for module, name in CLOCKS):
        return False
    tree = ast.parse(text)
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    names = ((one.value.id, one.attr) for one in called if isinstance(one, ast.Attribute) and _is_name(one.value))
    return any(name in CLOCKS for name in names)


def _is_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name)


def test_only_stamps_ask_the_wall_clock() -> None:
    files = (
        path for package in ("app", "core_engine", "experiments", "ledger") for path in (ROOT / package).rglob("*.py")
    )
    found = {str(path.relative_to(ROOT)) for path in files if asks_the_wall_clock(path)}
    assert found == set(STAMPS)


def test_newest_first_stays_so_when_the_clock_is_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Store(tmp_path / "runs.sqlite3")
    ids = []
    for hours in (0, 5, -48, -47, 9):
        stamp = (datetime.now(UTC) + timedelta(hours=hours)).isoformat(timespec="milliseconds")
        monkeypatch.setattr(store, "_now", lambda stamp=stamp: stamp)
        ids.append(kept.create_run("bench", {}))
    assert [run.id for run in kept.list_runs()] == ids[::-1]
    assert [run.id for run in kept.list_runs(limit=2, offset=2)] == ids[::-1][2:4]
    assert [run.id for run in kept.ahead_of(ids[4])] == ids[:4]


@pytest.mark.parametrize("jump_s", [-7200.0, 30.0, 7200.0])
def test_a_process_is_the_same_one_after_the_clock_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    kept = Store(tmp_path / "runs.sqlite3")
    run_id = kept.create_run("bench", {}, state="running", pid=psutil.Process().pid)
    kept.update_run(run_id, pid_started=processes.process_started())
    jobs.follow_only(run_id, kept)
    create_time = psutil.Process.create_time  # the kernel's time of boot moves with the wall clock, and this with it
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: create_time(self) + jump_s)
    assert jobs.status(run_id, kept).state == "running"
    assert not CancelCheck(kept, run_id)(), "its command line is alive"


def test_a_run_measured_while_the_clock_jumps_has_durations_that_add_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_llama(tmp_path)
    real, jumps = time.time, iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: real() + (-1) ** next(jumps) * 86_400.0)
    spec = {"workload": "equal", "num_requests": 3, "max_tokens_cap": 4, "settings": settings_of(tmp_path)}
    began = time.monotonic()
    found: dict[str, Any] = run_bench(spec, None, "x")
    took = time.monotonic() - began
    assert found["completed"] == 3 and 0 < found["duration_s"] < took
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert 0 <= found[name]["p50"] < took
