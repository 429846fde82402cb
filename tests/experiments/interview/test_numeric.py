"""Every kind of numeric question: its key against arithmetic of its own, and that near-misses are told by name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from experiments.interview.numeric import KINDS, NumericQuestion, drawn
from experiments.interview.words import LANGUAGES, kind_words, mistake_text, number, unit_name, words
from experiments.mistake_words import USUAL
from experiments.units import dimension_of
from ledger.errors import InputError
from ledger.hardware import GIB, accelerator
from ledger.model_spec import load_model_spec
from ledger.weights import parameter_count

QUICK_SEEDS, ALL_SEEDS = 100, 1000
Hand = Callable[[dict[str, Any]], float]


def parameters(model: str) -> int:
    return parameter_count(load_model_spec(model))


def series(v: dict[str, Any]) -> float:
    return sum(v["alpha"] ** place for place in range(v["k"] + 1))


def ring(v: dict[str, Any]) -> float:
    return 2 * (v["tp"] - 1) / v["tp"]


def row_bits(v: dict[str, Any]) -> float:
    extra = 16 if v["format"] == "INT8" else 32
    return v["bits"] + extra / min(v["group"], v["head_dim"])


def kv_gib(v: dict[str, Any]) -> float:
    return 2 * v["layers"] * v["kv_heads"] * v["head_dim"] * 2 * v["seq_len"] / GIB


def transfer_ms(v: dict[str, Any]) -> float:
    return kv_gib(v) * GIB * 8 / (v["gbit"] * 1e9) * 1e3


def stay_s(v: dict[str, Any]) -> float:
    return v["ttft"] + (v["output"] - 1) * v["tpot_ms"] / 1000


def cards(v: dict[str, Any]) -> int:
    return math.ceil(v["rate"] * v["output"] / (v["per_card"] * v["utilisation"] / 100) - 1e-9)


def busy(v: dict[str, Any]) -> float:
    return v["rate"] * v["service_ms"] / 1000


# What a person would compute by hand, written apart from the ledger.
BY_HAND: dict[str, Hand] = {
    "kv_gqa": kv_gib,
    "kv_mla": lambda v: v["layers"] * (v["rank"] + v["rope"]) * 2 * v["seq_len"] / GIB,
    "kv_window": lambda v: (v["full"] * v["seq_len"] + v["swa"] * min(v["window"], v["seq_len"]))
    * 2 * v["kv_heads"] * v["head_dim"] * 2 / GIB,
    "kv_batch": lambda v: kv_gib(v) * v["concurrency"],
    "kv_rank": lambda v: kv_gib(v) * v["concurrency"] / v["kv_heads"],
    "kv_bits": row_bits,
    "kv_sequences": lambda v: math.floor(v["held"] * 16 / row_bits(v)),
    "weights_fp16": lambda v: parameters(v["model"]) * 2 / GIB,
    "spec_tokens": series,
    "spec_acceptance": lambda v: 100 * (series(v) - 1) / v["k"],
    "spec_break_even": lambda v: 100 * (series(v) - 1) / v["k"],
    "spec_speedup": lambda v: series(v) / (v["v"] + v["k"] * v["c"]),
    "tp_traffic": lambda v: (2 * v["layers"] + 1) * v["hidden"] * 2 * ring(v) / 1024,
    "tp_time": lambda v: (2 * v["layers"] + 1) * (
        2 * (v["tp"] - 1) * v["latency_us"] / 1e3 + ring(v) * v["batch"] * v["hidden"] * 2 / v["link_gb"] / 1e6),
    "pipeline_bubble": lambda v: 100 * (v["pp"] - 1) / (v["micro_batches"] + v["pp"] - 1),
    "pd_transfer": transfer_ms,
    "pd_ttft": lambda v: v["queue_ms"] + 1e3 * v["seq_len"] / v["prefill_rate"] + transfer_ms(v) + v["step_ms"],
    "ridge_batch": lambda v: accelerator(v["card"]).flops_per_s["int8" if v["weights"] == "w8a8" else "bf16"]
    / accelerator(v["card"]).bandwidth_bytes_per_s * {"bf16": 2, "w8a8": 1, "w4a16": 0.5}[v["weights"]] / 2,
    "attention_intensity": lambda v: v["heads"] / v["kv_heads"] * (2 if v["kv_dtype"] == "fp8" else 1),
    "moe_experts": lambda v: v["experts"] * (1 - (1 - v["chosen"] / v["experts"]) ** v["tokens"]),
    "in_flight": lambda v: v["rate"] * stay_s(v),
    "queue_wait": lambda v: busy(v) / (1 - busy(v)) * v["service_ms"],
    "tpot": lambda v: v["gap_ms"],
    "goodput": lambda v: (v["sent"] - v["failed"] - v["late_first"] - v["slow"] + v["both"]) / v["duration"],
    "cards": cards,
    "month_tokens": lambda v: v["rate"] * v["output"] * 86400 * 30,
    "month_cost": lambda v: cards(v) * 720 * v["price"],
    "million_tokens": lambda v: v["cards"] * v["price"] / (v["together"] * v["utilisation"] / 100 * 3600) * 1e6,
    "bill": lambda v: v["requests"] * (v["input"] * v["price_in"] + v["output"] * v["price_out"]) / 1e6,
    "prefix_left": lambda v: v["rate"] * (v["shared"] + v["own"] - v["hit"] / 100 * v["shared"]),
    "answer_cache": lambda v: v["requests"] * (
        v["hit"] / 100 * v["request_cost"] - v["lookup_cost"] - v["hit"] / 100 * v["wrong"] / 100 * v["wrong_cost"]),
}  # fmt: skip
# The same from what the texts print, for kinds whose parameters are those of a model and a card.
SHOWN_BY_HAND: dict[str, Hand] = {
    "weights_w4": lambda s: (s["quantized"] * s["bits"] / 8 + s["rest"] * 2) / GIB,
    "weights_share": lambda s: 100 * s["total_gb"] / s["whole_gb"],
    "max_concurrency": lambda s: math.floor((s["usable"] - s["weights"] - s["buffers"]) / s["one"]),
    "decode_time": lambda s: s["sum_gb"] / s["bandwidth_tb"],
    "decode_rate": lambda s: s["batch"] * s["bandwidth_tb"] * 1e3 / (s["weights_gb"] + s["batch"] * s["one_kv_gb"]),
    "prefill_time": lambda s: 1e3 / (s["tflops"] * 1e12 * s["mfu"] / 100) * (
        2 * s["billions"] * 1e9 * s["seq_len"] + 2 * s["layers"] * s["heads"] * s["head_dim"] * s["seq_len"] ** 2),
}  # fmt: skip


def check(kind_name: str, seed: int) -> set[str]:
    """One question: valid, its own key right by hand too, its mistakes told. Returns the mistakes it had."""
    kind = KINDS[kind_name]
    question = drawn(kind, seed)
    if kind_name in BY_HAND:
        # A count of tokens in a cached share is rounded down to whole ones.
        assert question.answer == pytest.approx(BY_HAND[kind_name](dict(question.values)), rel=1e-3)
    else:
        by_hand = SHOWN_BY_HAND[kind_name]({**question.values, **kind.shown(question.values)})
        assert abs(by_hand - question.answer) <= 0.75 * kind.slack(question.answer), "by hand it has to be accepted"
    for text in (f"{question.answer:.6g}", f"{number(question.answer)} {kind.unit}", f"{question.answer!r}"):
        given = question.grade(text)
        assert given.correct and given.mistake is None, text
    assert len(question.mistakes) >= 2
    for name, value in question.mistakes.items():
        given = question.grade(f"{value:.8g} {kind.unit}")
        assert (given.correct, given.mistake) == (False, name)
    return set(question.mistakes)


@pytest.mark.parametrize("kind", list(KINDS))
def test_over_many_seeds_the_key_is_right_and_near_misses_are_named(kind: str) -> None:
    seen: set[str] = set()
    for seed in range(QUICK_SEEDS):
        seen |= check(kind, seed)
    assert seen == set(KINDS[kind].mistakes), "a mistake that never comes up"


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(KINDS))
def test_over_a_thousand_seeds_the_key_is_right_and_near_misses_are_named(kind: str) -> None:
    for seed in range(ALL_SEEDS):
        check(kind, seed)


def test_every_kind_is_checked_by_hand() -> None:
    assert set(BY_HAND) | set(SHOWN_BY_HAND) == set(KINDS)
    assert not set(BY_HAND) & set(SHOWN_BY_HAND)
    assert len(KINDS) >= 18


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("kind", list(KINDS))
def test_the_texts_have_all_their_numbers(kind: str, lang: Any) -> None:
    question = drawn(KINDS[kind], 5)
    ask, solution = question.ask(lang), question.solution(lang)
    assert not re.search(r"[{}]|\bnan\b|\binf\b", ask + solution)
    assert number(question.answer) in solution
    assert (re.search(r"[一-鿿]", ask + solution) is not None) == (lang == "zh")
    assert kind_words(lang)[kind]["title"]
    assert all(mistake_text(lang, name) for name in question.mistakes)


def test_both_languages_have_the_same_texts() -> None:
    english, chinese = words("en"), words("zh")
    for table in ("topic", "say", "mistake", "kind"):
        assert set(english[table]) == set(chinese[table])
    assert set(english["kind"]) == set(KINDS)
    assert all(set(english["kind"][name]) == {"title", "ask", "solution"} for name in KINDS)
    named = {name for kind in KINDS.values() for name in kind.mistakes}
    assert set(english["mistake"]) == named - set(USUAL)
    for lang in LANGUAGES:
        for kind in KINDS.values():
            assert dimension_of(unit_name(lang, kind.unit)) == dimension_of(kind.unit)


def test_the_same_seed_gives_the_same_question_and_another_one_another() -> None:
    kind = KINDS["kv_gqa"]
    assert drawn(kind, 7).values == drawn(kind, 7).values
    assert len({tuple(sorted(drawn(kind, seed).values.items())) for seed in range(50)}) > 40


def test_a_seed_that_is_none_is_refused() -> None:
    for seed in (1.5, True, 10**18):
        with pytest.raises(InputError):
            drawn(KINDS["kv_gqa"], seed)  # type: ignore[arg-type]


def test_units_are_taken_into_account() -> None:
    values = {"layers": 32, "heads": 32, "kv_heads": 8, "head_dim": 128, "seq_len": 131072}
    question = NumericQuestion(KINDS["kv_gqa"], values)
    for right in ("16", "16 GiB", "17.2 GB", "17,179,869,184 B", "16384 MiB", "约 16 GiB"):
        assert question.grade(right).correct, right
    named = {
        "17.2 GiB": "gb_for_gib",
        "17.2": "gb_for_gib",
        "8 GiB": "k_without_v",
        "64": "heads_for_kv_heads",
        "137.4 GiB": None,
        "128 GiB": "bits_for_bytes",
        "512 MiB": "one_layer",
        "3": None,
    }
    for wrong, mistake in named.items():
        given = question.grade(wrong)
        assert (given.correct, given.mistake) == (False, mistake), wrong
    with pytest.raises(InputError):
        question.grade("16 s")


def test_a_count_has_to_be_that_count() -> None:
    question = drawn(KINDS["cards"], 1)
    assert question.grade(f"{question.answer:.0f} cards").correct
    assert question.grade(f"{question.answer:.0f} 张卡").correct
    assert not question.grade(f"{question.answer + 1:.0f}").correct


def test_known_cases() -> None:
    """The figures that the popular statements get wrong."""
    month = {"rate": 10, "input": 500, "output": 500}
    assert NumericQuestion(KINDS["month_tokens"], month).answer == 12_960_000_000
    poor = {"alpha": 0.3, "k": 4}
    assert NumericQuestion(KINDS["spec_tokens"], poor).answer == pytest.approx(1.4251)
    assert NumericQuestion(KINDS["spec_break_even"], poor).answer == pytest.approx(10.6, abs=0.03)
    assert NumericQuestion(KINDS["spec_acceptance"], poor).answer == pytest.approx(10.6, abs=0.03)
    int4 = {"format": "INT4", "bits": 4, "group": 64, "head_dim": 128, "held": 8}
    assert NumericQuestion(KINDS["kv_bits"], int4).answer == 4.5
    assert NumericQuestion(KINDS["kv_sequences"], int4).answer == 28
    int8 = {"format": "INT8", "bits": 8, "group": 64, "head_dim": 64, "held": 8}
    assert NumericQuestion(KINDS["kv_bits"], int8).answer == 8.25
    assert NumericQuestion(KINDS["kv_sequences"], int8).answer == 15
    mla = {"layers": 61, "heads": 128, "head_dim": 128, "rank": 512, "rope": 64, "seq_len": 1}
    assert NumericQuestion(KINDS["kv_mla"], mla).answer * GIB == 70_272
    tpot = {"ttft_ms": 1000, "output": 11, "gap_ms": 10}
    assert NumericQuestion(KINDS["tpot"], tpot).answer == pytest.approx(10.0)
