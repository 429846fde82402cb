"""Claims that a comparison of two values checks, against a stand-in for the engine."""

from __future__ import annotations

import pytest

from experiments import loadgen
from experiments.claims import (
    idle_slots,
    latency_parts,
    paging,
    prefix_reuse,
    run_claim,
)
from experiments.claims.batching import judge
from experiments.compare import run_comparison
from tests.experiments.claim_answers import batching_answers, kv_metrics, throughput
from tests.experiments.fakes import FakeRig, VirtualClock


def test_c10_runs_static_and_dynamic_on_mixed_and_static_on_equal():
    seen = []
    result = run_claim("C10", compare=batching_answers(seen=seen), options={"num_requests": 8})
    assert [(s["variable"], s["values"], s["workload"], s["repeats"], s["num_requests"]) for s in seen] == [
        ("batching", ["static", "continuous"], "mixed", "auto", 8),
        ("batching", ["dynamic", "continuous"], "mixed", "auto", 8),
        ("batching", ["static", "continuous"], "equal", "auto", 8),
    ]
    assert result["verdict"] == "holds with a limit"
    assert [row["curve"] for row in result["evidence"]] == ["output_tokens_per_s"] * 3
    assert "largest" in result["not_checked"]


@pytest.mark.parametrize(
    ("static", "dynamic", "equal", "expected"),
    [
        ("better", "better", "better", "holds"),
        ("better", "better", "no difference", "holds with a limit"),
        ("better", "better", "worse", "holds with a limit"),
        ("better", "no difference", "better", "holds with a limit"),
        ("better", "better", "inconclusive", "undecided"),
        ("better", "inconclusive", "no difference", "undecided"),
        ("inconclusive", "better", "no difference", "undecided"),
        ("worse", "better", "no difference", "does not hold here"),
        ("no difference", "better", "no difference", "does not hold here"),
    ],
)
def test_c10_is_judged_by_the_throughput_verdicts(static, dynamic, equal, expected):
    assert judge(throughput(static, dynamic, equal))[0] == expected


@pytest.mark.parametrize(
    ("mixed", "equal", "expected"),
    [([22, 73], [-6, 11], "holds with a limit"), ([22, 73], [-6, 25], "undecided"), ([22, 73], None, "undecided")],
)
def test_c10_sees_a_smaller_gain_with_equal_lengths_before_it_is_decided(mixed, equal, expected):
    rows = throughput("better", "better", "inconclusive")
    rows["static_mixed"]["ci95"], rows["static_equal"]["ci95"] = mixed, equal
    verdict, reason = judge(rows)
    assert verdict == expected and ("at most 11 %" in reason) == (expected == "holds with a limit")


def _stand_in(results, seen=None):
    """Answers one comparison after another with (curves, metrics of both arms, further keys)."""
    left = list(results)

    def compare(spec):
        if seen is not None:
            seen.append(spec)
        curves, metrics, extra = left.pop(0)
        usual = {
            "baseline": 1.0,
            "candidate": 2.0,
            "change_pct": 100.0,
            "ci95": [50.0, 150.0],
            "verdict": "better",
            "noise_floor_pct": 2.0,
            "provenance": "measured",
            "samples": {"baseline": [], "candidate": []},
        }
        made = [{**usual, "name": name, **curves.get(name, {})} for name in ("ttft_s", "output_tokens_per_s")]
        return {
            "curves": made,
            "arms": [{"metrics": arm} for arm in metrics],
            "repeats": 3,
            "run_id": "00000000",
            **extra,
        }

    return compare


def _slots(share):
    return {"slots": {"idle_share": share, "idle_slot_steps": 10, "busy_slot_steps": 10}}


def test_c08_counts_idle_slot_steps_of_static_batching_on_mixed_lengths():
    seen = []
    result = run_claim("C08", compare=_stand_in([({}, [_slots(0.4), _slots(0.0)], {})], seen))
    assert (seen[0]["values"], seen[0]["workload"], seen[0]["repeats"]) == (["static", "continuous"], "mixed", 3)
    assert result["verdict"] == "holds" and "40%" in result["reason"]
    assert result["evidence"][0]["idle_share"] == [0.4, 0.0]


@pytest.mark.parametrize(
    ("static", "continuous", "expected"),
    [(0.4, 0.0, "holds"), (0.01, 0.0, "holds with a limit"), (0.0, 0.0, "does not hold here"), (None, 0.0, "undecided"),
     (0.3, 0.3, "does not hold here")],
)  # fmt: skip
def test_c08_is_judged_by_the_shares(static, continuous, expected):
    assert idle_slots.judge_static(static, continuous)[0] == expected


def test_c09_compares_dynamic_with_static_at_two_loads():
    seen = []
    answers = [({"ttft_s": {"verdict": "no difference"}}, [_slots(0.4), _slots(0.3)], {}),
               ({"ttft_s": {"verdict": "better"}}, [_slots(0.4), _slots(0.2)], {})]  # fmt: skip
    result = run_claim("C09", compare=_stand_in(answers, seen), options={"num_requests": 8})
    assert [(spec["rate_rps"], spec["num_requests"]) for spec in seen] == [(None, 8), (1.0, 8)]
    assert result["verdict"] == "holds with a limit" and "30%" in result["reason"]


