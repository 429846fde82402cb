"""2 x 2 experiments on the engine with a virtual clock: order, effects, interaction, words, refusals."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from core_engine.config import EngineConfig
from experiments import loadgen
from experiments.cli.factorial import print_factorial
from experiments.factorial import FactorialCancelled, FactorialSpec, parse_factors, run_factorial
from experiments.factorial.effects import EFFECTS, judge_effects, readings
from experiments.factorial.run import ORDER
from experiments.kinds import kind_of
from experiments.report import reading_sentence
from experiments.report.reproduce import command_of
from experiments.spec import parse_vary
from experiments.store import Run, Store
from ledger.errors import InputError
from tests.experiments.fakes import FakeRig, VirtualClock
from tests.experiments.report_runs import page_of

FACTORS = [["seed", [0, 1]], ["block_size", [16, 32]]]
CURVES = ["ttft_s", "itl_s", "output_tokens_per_s", "cost_per_request", "quality"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    made = VirtualClock()
    monkeypatch.setattr(loadgen.gc, "collect", lambda: 0)  # 0.1 s with torch loaded, many runs
    return made


def steps(first: float, second: float, both: float) -> Any:
    """Step times of the arms as factors of the baseline's."""

    def speed(config: EngineConfig) -> dict[str, float]:
        a, b = config.seed == 1, config.block_size == 32
        factor = both if a and b else first if a else second if b else 1.0
        return {"base_s": 0.01 * factor, "token_s": 0.001 * factor}

    return speed


def run(clock: VirtualClock, speed: Any, noise: float = 0.01, **spec: Any) -> dict[str, Any]:
    fields = {"factors": FACTORS, "repeats": 5, "workload": "equal", "num_requests": 3, "max_tokens_cap": 6, **spec}
    hooks = {name: fields.pop(name) for name in ("should_cancel",) if name in fields}
    return run_factorial(fields, None, "f0", rig=FakeRig(clock, noise=noise, speed=speed), **hooks)


def verdicts(result: dict[str, Any], effect: str) -> dict[str, str]:
    return {curve["name"]: curve["verdict"] for curve in result["effects"][effect]}


def test_the_order_is_balanced_in_place_and_in_what_comes_before():
    for place in range(4):
        assert sorted(row[place] for row in ORDER) == [0, 1, 2, 3]
    followed = Counter(pair for row in ORDER for pair in pairwise(row))
    assert set(followed.values()) == {1} and len(followed) == 12


def test_arms_run_in_that_order_on_fresh_engines(clock: VirtualClock) -> None:
    rig = FakeRig(clock)
    spec = {"factors": FACTORS, "repeats": 5, "workload": "equal", "num_requests": 1, "max_tokens_cap": 2}
    result = run_factorial(spec, None, "f0", rig=rig)
    arms = [(config.seed == 1) + 2 * (config.block_size == 32) for config in rig.made]
    assert arms[:4] == [0, 1, 2, 3]  # warm-up
    assert arms[4:24] == [arm for row in (*ORDER, ORDER[0]) for arm in row]
    assert result["order"] == [list(row) for row in (*ORDER, ORDER[0])]


def test_two_that_multiply_do_not_interact(clock: VirtualClock) -> None:
    result = run(clock, steps(0.5, 0.8, 0.4), noise=0.002)
    assert verdicts(result, "first")["output_tokens_per_s"] == "better"
    assert verdicts(result, "second")["ttft_s"] == "better"
    assert set(verdicts(result, "interaction").values()) == {"no difference"}
    reading = next(r for r in result["readings"] if r["curve"] == "output_tokens_per_s")
    assert reading["first_alone_pct"] == pytest.approx(100, abs=3)
    assert reading["product_pct"] == pytest.approx(150, abs=5)
    assert reading["together_pct"] == pytest.approx(reading["product_pct"], abs=5)


