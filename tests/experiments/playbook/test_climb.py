"""The ladder on a virtual clock: what is adopted, what is taken back and why, what goes on after a crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments import loadgen
from experiments.playbook.run import LadderCancelled
from experiments.playbook.spec import LadderSpec
from experiments.playbook.steps import LADDER
from experiments.store import Store
from ledger.errors import CannotRunError, InputError
from tests.experiments.fakes import FakeRig, VirtualClock
from tests.experiments.playbook.scripted import Guard, climb, outcomes, quality, speeds

# Engines that a comparison of two repeats makes: two to warm up, four runs, two to score the answers.
ENGINES = 2 + 4 + 2
# Continuous batching computes prompts between the tokens of others: a price that these objectives allow.
MIXED: dict[str, Any] = {"workload": "mixed", "num_requests": 8, "max_tokens_cap": 48, "slo": "ttft_p95=60,itl_p95=5"}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    monkeypatch.setattr(loadgen.gc, "collect", lambda: 0)  # 0.1 s with torch loaded, many runs
    return VirtualClock()


def row_of(result: dict[str, Any], name: str) -> dict[str, Any]:
    return next(row for row in result["steps"] if row["name"] == name)


def codes(row: dict[str, Any]) -> list[str]:
    return [reason["code"] for reason in row["reasons"]]


def test_what_pays_is_adopted_and_everything_else_taken_back_with_its_reason(clock: VirtualClock) -> None:
    guard = Guard()
    result = climb(clock, **MIXED, guard=guard)
    assert outcomes(result) == {
        "continuous-paged": "adopted", "kv-int8": "adopted", "w8a8": "adopted", "w4a16": "rolled back",
        "speculation": "rolled back", "pd": "can't run here",
    }  # fmt: skip
    assert "quality_lost" in codes(row_of(result, "w4a16")) and "better" in codes(row_of(result, "w4a16"))
    assert codes(row_of(result, "speculation"))[0] == "worse"
    assert "kv_dtype" in row_of(result, "pd")["reasons"][0]["error"]
    assert "--prefill-replicas" in row_of(result, "pd")["simulate"]
    end = {"batching": "continuous", "kv_layout": "paged", "prefix_cache": "off", "kv_dtype": "int8",
           "weights": "w8a8", "max_num_seqs": 4}  # fmt: skip
    assert result["end"] == end and result["undone"] == []
    # Only where answers can change is the guard asked, always with all that was adopted, and once for the whole.
    assert [one.get("weights", "none") for one in guard.asked] == ["none", "w8a8", "w4a16-awq", "w8a8"]
    assert json.loads(json.dumps(result, allow_nan=False))["kind"] == "ladder"


def test_the_bundle_is_one_step_of_two_variables_and_holds_the_third(clock: VirtualClock) -> None:
    result = climb(clock, steps=["continuous-paged"], workload="mixed")
    row = result["steps"][0]
    assert row["changes"] == {"batching": ["static", "continuous"], "kv_layout": ["contiguous", "paged"]}
    assert result["end"]["prefix_cache"] == "off", "a third variable would have moved with it"
    assert row["comparison"]["arms"][0]["value"] == "batching=static, kv_layout=contiguous"


def test_the_end_is_measured_against_the_start_and_not_multiplied(clock: VirtualClock) -> None:
    result = climb(clock, steps=["kv-int8", "w8a8"], start="defaults")
    whole = {curve["name"]: curve for curve in result["overall"]["comparison"]["curves"]}["output_tokens_per_s"]
    first, second = (
        next(c for c in row["comparison"]["curves"] if c["name"] == "output_tokens_per_s") for row in result["steps"]
    )
    assert first["baseline"] == pytest.approx(whole["baseline"]) and second["candidate"] == pytest.approx(
        whole["candidate"]
    )
    assert result["overall"]["outcome"] == "adopted"


def test_a_planted_quality_loss_and_a_planted_slow_step_are_rejected(clock: VirtualClock) -> None:
    rig = FakeRig(clock, speed=lambda config: {"base_s": {"int2": 0.005}.get(config.kv_dtype, 0.02 * (
        3 if config.fused_ops == "off" else 1))})  # fmt: skip
    own = [["two bits", {"kv_dtype": "int2"}], ["unfused", {"fused_ops": "off"}]]
    result = climb(clock, steps=[], own=own, start="defaults", rig=rig)
    assert outcomes(result) == {"two bits": "rolled back", "unfused": "rolled back"}
    assert codes(row_of(result, "two bits"))[:1] == ["quality_lost"]
    assert codes(row_of(result, "unfused"))[0] == "worse"
    assert result["overall"] is None and result["end"] == result["start"]


def test_what_is_set_already_is_said_and_nothing_is_measured(clock: VirtualClock) -> None:
    rig = FakeRig(clock)
    result = climb(clock, steps=["continuous-paged", "flash"], start="defaults", rig=rig)
    assert set(outcomes(result).values()) == {"already there"} and result["returns"] == []
    assert len(rig.made) == 1  # the start has to run
    assert row_of(result, "flash")["reasons"][0]["values"] == {"attention": "flash"}


def test_a_step_beyond_this_one_counts_as_there(clock: VirtualClock) -> None:
    result = climb(clock, steps=["kv-int8", "w8a8"], start="defaults",
                   settings={"kv_dtype": "int4", "weights": "w4a16-rtn"})  # fmt: skip
    assert set(outcomes(result).values()) == {"already there"}


def test_a_step_without_a_gain_is_taken_back(clock: VirtualClock) -> None:
    result = climb(clock, steps=[], own=[["blocks", {"block_size": 32}]], start="defaults")
    assert outcomes(result) == {"blocks": "rolled back"} and codes(result["steps"][0]) == ["no_gain"]


def test_noise_leaves_a_step_undecided_and_names_the_repeats(clock: VirtualClock) -> None:
    rig = FakeRig(clock, noise=0.25, seed=3)
    result = climb(clock, steps=[], own=[["blocks", {"block_size": 32}]], start="defaults", rig=rig, repeats=3)
    row = result["steps"][0]
    assert row["outcome"] == "undecided" and row["reasons"][0]["code"] in ("open", "leaning")
    assert row["reasons"][0]["repeats"] is None or row["reasons"][0]["repeats"] > 3
    assert result["end"] == result["start"]


def test_undecided_quality_is_not_adopted(clock: VirtualClock) -> None:
    result = climb(clock, steps=["w8a8"], start="defaults", guard=lambda *_, **__: quality("undecided", 0.008))
    assert outcomes(result) == {"w8a8": "undecided"}
    assert codes(result["steps"][0])[0] == "quality_open"


def test_a_worse_curve_within_its_objective_is_a_price_and_beyond_it_none(clock: VirtualClock) -> None:
    """More seats: more throughput and shorter queues, longer gaps between tokens."""
    asked = {"steps": [], "own": [["seats", {"max_num_seqs": 6}]], "start": "defaults", "num_requests": 12,
             "settings": {"max_num_seqs": 2}}  # fmt: skip
    rig = FakeRig(clock, speed=lambda _: {"base_s": 0.010, "token_s": 0.002})
    free = climb(clock, rig=rig, slo="ttft_p95=5,itl_p95=1", **asked)
    assert outcomes(free) == {"seats": "adopted"} and "allowed" in codes(free["steps"][0])
    tight = climb(clock, rig=rig, slo="ttft_p95=5,itl_p95=0.016", **asked)
    assert outcomes(tight) == {"seats": "rolled back"} and {"worse", "objective"} & set(codes(tight["steps"][0]))
    silent = climb(clock, rig=rig, **asked)
    assert outcomes(silent) == {"seats": "rolled back"} and codes(silent["steps"][0])[0] == "worse"


def test_a_loss_of_the_whole_takes_the_last_step_back(clock: VirtualClock) -> None:
    slowed: list[int] = []

    def turning(config: Any) -> dict[str, float]:
        slow = slowed and config.kv_dtype == "int8"
        return {"base_s": 0.5 if slow else speeds(config)["base_s"]}

    guard = Guard(also=lambda _: slowed.append(1))  # asked when the step has been compared
    result = climb(clock, **MIXED, steps=["continuous-paged", "kv-int8"], guard=guard,
                   rig=FakeRig(clock, speed=turning))  # fmt: skip
    assert outcomes(result) == {"continuous-paged": "adopted", "kv-int8": "rolled back"}
    assert result["undone"] == ["kv-int8"] and codes(row_of(result, "kv-int8"))[0] == "undone"
    assert "kv_dtype" not in result["end"] and result["overall"]["outcome"] == "adopted"


def test_a_start_that_cannot_run_ends_the_ladder(clock: VirtualClock) -> None:
    with pytest.raises(InputError):
        climb(clock, settings={"kv_memory_mib": 1, "block_size": 128}, workload="long-doc", num_requests=1)


class Refusing(FakeRig):
    def engine(self, config: Any, proposer: Any = None) -> Any:
        if config.weights != "none":
            raise CannotRunError("weights: this machine has no kernel for them")
        return super().engine(config, proposer)


def test_what_the_machine_lacks_is_skipped_and_the_rest_goes_on(clock: VirtualClock) -> None:
    result = climb(clock, steps=["w8a8", "kv-int8"], start="defaults", rig=Refusing(clock, speed=speeds))
    assert outcomes(result) == {"w8a8": "can't run here", "kv-int8": "adopted"}
    assert row_of(result, "w8a8")["reasons"][0]["error"] == "weights: this machine has no kernel for them"
    assert "--weights w8a8" in row_of(result, "w8a8")["simulate"]


# -- going on --------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs.sqlite3")


def same(one: dict[str, Any], two: dict[str, Any]) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True)


class Falling(FakeRig):
    """Dies when it should make its n-th engine."""

    def __init__(self, clock: VirtualClock, fall_at: int) -> None:
        super().__init__(clock, speed=speeds)
        self.fall_at = fall_at

    def engine(self, config: Any, proposer: Any = None) -> Any:
        if len(self.made) + 1 == self.fall_at:
            raise RuntimeError("killed")
        return super().engine(config, proposer)


@pytest.mark.parametrize("fall_at", [1 + 4, 1 + ENGINES + 2 + 3, 1 + 2 * ENGINES, 1 + 2 * ENGINES + 6])
def test_a_killed_ladder_repeats_no_finished_step_and_no_finished_run(
    clock: VirtualClock, store: Store, fall_at: int
) -> None:
    asked: dict[str, Any] = {"workload": "mixed", "steps": ["continuous-paged", "kv-int8"]}
    run_id = store.create_run("ladder", LadderSpec.from_dict(asked).to_dict())
    whole = climb(clock, run_id=run_id, **asked)
    with pytest.raises(RuntimeError, match="killed"):
        climb(clock, store, run_id, rig=Falling(clock, fall_at), **asked)
    before = len(store.record_keys(run_id))
    rig = FakeRig(clock, speed=speeds)
    resumed = climb(clock, store, run_id, rig=rig, **asked)
    assert outcomes(resumed) == outcomes(whole) and resumed["end"] == whole["end"]
    assert resumed["returns"] == pytest.approx(whole["returns"]) if not resumed["returns"] else True
    finished = (fall_at - 2) // ENGINES  # comparisons that had ended
    left = 3 - finished  # two steps and the whole
    in_part = before - 4 * finished
    assert len(rig.made) == 1 + left * ENGINES - in_part
    assert len(store.record_keys(run_id)) == 3 * 4


def test_a_finished_ladder_read_again_measures_nothing(clock: VirtualClock, store: Store) -> None:
    run_id = store.create_run("ladder", {})
    asked: dict[str, Any] = {"steps": ["kv-int8"], "start": "defaults"}
    first = climb(clock, store, run_id, **asked)
    rig, guard = FakeRig(clock, speed=speeds), Guard()
    again = climb(clock, store, run_id, rig=rig, guard=guard, **asked)
    assert len(rig.made) == 1 and guard.asked == [] and same(json.loads(json.dumps(first)), again)


def test_a_ladder_resumed_by_other_code_names_the_older_steps_and_begins_the_open_one_anew(
    clock: VirtualClock, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {"steps": ["continuous-paged", "kv-int8"]}
    run_id = store.create_run("ladder", {})
    with pytest.raises(RuntimeError, match="killed"):
        climb(clock, store, run_id, rig=Falling(clock, 1 + ENGINES + 2 + 3), **asked)
    for module in ("run", "trial"):
        monkeypatch.setattr(f"experiments.playbook.{module}.code_hash", lambda: "newer code")
    rig = FakeRig(clock, speed=speeds)
    resumed = climb(clock, store, run_id, rig=rig, **asked)
    assert len(rig.made) == 1 + 2 * ENGINES, "the step that was under way and the whole, from their first run"
    assert [row["code"] == "newer code" for row in resumed["steps"]] == [False, True]
    told = [text for text in resumed["warnings"] if "another version of the code" in text]
    assert len(told) == 1 and told[0].startswith("continuous-paged: ")


def test_another_run_takes_nothing_of_this_one(clock: VirtualClock, store: Store) -> None:
    one, two = (store.create_run("ladder", {}) for _ in range(2))
    climb(clock, store, one, steps=["kv-int8"], start="defaults")
    rig = FakeRig(clock, speed=speeds)
    climb(clock, store, two, steps=["kv-int8"], start="defaults", rig=rig)
    assert len(rig.made) == 1 + 2 * ENGINES


def test_a_cancelled_ladder_gives_the_steps_that_are_finished(clock: VirtualClock) -> None:
    rig = FakeRig(clock, speed=speeds)
    with pytest.raises(LadderCancelled) as stopped:
        climb(clock, steps=["kv-int8", "w8a8"], start="defaults", rig=rig,
              should_cancel=lambda: len(rig.made) > 1 + ENGINES + 3)  # fmt: skip
    assert outcomes(stopped.value.result) == {"kv-int8": "adopted"} and stopped.value.result["cancelled"]


def test_what_is_told_while_it_climbs(clock: VirtualClock) -> None:
    told: list[dict[str, Any]] = []
    climb(clock, steps=["kv-int8", "w8a8"], start="defaults", on_live=told.append)
    assert told[-1]["phase"] == "done" and told[-1]["fraction"] == 1.0
    assert told[-1]["verdicts"] == [["kv-int8", "adopted"], ["w8a8", "adopted"]]
    assert {"kv-int8", "w8a8", "start to end"} <= {one["step"] for one in told}
    fractions = [one["fraction"] for one in told]
    assert fractions == sorted(fractions)
    assert not any(one["phase"] == "done" for one in told[:-1])


def test_the_default_ladder_is_the_articles() -> None:
    spec = LadderSpec.from_dict({})
    assert tuple(step.name for step in spec.all_steps()) == LADDER
    assert spec.start_settings() == {"batching": "static", "kv_layout": "contiguous", "prefix_cache": "off"}
