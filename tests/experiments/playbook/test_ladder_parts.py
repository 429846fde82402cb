"""What a ladder is made of: specs, steps and recipes as data, the rule on made-up curves, the guard, the return."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from core_engine.config import EngineConfig
from core_engine.variables import VARIABLES
from experiments.kinds import KINDS
from experiments.playbook import guard
from experiments.playbook.decide import decide
from experiments.playbook.guard import judge_quality, right
from experiments.playbook.recipes import RECIPES, SCENARIOS
from experiments.playbook.roi import gain_of, order_of, return_rows
from experiments.playbook.spec import LadderSpec
from experiments.playbook.steps import EFFORT_HOURS, LADDER, STEPS, parse_step
from experiments.playbook.trial import with_step
from experiments.playbook.words import Says
from experiments.quality.choices import ItemScore
from experiments.quality.items import Item, default_items
from experiments.workloads import WORKLOADS
from ledger.errors import InputError
from tests.experiments.playbook.scripted import quality

# -- data and specs --------------------------------------------------------------------------------------------------


def test_every_step_is_a_valid_change_with_a_documented_effort() -> None:
    assert set(LADDER) <= set(STEPS)
    for step in STEPS.values():
        assert step.effort in EFFORT_HOURS and step.changes and step.moves
        EngineConfig.from_settings(with_step({}, step)[0])


def test_the_ladder_has_the_articles_order_and_five_scenarios() -> None:
    ranks = [STEPS[name].rank for name in LADDER if STEPS[name].rank is not None]
    assert ranks == sorted(ranks) and ranks[:3] == [1, 2, 3]
    assert len(SCENARIOS) == 5
    for recipe in RECIPES.values():
        assert set(recipe.steps) <= set(STEPS) and recipe.workload in WORKLOADS
        assert KINDS["ladder"].check({"recipe": recipe.name})["workload"] == recipe.workload


def test_a_spec_survives_the_store() -> None:
    given = {"recipe": "slow-tokens", "own": [["x", {"kv_dtype": "int2"}]], "repeats": "auto", "slo": "itl_p95=0.1"}
    spec = LadderSpec.from_dict(given)
    assert spec.concurrency == 1 and spec.aim == "itl_s" and spec.repeats is None
    assert LadderSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_what_is_given_wins_over_the_recipe() -> None:
    spec = LadderSpec.from_dict({"recipe": "slow-tokens", "workload": "code", "rate_rps": 2, "steps": ["w8a8"]})
    assert (spec.workload, spec.concurrency, spec.steps) == ("code", None, ("w8a8",))


def test_quality_may_lose_what_the_objectives_say_or_one_in_a_hundred() -> None:
    assert LadderSpec.from_dict({}).most_drop() == 0.01
    assert LadderSpec.from_dict({"slo": "ttft_p95=1,quality_drop=0.03"}).most_drop() == 0.03


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"recipe": "soup"}, "--recipe"),
        ({"steps": ["w8a8", "nothing"]}, "--steps"),
        ({"steps": ["w8a8", "w8a8"]}, "--steps"),
        ({"steps": []}, "--steps"),
        ({"own": [["w8a8", {"weights": "w8a8"}]]}, "--step"),
        ({"own": [["mine", {"speed": 1}]]}, "variable"),
        ({"own": [["mine", {"kv_dtype": "int3"}]]}, "kv_dtype"),
        ({"start": "top"}, "--start"),
        ({"aim": "joy"}, "--aim"),
        ({"aim": "goodput_rps"}, "--slo"),
        ({"quality_items": 0}, "--quality-items"),
        ({"repeats": 0}, "repeats"),
        ({"settings": {"prefix_cache": "on"}}, "prefix_cache"),
        ({"endpoint": "http://127.0.0.1:1"}, "--endpoint"),
        ({"slo": "ttft=1"}, "slo"),
    ],
)
def test_wrong_input_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError) as refused:
        LadderSpec.from_dict(fields)
    assert refused.value.field == named


@pytest.mark.parametrize(
    ("text", "name", "changes"),
    [
        ("kv_dtype=int2", "kv_dtype=int2", {"kv_dtype": "int2"}),
        ("two bits: kv_dtype=int2, kv_key_axis=token", "two bits", {"kv_dtype": "int2", "kv_key_axis": "token"}),
        ("model=/a:b/c", "model=/a:b/c", {"model": "/a:b/c"}),
    ],
)
def test_a_step_of_ones_own(text: str, name: str, changes: dict[str, str]) -> None:
    assert parse_step(text) == (name, changes)


@pytest.mark.parametrize("text", ["", "slow", "name:", "kv_dtype=", "=int2"])
def test_a_step_that_is_none(text: str) -> None:
    with pytest.raises(InputError):
        parse_step(text)


def test_what_a_value_needs_goes_with_the_step_and_is_told() -> None:
    step = LadderSpec.from_dict({"steps": [], "own": [["sinks", {"kv_protect": "sinks"}]],
                                 "settings": {"kv_dtype": "int4"}}).all_steps()[0]  # fmt: skip
    after, because = with_step({"kv_dtype": "int4"}, step)
    assert after["prefix_cache"] == "off" and because == {"prefix_cache": "kv_protect=sinks"}


# -- the rule --------------------------------------------------------------------------------------------------------


def curve(name: str, verdict: str, change: float = 0.0, **more: Any) -> dict[str, Any]:
    better = "lower" if name in ("ttft_s", "itl_s", "cost_per_request") else "higher"
    return {"name": name, "better": better, "verdict": verdict, "change_pct": change, "median_change_pct": change,
            "ci95": [change - 2, change + 2], "baseline": 1.0, "candidate": 1 + change / 100, "noise_floor_pct": 1.0,
            "repeats_needed": None, "pairs": 5, "samples": {"baseline": [1.0], "candidate": [1.0]}, **more}  # fmt: skip


def compared(*curves: dict[str, Any], objectives: Any = ((), ()), failed: tuple[int, int] = (0, 0)) -> dict[str, Any]:
    arms = [
        {"metrics": {"objectives": list(own), "failed": lost, "completed": 10 - lost}}
        for own, lost in zip(objectives, failed, strict=True)
    ]
    return {"curves": list(curves), "arms": arms}


def limit(name: str, value: float, met: bool) -> dict[str, Any]:
    return {"name": name, "limit": 1.0, "value": value, "met": met}


GAIN = curve("output_tokens_per_s", "better", 40)
SAME = curve("ttft_s", "no difference")


@pytest.mark.parametrize(
    ("comparison", "judged", "outcome", "first"),
    [
        (compared(GAIN, SAME), None, "adopted", "better"),
        (compared(GAIN, SAME), quality("kept"), "adopted", "better"),
        (compared(GAIN, SAME), quality("lost", 0.1), "rolled back", "quality_lost"),
        (compared(GAIN, SAME), quality("undecided", 0.01), "undecided", "quality_open"),
        (compared(GAIN, SAME), {**quality("kept"), "unseen": ["router"]}, "undecided", "unseen"),
        (compared(GAIN, SAME), {**quality("lost", 0.1), "unseen": ["router"]}, "rolled back", "quality_lost"),
        (compared(SAME), None, "rolled back", "no_gain"),
        (compared(SAME), quality("undecided"), "rolled back", "no_gain"),
        (compared(GAIN, curve("itl_s", "worse", 30)), None, "rolled back", "worse"),
        (compared(GAIN, curve("itl_s", "worse", 30), objectives=([limit("itl_p95", 0.5, True)],
                                                                 [limit("itl_p95", 0.6, True)])),
         None, "adopted", "better"),
        (compared(GAIN, curve("itl_s", "worse", 30), objectives=([limit("itl_p95", 0.9, True)],
                                                                 [limit("itl_p95", 1.2, False)])),
         None, "rolled back", "worse"),
        # An objective on another curve allows nothing here.
        (compared(GAIN, curve("itl_s", "worse", 30), objectives=([limit("ttft_p95", 0.5, True)],
                                                                 [limit("ttft_p95", 0.5, True)])),
         None, "rolled back", "worse"),
        # A latency without a curve of its own that breaks.
        (compared(GAIN, objectives=([limit("e2e_p95", 0.9, True)], [limit("e2e_p95", 1.2, False)])),
         None, "rolled back", "objective"),
        (compared(GAIN, objectives=([limit("e2e_p95", 1.9, False)], [limit("e2e_p95", 1.2, False)])),
         None, "adopted", "better"),
        (compared(GAIN, curve("goodput_rps", "worse", -20)), None, "rolled back", "worse"),
        (compared(GAIN, failed=(0, 2)), None, "rolled back", "failing"),
        (compared(GAIN, failed=(2, 2)), None, "adopted", "better"),
        (compared(GAIN, failed=(0, 2), objectives=([], [{**limit("error_rate", 0.2, True), "limit": 0.3}])),
         None, "adopted", "better"),
        (compared(SAME, curve("itl_s", "inconclusive", -8, repeats_needed=14)), None, "undecided", "open"),
        (compared(GAIN, curve("itl_s", "inconclusive", 3)), None, "adopted", "better"),
        (compared(GAIN, curve("itl_s", "inconclusive", 12)), None, "undecided", "leaning"),
        # What would be allowed if it were decided needs no decision.
        (compared(GAIN, curve("itl_s", "inconclusive", 12), objectives=([limit("itl_p95", 0.5, True)],
                                                                        [limit("itl_p95", 0.6, True)])),
         None, "adopted", "better"),
        (compared(GAIN, curve("itl_s", "inconclusive", 12), objectives=([limit("ttft_p95", 0.5, True)],
                                                                        [limit("ttft_p95", 0.5, True)])),
         None, "undecided", "leaning"),
        (compared(GAIN, curve("quality", "worse", -9)), None, "rolled back", "answers"),
        (compared(GAIN, curve("quality", "worse", -9)), quality("kept"), "adopted", "better"),
        (compared({**curve("goodput_rps", "inconclusive"), "change_pct": None, "ci95": None,
                   "samples": {"baseline": [0.0, 0.0], "candidate": [1.0, 2.0]}}), None, "adopted", "better"),
        # Once is chance.
        (compared({**curve("goodput_rps", "inconclusive"), "change_pct": None, "median_change_pct": None, "ci95": None,
                   "samples": {"baseline": [0.0], "candidate": [1.0]}}), None, "undecided", "open"),
        (compared(GAIN, {**curve("goodput_rps", "inconclusive"), "change_pct": None, "ci95": None,
                         "samples": {"baseline": [1.0, 2.0], "candidate": [0.0, 0.0]}}),
         None, "rolled back", "worse"),
    ],
)  # fmt: skip
def test_the_rule(comparison: Any, judged: Any, outcome: str, first: str) -> None:
    found = decide(comparison, judged)
    assert (found.outcome, found.reasons[0]["code"]) == (outcome, first)


def test_the_guard_names_what_its_questions_go_past(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = tuple(ItemScore((-0.1, -3.0), 0) for _ in default_items())
    found = SimpleNamespace(baseline_scores=scores, scores={guard._LABEL: scores})
    monkeypatch.setattr(guard, "evaluate", lambda *_, **__: found)
    asked: dict[str, Any] = {"most_drop": 0.01, "limit": 100_000, "kept": None, "rig": None}
    routed = guard.guard_quality({}, {"router": "small-first", "kv_dtype": "int8"}, **asked)
    assert (routed["verdict"], routed["unseen"]) == ("kept", ["router"])
    assert guard.guard_quality({"router": "small-first"}, {"router": "small-first", "kv_dtype": "int8"}, **asked)[
        "unseen"
    ] == []  # fmt: skip
    assert set(guard.UNSEEN) <= set(VARIABLES)
    reason = {"code": "unseen", "variables": ["router"]}
    assert all("router" in Says(lang).reason(reason) for lang in ("en", "zh"))


def test_an_open_step_names_the_fewest_repeats_that_would_decide() -> None:
    found = decide(compared(curve("itl_s", "inconclusive", repeats_needed=14),
                            curve("ttft_s", "inconclusive", repeats_needed=9)), None)  # fmt: skip
    assert found.reasons[0]["repeats"] == 9 and found.reasons[0]["made"] == 5


# -- the guard -------------------------------------------------------------------------------------------------------


def scored(shares: list[float]) -> list[ItemScore]:
    """Two choices each, the first right with this probability."""
    import math

    return [ItemScore((math.log(share), math.log(1 - share)), 0) for share in shares]


def items(count: int, slices: tuple[str, ...] = ("one", "two")) -> list[Item]:
    return [Item(f"i{i}", slices[i % len(slices)], "p", ("a", "b"), 0) for i in range(count)]


def test_the_probability_of_the_right_choice_is_among_the_choices() -> None:
    assert right(ItemScore((-1000.0, -1000.0, -1000.0, -1000.0), 2)) == pytest.approx(0.25)


def test_a_small_loss_is_kept_and_a_large_one_is_lost() -> None:
    before = [0.6 + 0.002 * (i % 50) for i in range(100)]
    for drop, verdict in ((0.0, "kept"), (0.004, "kept"), (0.03, "lost"), (-0.02, "kept")):
        found = judge_quality(items(100), scored(before), scored([share - drop for share in before]), 0.01)
        assert found["verdict"] == verdict and found["drop"] == pytest.approx(drop)
    allowed = judge_quality(items(100), scored(before), scored([share - 0.03 for share in before]), 0.05)
    assert allowed["verdict"] == "kept"


def test_a_loss_that_is_not_told_from_what_is_allowed_names_the_items() -> None:
    before = [0.8] * 40
    after = [0.8 - (0.12 if i % 2 else -0.108) for i in range(40)]  # 0.006 in the mean, spread wide
    found = judge_quality(items(40, ("one",)), scored(before), scored(after), 0.01)
    assert found["verdict"] == "undecided" and found["items_needed"] > 40
    assert found["ci95"][0] < 0.01 < found["ci95"][1]


def test_no_mean_hides_a_slice() -> None:
    """Nine slices gain a little, one loses a fifth of its probability: the mean is better."""
    names = tuple(f"s{n}" for n in range(10))
    before = [0.6 + 0.001 * (i % 7) for i in range(240)]
    after = [share - 0.2 if i % 10 == 3 else share + 0.03 for i, share in enumerate(before)]
    found = judge_quality(items(240, names), scored(before), scored(after), 0.01)
    assert found["drop"] < 0 and found["verdict"] == "lost"
    assert [one["slice"] for one in found["slices"]] == ["s3"]


# -- the return ------------------------------------------------------------------------------------------------------


def step_row(name: str, outcome: str, change: float, *, hours: float = 1.0, verdict: str = "better",
             half: float = 2.0) -> dict[str, Any]:  # fmt: skip
    found = {**curve("output_tokens_per_s", verdict, change), "ci95": [change - half, change + half]}
    return {"name": name, "outcome": outcome, "hours": hours, "effort": "config", "rank": STEPS[name].rank,
            "comparison": {"curves": [found]}}  # fmt: skip


def test_a_gain_of_what_should_be_low_is_turned() -> None:
    assert gain_of({"change_pct": -50.0, "ci95": [-60.0, -20.0], "better": "lower"}) == pytest.approx((100, 25, 150))
    assert gain_of({"change_pct": 30.0, "ci95": None, "better": "higher"}) == (30.0, 30.0, 30.0)
    assert gain_of({"change_pct": None, "ci95": None, "better": "higher"}) is None


def test_return_is_gain_over_hours_and_nothing_for_what_was_not_adopted() -> None:
    rows = return_rows(
        [step_row("continuous-paged", "adopted", 40), step_row("kv-int8", "rolled back", 80),
         step_row("w8a8", "adopted", 400, hours=8),
         {"name": "pd", "outcome": "can't run here", "comparison": None}],
        "output_tokens_per_s",
    )  # fmt: skip
    assert [row["step"] for row in rows] == ["w8a8", "continuous-paged", "kv-int8"]
    assert [row["return_pct_per_hour"] for row in rows] == [50, 40, 0]
    assert [row["measured_pct"] for row in rows] == [400, 40, 80] and [row["place"] for row in rows] == [1, 2, 3]


def test_goodput_from_nothing_has_no_ratio_so_throughput_counts() -> None:
    row = step_row("continuous-paged", "adopted", 40)
    nothing = {**curve("goodput_rps", "inconclusive"), "change_pct": None, "ci95": None,
               "samples": {"baseline": [0.0, 0.0], "candidate": [1.0, 2.0]}}  # fmt: skip
    row["comparison"]["curves"].append(nothing)
    found = return_rows([row], "goodput_rps")[0]
    assert (found["curve"], found["gain_pct"]) == ("output_tokens_per_s", 40)


def test_the_order_agrees_differs_or_is_too_close() -> None:
    def verdict(*changes: float, half: float = 2.0) -> dict[str, Any]:
        names = ("continuous-paged", "kv-int8", "w8a8")
        steps = [step_row(name, "adopted", change, half=half) for name, change in zip(names, changes, strict=False)]
        return order_of(return_rows(steps, "output_tokens_per_s"))

    assert verdict(90, 40, 10)["verdict"] == "agrees"
    turned = verdict(10, 40, 90)
    assert turned["verdict"] == "disagrees" and turned["measured"] == ["w8a8", "kv-int8", "continuous-paged"]
    assert turned["article"] == ["continuous-paged", "kv-int8", "w8a8"]
    assert verdict(40, 41, half=5)["verdict"] == "can't tell"
    assert verdict(40)["pairs"] == []


def test_steps_that_share_a_rank_contradict_nobody() -> None:
    steps = [step_row("speculation", "rolled back", 5), step_row("pd", "adopted", 50)]
    rows = return_rows(steps, "output_tokens_per_s")
    assert order_of(rows)["pairs"] == []
