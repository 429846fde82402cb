"""Both calibrations as a job: what is kept, what is told meanwhile, and that a cancelled one keeps nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments import calibrate
from experiments.calibration_job import CalibrationSpec, run_calibration
from experiments.kinds import KINDS
from experiments.loadgen import Cancelled
from experiments.report import report_html
from experiments.report.reproduce import command_of
from experiments.simulator import calibration
from experiments.store import Store
from ledger.errors import InputError
from tests.core_engine.conftest import make_llama

SIMULATOR = {"what": "simulator", "settings": {"threads": 1}}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path))
    monkeypatch.setattr(calibrate, "COPY_BYTES", {"cpu": 2**20, "cuda": 2**20})
    monkeypatch.setattr(calibrate, "SIDES", {"cpu": (16, 32), "cuda": (64, 128)})
    monkeypatch.setattr(calibrate, "BUDGET_S", 0.05)


def test_ceilings_are_kept_for_the_pages_that_use_them() -> None:
    told: list[dict[str, Any]] = []
    assert calibrate.this_machine() is None
    result = run_calibration({"threads": 1}, "r1", told.append)
    machine = calibrate.this_machine("cpu")
    assert machine is not None and result["found"] == calibrate.stored() and result["kept_in"].endswith(".json")
    assert (result["what"], result["provenance"], result["run_id"]) == ("ceilings", "measured", "r1")
    assert told and all(0 <= one["fraction"] < 1 for one in told)


def test_the_simulator_is_fitted_to_the_settings_and_stops_when_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(calibration, "BUDGET_S", 0.1)
    monkeypatch.setattr(calibration, "FEWEST_ROUNDS", 1)
    monkeypatch.setattr(calibration, "LONGEST_TOKENS", 64)
    monkeypatch.setattr(calibration, "CEILINGS_S", 0.05)
    model = tmp_path / "model"
    make_llama(model)
    spec = {"what": "simulator", "settings": {"model": str(model), "threads": 1, "kv_memory_mib": 4, "dtype": "fp32"}}
    asked = 0

    def soon() -> bool:
        nonlocal asked
        asked += 1
        return asked > 5

    with pytest.raises(Cancelled):
        run_calibration(spec, "r1", should_cancel=soon)
    assert calibration.stored() == []
    result = run_calibration(spec, "r2")
    (entry,) = calibration.stored()
    assert entry["for"]["model"] == str(model) and entry["date"] == result["found"]["date"]


def test_threads_of_the_simulator_are_a_setting_of_the_engine() -> None:
    assert CalibrationSpec.from_dict({"what": "simulator", "threads": 2}).to_dict() == {
        "what": "simulator", "threads": 0, "settings": {"threads": 2}}  # fmt: skip


def test_a_cancelled_one_leaves_what_was_there() -> None:
    before = run_calibration({}, "r1")["found"]
    with pytest.raises(Cancelled):
        run_calibration({}, "r2", should_cancel=lambda: True)
    assert calibrate.stored() == before


@pytest.mark.parametrize(
    ("spec", "field"),
    [({"what": "weather"}, "what"), ({"threads": -1}, "--threads"), ({"settings": {"kv_dtype": "int8"}}, "--set"),
     ({"unheard": 1}, "spec")],
)  # fmt: skip
def test_a_wrong_spec_is_one_line(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError, match=field):
        CalibrationSpec.from_dict(spec)


def test_a_run_of_it_has_a_command_and_a_report(tmp_path: Path) -> None:
    assert command_of("calibrate", {}) == "trilemma calibrate"
    assert command_of("calibrate", SIMULATOR) == "trilemma calibrate --simulator --set threads=1"
    store = Store(tmp_path / "runs.sqlite3")
    run_id = store.create_run("calibrate", KINDS["calibrate"].check({}))
    store.update_run(run_id, state="done", result=run_calibration({}, run_id))
    page = report_html(run_id, store)
    assert "GB/s of memory bandwidth" in page and "GFLOP/s" in page and "10th percentile" in page