@pytest.mark.parametrize(
    ("own_rate", "calm", "shares", "expected"),
    [
        ("better", "better", [0.3, 0.2], "holds"),
        ("inconclusive", "better", [0.3, 0.2], "holds with a limit"),
        ("better", "inconclusive", [0.3, 0.2], "undecided"),
        ("better", "no difference", [0.3, 0.2], "does not hold here"),
        ("better", "better", [0.0, 0.0], "does not hold here"),
        ("better", "better", [None, None], "undecided"),
    ],
)
def test_c09_is_judged_by_first_token_and_held_slots(own_rate, calm, shares, expected):
    assert idle_slots.judge_dynamic({"own_rate": own_rate, "calm": calm}, shares)[0] == expected


def test_c11_measures_both_layouts_in_one_small_pool_and_says_its_size():
    seen = []
    result = run_claim("C11", compare=_stand_in([({}, [kv_metrics(40e6, 2.0), kv_metrics(1e6, 9.0)], {})], seen))
    assert seen[0]["values"] == ["contiguous", "paged"] and seen[0]["workload"] == "long-tail"
    assert seen[0]["settings"]["kv_memory_mib"] == result["evidence"][0]["kv_memory_mib"] == 64
    assert result["verdict"] == "holds"
    assert result["evidence"][0]["reserved_unused_bytes"] == [40e6, 1e6]
    seen = []
    options = {"settings": {"kv_memory_mib": 96, "threads": 1}}
    run_claim("C11", compare=_stand_in([({}, [kv_metrics(1.0, 2.0), kv_metrics(1.0, 9.0)], {})], seen), options=options)
    assert seen[0]["settings"] == {"kv_memory_mib": 96, "max_num_seqs": 16, "threads": 1}


@pytest.mark.parametrize(
    ("wasted", "running", "expected"),
    [
        ([40e6, 1e6], [2.0, 9.0], "holds"),
        ([40e6, 1e6], [9.0, 9.0], "holds with a limit"),
        ([40e6, 30e6], [2.0, 9.0], "does not hold here"),
        ([None, None], [2.0, 9.0], "undecided"),
    ],
)
def test_c11_is_judged_by_waste_and_admitted_requests(wasted, running, expected):
    assert paging.judge_waste(wasted, running)[0] == expected


def test_c39_needs_fewer_prompt_tokens_the_same_answers_and_an_earlier_first_token():
    arms = [
        {"prefix": {"prefill_tokens": 5000, "hit_rate": None}},
        {"prefix": {"prefill_tokens": 900, "hit_rate": 0.8}},
    ]
    answer = ({"ttft_s": {"verdict": "better"}}, arms, {"quality": {"same_token_ids_share": 1.0}})
    seen = []
    result = run_claim("C39", compare=_stand_in([answer], seen))
    assert (seen[0]["variable"], seen[0]["values"], seen[0]["workload"]) == (
        "prefix_cache",
        ["off", "on"],
        "shared-prefix",
    )
    assert result["verdict"] == "holds" and "82%" in result["reason"]


@pytest.mark.parametrize(
    ("ttft", "prefill", "same", "expected"),
    [
        ("better", [5000, 900], 1.0, "holds"),
        ("no difference", [5000, 900], 1.0, "holds with a limit"),
        ("inconclusive", [5000, 900], 1.0, "undecided"),
        ("better", [5000, 900], 0.9, "does not hold here"),
        ("better", [5000, 5000], 1.0, "does not hold here"),
        ("better", [5000, 900], None, "undecided"),
    ],
)
def test_c39_is_judged_by_tokens_answers_and_ttft(ttft, prefill, same, expected):
    assert prefix_reuse.judge(ttft, prefill, same)[0] == expected


def test_c42_reads_the_unexplained_share_of_both_arms():
    arms = [{"unexplained_share": {"p50": 0.002, "p99": 0.008}, "latency_breakdown": {"queue_s": 1.0}}] * 2
    result = run_claim("C42", compare=_stand_in([({}, arms, {})]))
    assert result["verdict"] == "holds" and "0.20%" in result["reason"]
    assert result["evidence"][0]["queue_s"] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("middle", "far", "expected"),
    [
        ([0.002, 0.004], [0.008, 0.009], "holds"),
        ([0.002, 0.004], [0.008, 0.02], "holds with a limit"),
        ([0.002, 0.02], [0.008, 0.02], "does not hold here"),
        ([None, None], [None, None], "undecided"),
    ],
)
def test_c42_is_judged_by_the_worse_arm(middle, far, expected):
    assert latency_parts.judge(middle, far)[0] == expected


@pytest.mark.parametrize(
    ("claim", "verdicts"),
    [
        ("C08", {"holds"}),
        ("C09", {"holds", "holds with a limit"}),
        ("C11", {"holds"}),
        ("C39", {"holds"}),
        ("C42", {"holds"}),
    ],
)
def test_checks_run_on_the_real_scheduler_with_a_virtual_clock(claim, verdicts, monkeypatch):
    clock = VirtualClock()
    monkeypatch.setattr(loadgen.gc, "collect", lambda: 0)
    rig = FakeRig(clock, noise=0.01)
    result = run_claim(
        claim, options={"repeats": 3}, compare=lambda spec: run_comparison(spec, None, "00000000", rig=rig)
    )
    assert result["verdict"] in verdicts, result["reason"]
    assert result["evidence"] and all(row["repeats"] == 3 for row in result["evidence"])
    if claim == "C11":
        assert {config.prefix_cache for config in rig.made} == {"off"}
        assert {config.kv_memory_mib for config in rig.made} == {64}
