"""Arms side by side on one workload: the spec, what a run's figures count, the result, and the claims that use it."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.claims.separated import (
    APART,
    CHUNKED,
    WHOLE,
    disturbed,
    gained,
    judge_disturbed,
    judge_separated,
    spec_of,
)
from experiments.claims.sweep_rows import Change
from experiments.jitter import JitterSpec, parse_arms, run_jitter
from experiments.jitter.figures import FIGURES, figures_of, timeline
from experiments.jitter.run import ratio_of
from experiments.kinds import KINDS
from experiments.loadgen import Cancelled
from ledger.errors import InputError
from tests.experiments.fakes import FakeRig, VirtualClock

MS = 1_000_000
UP, DOWN, SAME, UNKNOWN = (
    Change(1.5, 1.3, 1.7), Change(0.5, 0.4, 0.6), Change(1.0, 0.9, 1.1), Change(1.5, 0.9, 2.5),
)  # fmt: skip


def test_the_arms_of_the_default_experiment_are_the_four_ways_and_none() -> None:
    spec = JitterSpec.from_dict({})
    assert spec.names() == [WHOLE, CHUNKED, "max_queue", "rate limit", APART]
    settings = [one.config().settings() for one in spec.specs()]
    assert [one["disaggregation"] for one in settings] == ["off"] * 4 + ["on"]
    assert len({one["threads"] for one in settings}) == 1  # the same cores in all
    assert JitterSpec.from_dict(spec.to_dict()) == spec
    assert "disaggregated on long-prompts" in KINDS["jitter"].says(KINDS["jitter"].check({}))


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"arms": []}, "arms"),
        ({"arms": [["a", {}], ["a", {}]]}, "arms"),
        ({"arms": "whole"}, "arms"),
        ({"arms": [["a", {"max_num_seqs": 0}]]}, "max_num_seqs"),
        ({"arms": [["a", {"disaggregation": "on", "batching": "static"}]]}, "settings"),
        ({"repeats": 0}, "repeats"),
        ({"endpoint": "http://127.0.0.1:1/v1"}, "--endpoint"),
        ({"unheard": 1}, "spec"),
    ],
)
def test_wrong_specs_are_refused_by_the_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        JitterSpec.from_dict(given)
    assert caught.value.field == field and "\n" not in str(caught.value)


def test_arms_are_parsed_from_the_command_line() -> None:
    found = parse_arms(["whole: chunked_prefill=off", "apart:disaggregation=on,threads=2"])
    assert found == [["whole", {"chunked_prefill": "off"}], ["apart", {"disaggregation": "on", "threads": "2"}]]
    for wrong in ("chunked_prefill=off", ":a=b", "name:a"):
        with pytest.raises(InputError, match="--arm"):
            parse_arms([wrong])


def record() -> dict[str, Any]:
    """Tokens every 10 ms, but 100 ms while another's prompt is computed; one request was refused."""
    moments = [0, 10, 20, 120, 130]
    request = {
        "id": "r00", "arrival_ns": -5 * MS, "admit_ns": -5 * MS, "error": None, "finish_reason": "length",
        "emissions": [[at * MS, 1] for at in moments],
    }  # fmt: skip
    refused = {"id": "r01", "arrival_ns": 0, "admit_ns": None, "error": "max_queue: ...", "finish_reason": "error",
               "emissions": []}  # fmt: skip
    steps = [
        {"execute_start_ns": (at - 9) * MS, "execute_end_ns": at * MS, "prefill_tokens": 0} for at in (10, 20, 130)
    ] + [{"execute_start_ns": 21 * MS, "execute_end_ns": 119 * MS, "prefill_tokens": 400}]
    return {"requests": [request, refused], "steps": steps}


METRICS = {"ttft_s": {"p95": 0.005}, "e2e_s": {"p95": 0.135}, "output_tokens_per_s": 37.0, "completed": 1, "failed": 1}


def test_gaps_beside_a_prompt_are_told_from_the_others() -> None:
    found = figures_of(record(), METRICS)
    assert tuple(found) == FIGURES
    assert found["itl_max_s"] == found["beside_p99_s"] == 0.1 and found["alone_p99_s"] == pytest.approx(0.01)
    assert found["first_gap_p95_s"] == pytest.approx(0.01) and found["itl_p50_s"] == pytest.approx(0.01)
    assert found["refused"] == 1 and found["failed"] == 0


def test_the_timeline_has_every_gap_and_every_prompt_token_once() -> None:
    made = record()
    made["requests"][0]["emissions"].append([1200 * MS, 1])
    found = timeline(made)
    assert [row["t_s"] for row in found] == [0.0, 0.5, 1.0]
    assert [row["gaps"] for row in found] == [4, 0, 1] and sum(row["prompt_tokens"] for row in found) == 400
    assert found[1]["itl_max_s"] is None and found[2]["itl_max_s"] == pytest.approx(1.07)
    assert [row["gaps"] for row in timeline({"requests": [], "steps": []})] == [0]