def test_two_that_cancel_are_worse_than_their_product(clock: VirtualClock) -> None:
    result = run(clock, steps(0.5, 0.5, 0.5), noise=0.002)
    interaction = next(c for c in result["effects"]["interaction"] if c["name"] == "output_tokens_per_s")
    assert interaction["verdict"] == "worse"
    assert interaction["change_pct"] == pytest.approx(-50, abs=2)
    assert verdicts(result, "interaction")["ttft_s"] == "worse"
    assert verdicts(result, "interaction")["quality"] == "no difference"
    # Over both values of the other, each halves the time once and not once: a factor of the square root of 2.
    main = next(c for c in result["effects"]["first"] if c["name"] == "output_tokens_per_s")
    assert main["change_pct"] == pytest.approx(41.4, abs=2)


def test_two_that_need_each_other_are_better_than_their_product(clock: VirtualClock) -> None:
    result = run(clock, steps(1.0, 1.0, 0.5), noise=0.002)
    assert verdicts(result, "interaction")["itl_s"] == "better"
    assert verdicts(result, "first_alone")["itl_s"] == "no difference"


def test_auto_stops_when_the_effects_are_decided(clock: VirtualClock) -> None:
    assert run(clock, steps(0.5, 0.5, 0.25), noise=0.0005, repeats="auto")["repeats"] == 3


def test_equal_arms_rarely_have_an_interaction(clock: VirtualClock) -> None:
    alarms = 0
    for seed in range(10):
        rig = FakeRig(clock, seed=seed, noise=0.03)
        spec = {"factors": FACTORS, "workload": "equal", "num_requests": 1, "max_tokens_cap": 4}
        result = run_factorial(spec, None, "f0", rig=rig)
        alarms += any(word in ("better", "worse") for word in verdicts(result, "interaction").values())
    assert alarms <= 2


def test_the_json_has_four_arms_and_every_effect(clock: VirtualClock) -> None:
    result = run(clock, steps(1, 1, 1))
    assert [arm["values"] for arm in result["arms"]] == [
        {"seed": 0, "block_size": 16}, {"seed": 1, "block_size": 16},
        {"seed": 0, "block_size": 32}, {"seed": 1, "block_size": 32},
    ]  # fmt: skip
    assert list(result["effects"]) == list(EFFECTS)
    assert [curve["name"] for curve in result["effects"]["interaction"]] == CURVES
    assert {"seed", "block_size"}.isdisjoint(result["held_equal"])
    assert result["derived"] == {"num_kv_blocks": [1024, 1024, 512, 512]}
    json.dumps(result, allow_nan=False)


def test_a_missing_figure_leaves_its_repeat_out():
    def metrics(ttft: float | None) -> dict[str, Any]:
        latency = {"p95": ttft}
        return {"ttft_s": latency, "itl_s": latency, "output_tokens_per_s": ttft, "cost_per_request": ttft}

    arms = [[metrics(1.0), metrics(1.0), metrics(1.1)] for _ in range(4)]
    arms[3][1] = metrics(None)
    effects = judge_effects(arms, [[] for _ in range(4)], alpha=0.05)
    assert (effects["interaction"][0].pairs, effects["interaction"][0].pairs_left_out) == (2, 1)
    assert effects["interaction"][4].verdict == "inconclusive"
    assert readings(effects)[4]["product_pct"] is None


def test_cancelling_keeps_finished_repeats(clock: VirtualClock) -> None:
    rig = FakeRig(clock)
    spec = {"factors": FACTORS, "repeats": 9, "workload": "equal", "num_requests": 1, "max_tokens_cap": 3}
    with pytest.raises(FactorialCancelled) as caught:
        run_factorial(spec, None, "f0", should_cancel=lambda: len(rig.made) > 4 + 4 * 2 + 1, rig=rig)
    assert caught.value.result is not None
    assert (caught.value.result["repeats"], caught.value.result["cancelled"]) == (2, True)
    with pytest.raises(FactorialCancelled) as caught:
        run_factorial(spec, None, "f0", should_cancel=lambda: True, rig=rig)
    assert caught.value.result is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"factors": [["seed", [0, 1]]]}, "factors"),
        ({"factors": "seed"}, "factors"),
        ({"factors": [["seed", [0, 1]], ["seed", [2, 3]]]}, "--vary"),
        ({"factors": [["seed", [0, 0]], ["block_size", [16, 32]]]}, "--vary"),
        ({"factors": [["nope", [0, 1]], ["block_size", [16, 32]]]}, "variable"),
        ({"settings": {"seed": 3}}, "--set"),
        ({"repeats": 0}, "repeats"),
        ({"endpoint": "http://127.0.0.1:1"}, "endpoint"),
        ({"colour": "red"}, "spec"),
    ],
)
def test_a_wrong_spec_names_its_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        FactorialSpec.from_dict({"factors": FACTORS, **change})
    assert caught.value.field == field


