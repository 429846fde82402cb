"""The benchmark of the advisor's predictions: its draw, and that a slice stores a prediction before it measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import advisor_predictions as benchmark
import pytest

from core_engine.variables import VARIABLES
from experiments.store import Store
from experiments.store.identity import spec_hash
from tests.experiments.fakes import FakeRig, VirtualClock
from tests.experiments.predicted import calibrated_here

BASE = {"threads": 1}


class Rig(FakeRig):
    """Also lets models go, of which it has none."""

    def let_go(self, config: Any, *, keep: Any) -> None:
        pass

    def close(self) -> None:
        pass


def test_every_variable_of_the_registry_is_offered_or_left_out_with_a_reason() -> None:
    assert set(benchmark.OFFERED) | set(benchmark.LEFT_OUT) <= set(VARIABLES)
    assert not set(benchmark.OFFERED) & set(benchmark.LEFT_OUT)
    assert set(benchmark.OFFERED) | set(benchmark.left_out()) == set(VARIABLES)
    assert benchmark.left_out()["seed"] == benchmark.LEFT_OUT["seed"]


def test_a_draw_is_the_same_again_and_another_with_another_seed() -> None:
    first, again, other = (benchmark.draw(seed, 40, BASE) for seed in (11, 11, 12))
    assert [spec.to_dict() for spec in first] == [spec.to_dict() for spec in again]
    hashes = {spec_hash(spec.to_dict()) for spec in first}
    assert len(hashes) == 40 and len({spec.variable for spec in first}) >= 12
    assert {spec.workload for spec in first} <= set(benchmark.WORKLOADS)
    assert hashes.isdisjoint(spec_hash(s.to_dict()) for s in benchmark.draw(13, 16, BASE, frozenset(hashes)))
    assert len({spec.workload for spec in first}) > 5 and [s.to_dict() for s in other] != [s.to_dict() for s in first]


def test_one_calibration_is_asked_for_each_kind_of_step_the_commonest_first() -> None:
    specs = benchmark.draw(11, 40, BASE)
    found = benchmark.configurations(specs)
    assert found[0].weights == "none" and found[0].threads == 1 and len(found) < 16


def test_slices_go_on_where_they_stopped_and_keep_what_was_said_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path))
    monkeypatch.setattr(benchmark, "Rig", lambda report: Rig(VirtualClock()))
    monkeypatch.setattr(benchmark, "_calibrate", lambda *given: True)
    monkeypatch.setattr(benchmark, "OFFERED", {"max_num_seqs": benchmark.OFFERED["max_num_seqs"]})
    monkeypatch.setattr(benchmark, "LOADS", benchmark.LOADS[1:2])
    monkeypatch.setattr(benchmark, "REPEATS", 2)
    out = ["--comparisons", "2", "--pilot", "1", "--out", str(tmp_path / "out.json")]
    assert benchmark.main([*out, "--count", "1"]) == 1
    first = Store(tmp_path / "runs.sqlite3").list_runs(kind="compare")
    assert len(first) == 1 and first[0].spec["predictions"]["made_at"] < first[0].updated_at
    assert benchmark.main(out) == 0 and (tmp_path / "out.json").exists()
    runs = Store(tmp_path / "runs.sqlite3").list_runs(kind="compare")
    assert len(runs) == 3 and all(run.state == "done" and run.environment for run in runs)
    assert benchmark.main(out) == 0 and len(Store(tmp_path / "runs.sqlite3").list_runs(kind="compare")) == 3
    assert "pilot 1 of 1, scored 2 of 2" in capsys.readouterr().out


def test_a_slice_begins_nothing_that_would_not_end_in_time() -> None:
    assert not benchmark.Slice(1.0, None).has_time() and benchmark.Slice(2.0, None).has_time()
    counted = benchmark.Slice(None, 1)
    assert counted.has_time()
    counted.took(1.0)
    assert not counted.has_time()


def test_nothing_is_predicted_before_every_calibration_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path))
    monkeypatch.setattr(benchmark, "Rig", lambda report: Rig(VirtualClock()))
    out = ["--comparisons", "1", "--pilot", "0", "--minutes", "1.3", "--out", str(tmp_path / "out.json")]
    assert benchmark.main(out) == 1 and not Store(tmp_path / "runs.sqlite3").list_runs(kind="compare")
    assert "scored 0 of 1" in capsys.readouterr().out


def test_a_calibration_of_a_slow_moment_is_brought_to_the_speed_of_the_plain_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path))
    calibrated_here()
    entry = benchmark.calibration.stored()[-1]
    profile, faster = (benchmark.calibration.profile_of(one) for one in (entry, benchmark.at_speed(entry, 2.0)))
    assert faster.host_step_s == profile.host_step_s / 2
    assert faster.efficiency("linear").memory == 2 * profile.efficiency("linear").memory
