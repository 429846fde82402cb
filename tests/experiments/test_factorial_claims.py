"""Claims that two variables changed together check, against a stand-in for the engine."""

from __future__ import annotations

import pytest

from experiments import loadgen
from experiments.claims import paging, run_claim
from experiments.factorial import run_factorial
from experiments.factorial.effects import EFFECTS
from tests.experiments.claim_answers import kv_metrics
from tests.experiments.fakes import FakeRig, VirtualClock

VERDICTS = ("holds", "holds with a limit", "does not hold here", "undecided")


def _factorial(interaction, first_alone="better", second_alone="better", reading=None, seen=None):
    """A stand-in for a 2 x 2 experiment: gives every effect the same figures but for the verdict it is told."""
    told = {"first_alone": first_alone, "second_alone": second_alone, "interaction": interaction["verdict"]}

    def curve(effect):
        figures = {"name": "output_tokens_per_s", "baseline": 1.0, "candidate": 1.0, "noise_floor_pct": 2.0,
                   "provenance": "measured", **interaction}  # fmt: skip
        return {**figures, "verdict": told.get(effect, "inconclusive")}

    def factorial(spec):
        if seen is not None:
            seen.append(spec)
        (first, a), (second, b) = spec["factors"]
        return {
            "effects": {effect: [curve(effect)] for effect in EFFECTS},
            "readings": [reading or {}],
            "arms": [{"values": {first: x, second: y}, "metrics": kv_metrics(1.0, 2.0)} for y in b for x in a],
            "repeats": 5,
            "run_id": "r",
        }

    return factorial


def _interaction(change_pct, ci95, verdict):
    return {"change_pct": change_pct, "ci95": ci95, "verdict": verdict}


def test_c12_measures_all_four_pairings_in_one_experiment():
    seen = []
    factorial = _factorial(_interaction(85.0, [60.0, 110.0], "better"), first_alone="no difference", seen=seen)
    result = run_claim("C12", options={"settings": {"batching": "dynamic", "threads": 1}}, factorial=factorial)
    assert [factor[0] for factor in seen[0]["factors"]] == ["kv_layout", "batching"]
    assert seen[0]["settings"] == {"kv_memory_mib": 64, "max_num_seqs": 16, "threads": 1}
    assert result["verdict"] == "holds"
    assert "multiplies throughput by 1.85 as much as under static [1.60, 2.10]" in result["reason"]
    assert "contiguous with static" in result["reason"]
    assert [row["part"] for row in result["evidence"]] == list(EFFECTS)


@pytest.mark.parametrize(
    ("interaction", "alone", "expected"),
    [
        (_interaction(80.0, [60.0, 100.0], "better"), "no difference", "holds"),
        (_interaction(80.0, [60.0, 100.0], "better"), "better", "holds with a limit"),
        (_interaction(80.0, [-10.0, 300.0], "inconclusive"), "better", "undecided"),
        (_interaction(0.0, [-2.0, 2.0], "no difference"), "better", "does not hold here"),
        (_interaction(-30.0, [-40.0, -20.0], "worse"), "better", "does not hold here"),
        (_interaction(None, None, "inconclusive"), "better", "undecided"),
    ],
)
def test_c12_is_judged_by_the_interaction(interaction, alone, expected):
    assert paging.judge_together(interaction, alone)[0] == expected


def _reading(first, second, together, verdict):
    product = 100 * ((1 + first / 100) * (1 + second / 100) - 1)
    return {"curve": "output_tokens_per_s", "first_alone_pct": first, "second_alone_pct": second,
            "together_pct": together, "product_pct": product, "interaction_ci95": [-60.0, -40.0],
            "verdict": verdict}  # fmt: skip


@pytest.mark.parametrize(
    ("reading", "alone", "expected", "said"),
    [
        (_reading(100, 200, 210, "worse"), ["better"] * 2, "holds", "together they give x3.10, their product would be"),
        (_reading(100, 200, 150, "worse"), ["better"] * 2, "holds", "the drafts cost more than they bring"),
        (_reading(-5, 200, 100, "worse"), ["worse", "better"], "holds with a limit", "not both are gains"),
        (_reading(9, 200, 100, "worse"), ["inconclusive", "better"], "undecided", "a gain by itself"),
        (_reading(100, 200, 500, "no difference"), ["better"] * 2, "does not hold here", "do not get in"),
        (_reading(100, 200, 700, "better"), ["better"] * 2, "does not hold here", "do not get in"),
        (_reading(100, 200, 400, "inconclusive"), ["better"] * 2, "undecided", "more repeats"),
    ],
)
def test_c30_holds_when_both_together_are_less_than_the_product(reading, alone, expected, said):
    stand_in = _factorial(_interaction(-50.0, [-60.0, -40.0], reading["verdict"]), *alone, reading=reading)
    result = run_claim("C30", factorial=stand_in)
    assert (result["verdict"], said in result["reason"]) == (expected, True)


def test_c12_and_c30_run_on_the_real_scheduler_with_a_virtual_clock(monkeypatch):
    clock = VirtualClock()
    monkeypatch.setattr(loadgen.gc, "collect", lambda: 0)
    rig = FakeRig(clock, noise=0.01)

    def factorial(spec):
        return run_factorial(spec, None, "00000000", rig=rig)

    result = run_claim("C12", options={"repeats": 2}, factorial=factorial)
    assert result["verdict"] in VERDICTS and "Requests running at once" in result["reason"]
    assert {(c.batching, c.kv_layout) for c in rig.made} == {
        (policy, layout) for policy in ("static", "continuous") for layout in ("contiguous", "paged")
    }
    assert {(c.prefix_cache, c.kv_memory_mib) for c in rig.made} == {("off", 64)}
    rig.made.clear()
    result = run_claim("C30", options={"repeats": 2}, factorial=factorial)
    assert result["verdict"] in VERDICTS and "their product would be" in result["reason"]
    assert {(c.speculation, c.max_num_seqs) for c in rig.made} == {(s, n) for s in ("off", "ngram") for n in (1, 8)}