def test_what_a_value_needs_is_held_in_all_arms_and_its_opposite_refused() -> None:
    factors = [["kv_layout", ["contiguous", "paged"]], ["batching", ["static", "continuous"]]]
    spec = FactorialSpec.from_dict({"factors": factors})
    assert {arm.config().prefix_cache for arm in spec.arms()} == {"off"}
    assert FactorialSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    with pytest.raises(InputError, match="kv_layout=contiguous"):
        FactorialSpec.from_dict({"factors": [factors[0], ["prefix_cache", ["off", "on"]]]})


def test_two_variables_in_a_comparison_are_shown_the_way_here() -> None:
    for texts in (["batching=static,continuous", "seed=1,2"], ["batching=static,continuous,seed=1,2"]):
        with pytest.raises(InputError, match=r"one variable at a time.*trilemma factorial --vary A=A0,A1 --vary B="):
            parse_vary(texts)
    assert parse_factors(["seed=0,1", "block_size=16,32"]) == [["seed", ["0", "1"]], ["block_size", ["16", "32"]]]
    with pytest.raises(InputError, match="two variables, each once"):
        parse_factors(["seed=0,1"])


def test_the_words_say_together_and_product(clock: VirtualClock, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(clock, steps(0.5, 0.5, 0.5), noise=0.002)
    reading = next(r for r in result["readings"] if r["curve"] == "output_tokens_per_s")
    line = reading_sentence(result, reading)
    assert line.startswith("Throughput: seed=1 alone +") and "together they give +" in line
    assert "their product would be +" in line and line.endswith("they get in each other's way.")
    assert "相互妨碍" in reading_sentence(result, reading, "zh")
    print_factorial(result)
    shown = capsys.readouterr().out
    assert "Interaction" in shown and line in shown and "detectable from" in shown


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_report_is_one_escaped_file(clock: VirtualClock, lang: str) -> None:
    spec = FactorialSpec.from_dict({"factors": FACTORS}).to_dict()
    result = {**run(clock, steps(0.5, 0.8, 0.4)), "warnings": ["<script>"]}
    page = page_of(Run("f0", "factorial", "done", "2026-01-02T03:04:05+00:00", "", spec, result), [], lang)
    assert "default-src" in page and "http://" not in page and "https://" not in page
    assert page.count("<script") == 1 and "&lt;script&gt;" in page
    assert "trilemma factorial --vary seed=0,1 --vary block_size=16,32 --workload mixed --repeats 5 --seed 0" in page
    assert str(command_of("factorial", spec)).endswith("--seed 0")
    assert "trilemma factorial" in page_of(Run("f0", "factorial", "failed", "", "", spec, None), [], lang)


def test_the_kind_is_in_the_table(clock: VirtualClock, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = kind_of("factorial")
    assert kind.says(kind.check({"factors": FACTORS})) == "seed=0,1 x block_size=16,32 on mixed"
    rig = FakeRig(clock)
    rig.close = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setattr("experiments.rig.Rig", lambda: rig)
    store = Store(tmp_path / "runs.sqlite3")
    spec = {"factors": FACTORS, "repeats": 1, "workload": "equal", "num_requests": 1, "max_tokens_cap": 2}
    run_id = store.create_run("factorial", kind.check(spec))
    result = kind.run(store.get_run(run_id), store, lambda _: None, lambda: False)
    assert result["run_id"] == run_id
    assert sorted({record.arm for record in store.records(run_id)}) == [0, 1, 2, 3]