def test_a_ratio_is_over_pairs_and_says_when_there_is_none() -> None:
    assert ratio_of([(None, 1.0), (0.0, 1.0)]) is None
    assert ratio_of([(1.0, 2.0)]) == {"ratio": pytest.approx(2.0), "low": None, "high": None}
    found = ratio_of([(1.0, 2.0), (2.0, 4.2), (3.0, 5.9)])
    assert found is not None and found["low"] < found["ratio"] < found["high"]  # type: ignore[operator]


def spec(**fields: Any) -> dict[str, Any]:
    arms = [
        [WHOLE, {"chunked_prefill": "off", "max_num_batched_tokens": 2048}],
        [CHUNKED, {"max_num_batched_tokens": 32}],
        ["max_queue", {"chunked_prefill": "off", "max_num_batched_tokens": 2048, "max_num_seqs": 1, "max_queue": 1}],
    ]
    return {"arms": arms, "num_requests": 10, "repeats": 2, **fields}


def test_every_arm_is_run_and_told_on_the_same_workload() -> None:
    told: list[dict[str, Any]] = []
    result = run_jitter(spec(), None, "run", told.append, rig=FakeRig(VirtualClock()))  # type: ignore[arg-type]
    whole, chunked, queue = result["arms"]
    assert [len(arm["repeats"]) for arm in result["arms"]] == [2, 2, 2] and result["repeats"] == 2
    assert whole["figures"]["refused"] == 0 < queue["figures"]["refused"]
    assert chunked["figures"]["itl_max_s"] < whole["figures"]["itl_max_s"]
    assert result["against_first"][CHUNKED]["itl_max_s"]["ratio"] < 1 and WHOLE not in result["against_first"]
    assert sum(row["prompt_tokens"] for row in whole["timeline"]) == result["workload"]["prompt_tokens"]
    assert whole["transfers"] is None and whole["provenance"] == "measured"
    assert told[-1]["phase"] == "done"


def test_a_cancelled_experiment_tells_what_was_finished() -> None:
    asked = iter(range(10_000))
    with pytest.raises(Cancelled) as caught:
        run_jitter(spec(), None, "run", should_cancel=lambda: next(asked) > 2_000, rig=FakeRig(VirtualClock()))  # type: ignore[call-arg]
    assert caught.value.result is None or caught.value.result["cancelled"]


def test_the_claim_of_disturbance_reads_the_gaps_beside_prompts() -> None:
    wanted: list[dict[str, Any]] = []

    def jitter(asked: dict[str, Any]) -> Any:
        wanted.append(asked)
        arms = [[name, {k: v for k, v in one.items() if k != "disaggregation"}] for name, one in asked["arms"]]
        made = {**asked, "arms": arms, "num_requests": 10}
        return run_jitter(made, None, "run", rig=FakeRig(VirtualClock()))  # type: ignore[arg-type]

    found = disturbed({"repeats": "auto", "settings": {"threads": 1, "chunked_prefill": "on"}}, jitter)
    assert found["verdict"] == "holds" and len(found["evidence"]) == 3
    assert all(row["timeline"] and row["itl_p99_s"] for row in found["evidence"])
    assert wanted[0]["settings"] == {"threads": 1} and wanted[0]["repeats"] == 3  # what the arms vary is the check's


@pytest.mark.parametrize(("beside", "verdict"), [(UP, "holds"), (SAME, "does not hold here"), (UNKNOWN, "undecided")])
def test_disturbance_is_judged_by_the_interval(beside: Change, verdict: str) -> None:
    assert judge_disturbed(beside, {WHOLE: 0.1, CHUNKED: None})[0] == verdict


P99 = {WHOLE: 1.0, CHUNKED: 0.9, APART: 0.1}
CALM = {"output_tokens_per_s": SAME}


def loaded(itl: Change, tokens: Change, ttft: Change) -> dict[str, Change]:
    return {"itl_p99_s": itl, "output_tokens_per_s": tokens, "ttft_p95_s": ttft}


@pytest.mark.parametrize(
    ("changes", "calm", "p99", "verdict"),
    [
        ((DOWN, UP, SAME), CALM, P99, "holds"),
        ((DOWN, UP, UP), CALM, P99, "holds with a limit"),  # it costs TTFT
        ((DOWN, UP, SAME), {"output_tokens_per_s": DOWN}, P99, "holds with a limit"),  # and throughput where it is calm
        ((DOWN, UP, SAME), CALM, {**P99, CHUNKED: 0.2}, "holds with a limit"),  # chunks give most of it
        ((DOWN, DOWN, UP), CALM, P99, "holds with a limit"),
        ((UP, UP, SAME), CALM, P99, "does not hold here"),
        ((Change(0.5, 0.2, 1.4), UP, SAME), CALM, P99, "undecided"),
        ((DOWN, UNKNOWN, SAME), CALM, P99, "undecided"),
    ],
)
def test_separation_is_judged_with_its_costs(changes: Any, calm: Any, p99: Any, verdict: str) -> None:
    assert judge_separated(loaded(*changes), calm, p99)[0] == verdict


def test_what_chunks_give_of_the_gain() -> None:
    assert gained(P99) == pytest.approx(1 / 9) and gained({**P99, APART: 1.2}) is None
    assert gained({WHOLE: 1.0, CHUNKED: None, APART: 0.1}) is None
    assert spec_of({"settings": {}}, concurrency=8)["concurrency"] == 8
