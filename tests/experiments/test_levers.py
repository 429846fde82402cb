"""Cost levers: the arms, what each saved and how they act together, quality, the claim, the command's words."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from core_engine.simulation.model import NumberedTokenizer
from experiments.claims.cost_levers import check, judge
from experiments.kinds import KINDS
from experiments.levers import LeversSpec, parse_levers, run_levers
from experiments.levers.attribution import judge_costs, saved, together
from experiments.levers.catalogue import LEVERS, SIMULATED, USUAL
from experiments.levers.quality import judge_quality
from experiments.levers.run import order
from experiments.levers.words import attribution_sentence, change, quality_words, saving
from experiments.loadgen import Cancelled
from ledger.errors import InputError
from tests.experiments.fakes import FakeRig, VirtualClock

REAL = ["prefix_cache", "answer_cache", "compression", "weights", "batching", "concurrency"]
SMALL = {"num_requests": 12, "concurrency": 8, "repeats": 2, "levers": REAL}


def rig() -> Any:
    return FakeRig(VirtualClock(), speed=lambda config: {"base_s": 0.004 if config.weights == "w8a16" else 0.010})


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return run_levers(SMALL, None, "x", rig=rig())


def test_the_arms_are_a_baseline_with_all_off_each_alone_and_all() -> None:
    spec = LeversSpec.from_dict({})
    assert [name for name, _ in spec.levers] == list(USUAL) and spec.names()[0] == "baseline"
    configs = [one.config().settings() for one in spec.specs()]
    for place, lever in enumerate(spec.pulled()):
        assert configs[0][lever.variable] == lever.off
        changed = {name for name, value in configs[place + 1].items() if value != configs[0][name]}
        assert changed == {lever.variable} and configs[-1][lever.variable] == lever.on
    assert spec.concurrency == 16 and LeversSpec.from_dict(spec.to_dict()) == spec
    assert KINDS["levers"].says(spec.to_dict()).endswith("concurrency on assistant")


def test_a_single_lever_has_no_arm_together_and_a_value_of_its_own() -> None:
    spec = LeversSpec.from_dict({"levers": parse_levers("weights=w8a8")})
    assert spec.names() == ["baseline", "weights"] and spec.specs()[1].settings["weights"] == "w8a8"
    assert LeversSpec.from_dict({"rate_rps": 2.0}).concurrency is None


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"levers": ["unheard"]}, "lever"),
        ({"levers": ["weights", "weights"]}, "levers"),
        ({"levers": [["weights", "none"]]}, "lever weights"),
        ({"levers": [["weights", "w3"]]}, "weights"),
        ({"levers": 3}, "levers"),
        ({"levers": ["routing"], "gpu": "h100"}, "lever"),
        ({"settings": {"prefix_cache": "on"}}, "--set"),
        ({"settings": {"disaggregation": "on"}}, "settings"),
        ({"repeats": 0}, "repeats"),
        ({"endpoint": "http://127.0.0.1:1/v1"}, "--endpoint"),
        ({"unheard": 1}, "spec"),
    ],
)
def test_wrong_specs_are_refused_by_the_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        LeversSpec.from_dict(given)
    assert caught.value.field == field and "\n" not in str(caught.value)


def test_levers_are_parsed_from_the_command_line() -> None:
    assert parse_levers(None) is None
    assert parse_levers("kv, weights=w8a8") == [["kv", None], ["weights", "w8a8"]]
    for wrong in ("", "kv,,weights", "kv="):
        with pytest.raises(InputError, match="--levers"):
            parse_levers(wrong)


def test_every_arm_begins_in_every_place_and_runs_once_a_repeat() -> None:
    orders = [order(4, repeat) for repeat in range(1, 9)]
    assert all(sorted(one) == [0, 1, 2, 3] for one in orders)
    assert {one[0] for one in orders} == {0, 1, 2, 3}


def test_each_saving_is_the_levers_own_and_all_have_their_label(result: dict[str, Any]) -> None:
    json.dumps(result)
    found = {row["name"]: row for row in result["levers"]}
    assert list(found) == REAL and {row["provenance"] for row in found.values()} == {"measured"}
    base = result["baseline"]["cost_per_request"]
    for row in found.values():
        assert row["saved_pct"] == pytest.approx(100 * (1 - row["candidate"] / row["baseline"]))
        assert (
            row["baseline"] == pytest.approx(base) and row["saved_ci95"][0] <= row["saved_pct"] <= row["saved_ci95"][1]
        )
        assert row["saved_per_million_requests"] == pytest.approx(1e6 * base * row["saved_pct"] / 100)
    for name in ("prefix_cache", "answer_cache", "compression", "weights", "concurrency"):
        assert found[name]["verdict"] == "better", name
    tokens = {name: row["figures"]["prefill_tokens"] for name, row in found.items()}
    assert tokens["prefix_cache"] < tokens["weights"] and tokens["compression"] < tokens["weights"]
    assert found["answer_cache"]["answer_cache"]["hits"]["exact"] > 0
    assert found["compression"]["prompt_compression"]["kept_share"] < 0.8
    assert found["weights"]["quality"]["verdict"] == "no difference"


def test_the_levers_of_prompts_take_from_each_other(result: dict[str, Any]) -> None:
    found = result["attribution"]
    assert found["together_pct"] == pytest.approx(result["together"]["saved_pct"])
    assert found["together_pct"] < found["sum_of_each_pct"]
    assert found["interaction"]["verdict"] in ("overlap", "independent", "reinforce")
    assert "add up" in attribution_sentence(result)


def test_where_a_rate_decides_the_time_it_is_said() -> None:
    found = run_levers({**SMALL, "concurrency": None, "rate_rps": 0.5, "levers": ["weights"]}, None, "x", rig=rig())
    assert any("--concurrency" in warning for warning in found["warnings"]) and found["attribution"] is None
    assert abs(found["levers"][0]["saved_pct"]) < 10


def test_a_cancelled_run_keeps_the_finished_repeats() -> None:
    calls = iter(range(10**9))
    with pytest.raises(Cancelled) as caught:
        run_levers({**SMALL, "repeats": 20, "levers": ["weights"]}, None, "x", rig=rig(),
                   should_cancel=lambda: next(calls) > 900)  # fmt: skip
    assert caught.value.result is not None and caught.value.result["cancelled"]
    assert caught.value.result["levers"][0]["quality"] is None


NOISE = (1.0, 1.01, 0.99)


def costs(*factors: float) -> list[list[float | None]]:
    return [[factor * noise for noise in NOISE] for factor in factors]


@pytest.mark.parametrize(("every", "verdict"), [(0.5, "overlap"), (0.25, "independent"), (0.1, "reinforce")])
def test_two_halves_saved_are_a_quarter_left_only_where_they_are_not_the_same_half(every: float, verdict: str) -> None:
    found = together(costs(1.0, 0.5, 0.5, every))
    assert found is not None and found["interaction"]["verdict"] == verdict
    assert found["sum_of_each_pct"] == pytest.approx(100) and found["product_of_each_pct"] == pytest.approx(75)
    assert found["together_pct"] == pytest.approx(100 * (1 - every))


def test_what_has_no_pairs_is_undecided_or_none() -> None:
    assert together(costs(1.0, 0.5)) is None
    one = together([[1.0], [0.5], [0.5], [0.5]])
    assert one is not None and one["interaction"]["verdict"] == "undecided" and one["interaction"]["ci95"] is None
    none = together([[1.0], [0.5], [None], [0.5]])
    assert none is not None and none["together_pct"] is None
    assert saved(judge_costs([[1.0], [None]], "measured")[0]) == {"saved_pct": None, "saved_ci95": None}


def test_levers_are_judged_in_one_family() -> None:
    """A change that stands alone at p = 0.03 does not stand among ten."""
    base, little = [1.0, 1.0, 1.0], [0.93, 0.955, 0.97]
    alone = judge_costs([base, little], "measured")[0]
    among = judge_costs([base, little, *([1.0, 1.05, 0.96] for _ in range(9))], "measured")[0]
    assert alone.p_adjusted is not None and among.p_adjusted is not None and among.p_adjusted > alone.p_adjusted


def test_quality_is_over_requests_that_both_answered() -> None:
    base = {0: 0.5, 1: 0.6, 2: 0.4, 3: 0.5}
    worse, unread = judge_quality(base, [{0: 0.25, 1: 0.31, 2: 0.2, 9: 0.9}, None])
    assert worse.verdict == "worse" and worse.pairs == 3
    assert unread.verdict == "inconclusive" and unread.pairs == 0


def test_rows_read_as_sentences(result: dict[str, Any]) -> None:
    found = {row["name"]: row for row in result["levers"]}
    assert saving(found["weights"])[0].endswith(" %") and " to " in saving(found["weights"])[1]
    assert "hits" in change(found["answer_cache"]) and "of prompt tokens kept" in change(found["compression"])
    assert quality_words(found["weights"]).startswith("no difference")
    assert quality_words({"quality": None, "provenance": "simulated"}) == "unknown: simulated"


def row(way: str, verdict: str, quality: str = "no difference", name: str = "x") -> dict[str, Any]:
    return {"name": name, "works_on": way, "verdict": verdict, "saved_pct": 10.0, "saved_ci95": [5.0, 15.0],
            "quality": {"verdict": quality}}  # fmt: skip


ALL = [row("tokens", "better"), row("device", "better"), row("concurrency", "better")]


@pytest.mark.parametrize(
    ("rows", "verdict", "said"),
    [
        (ALL, "holds", "10 %"),
        ([*ALL, row("tokens", "worse", name="routing")], "holds with a limit", "routing"),
        ([*ALL, row("tokens", "better", "worse", name="compression")], "holds with a limit", "quality: compression"),
        ([*ALL[:2], row("concurrency", "no difference")], "does not hold here", "more concurrency"),
        ([*ALL[:2], row("concurrency", "inconclusive")], "undecided", "more concurrency"),
        ([row("device", "better")], "undecided", "fewer tokens"),
    ],
)
def test_the_claim_follows_from_the_measured_savings(rows: list[dict[str, Any]], verdict: str, said: str) -> None:
    found, reason = judge(rows, {"together_pct": 40.0, "sum_of_each_pct": 70.0, "product_of_each_pct": 50.0})
    assert found == verdict and said in reason and "adding them up says 70 %" in reason and "\n" not in reason


def test_the_check_asks_for_every_way_and_shows_every_lever(result: dict[str, Any]) -> None:
    asked: list[dict[str, Any]] = []

    def levers(spec: dict[str, Any]) -> dict[str, Any]:
        asked.append(spec)
        return {**result, "run_id": "abc"}

    found = check({"num_requests": 9, "repeats": "auto"}, levers)
    assert asked[0]["num_requests"] == 9 and {LEVERS[name].works_on for name in asked[0]["levers"]} == {
        "tokens", "device", "concurrency",
    }  # fmt: skip
    LeversSpec.from_dict(asked[0])
    assert found["verdict"] in ("holds", "holds with a limit")
    assert [one["part"] for one in found["evidence"]] == [*REAL, "together"]
    assert {one["run_id"] for one in found["evidence"]} == {"abc"}


def test_simulated_levers_need_no_text() -> None:
    from experiments.levers.simulated import simulate_spec

    spec = LeversSpec.from_dict({"gpu": "h100", "settings": {"model": "qwen2.5-7b"}, "levers": ["weights", "kv"]})
    assert all(not LEVERS[name].needs_text for name in SIMULATED)
    base, weights, kv, _ = (simulate_spec(one, "h100") for one in spec.specs())
    assert (base.weights, weights.weights, kv.kv_dtype, base.model) == ("bf16", "w8a16", "int8", "qwen2.5-7b")


def test_arms_on_a_card_are_simulated_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = SimpleNamespace(tokenizer=lambda: NumberedTokenizer(256))
    monkeypatch.setattr("core_engine.model.loader.open_model", lambda config: opened)
    spec = {"gpu": "h100-sxm", "settings": {"model": "qwen2.5-7b"}, "levers": ["weights", "concurrency"],
            "workload": "equal", "num_requests": 8, "concurrency": 8, "repeats": 2, "max_tokens_cap": 8}  # fmt: skip
    result = run_levers(spec, None, "x", rig=rig())
    json.dumps(result)
    assert result["provenance"] == "simulated" and {row["provenance"] for row in result["levers"]} == {"simulated"}
    assert all(row["quality"] is None and row["same_answers_share"] is None for row in result["levers"])
    assert all(row["verdict"] == "better" for row in result["levers"])
    assert KINDS["levers"].says(LeversSpec.from_dict(spec).to_dict()).endswith("simulated on h100-sxm")
