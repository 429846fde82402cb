"""C05, C06, C25, C26, C27, C38 and C50: every verdict from figures, and the checks themselves on a tiny model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.claims import (
    formats,
    held_weights,
    hidden_loss,
    integer_products,
    kv_admission,
    kv_quality,
    quality_rows,
    run_claim,
    weight_quality,
)
from experiments.claims.made_tensors import made_rows
from experiments.quality.evaluation import Evaluation, evaluate
from experiments.quality.overlooked import Overlooked
from experiments.quality.texts import Text
from experiments.step_probe import PairedProbe, ProbedStep, probe_pair
from ledger.errors import InputError
from tests.core_engine.conftest import make_llama
from tests.core_engine.quant.models import SIZES, use_small_text

TEXT = Text("prose", "It was a bright cold day in April, and the clocks were striking thirteen. " * 4)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Settings of a tiny model whose widths groups of 64 divide."""
    directory = tmp_path_factory.mktemp("tiny")
    make_llama(directory, **SIZES)
    return {"model": str(directory), "kernels": "torch", "threads": 1}


# ---- C05


def held_kv(*, int8: int = 15, int4: int = 28, base: int = 8, predicted: int | None = None) -> Any:
    """A stand-in for the engine that admits so many in every block size."""
    counts = {"bf16": base, "int8": int8, "int4": int4, "int2": 50}

    def admit(settings: Mapping[str, Any], arms: Any) -> list[dict[str, Any]]:
        return [
            {
                "kv_key_axis": None, **arm, "seq_len": 256, "admitted": counts[arm["kv_dtype"]],
                "predicted": counts[arm["kv_dtype"]] if predicted is None else predicted,
                "open_block_bytes_a_sequence": 2**20,
            }
            for arm in arms
        ]  # fmt: skip

    return admit


@pytest.mark.parametrize(
    ("admit", "verdict", "said"),
    [
        (held_kv(int8=16, int4=32), "holds", "int8 16"),
        (held_kv(), "holds with a limit", "15"),
        (held_kv(int8=11, int4=28), "does not hold here", "11"),
        (held_kv(predicted=15), "does not hold here", "the ledger says 15"),
        (held_kv(base=0, int8=0, int4=0), "undecided", "no sequence"),
    ],
)
def test_c05_is_judged_by_what_is_admitted(admit: Any, verdict: str, said: str) -> None:
    found = kv_admission.check({}, admit)
    assert found["verdict"] == verdict and said in found["reason"]


def test_quantized_caches_hold_15_and_28_sequences_where_fp16_held_8() -> None:
    values = {row["name"]: row["value"] for row in formats.kv_rows()}
    assert [values[f"sequences held, {dtype} KV"] for dtype in ("fp16", "int8", "int4")] == [8, 15, 28]
    fp16, int8, int4 = (values[f"llama-3.1-8b on an L4, {dtype} KV"] for dtype in ("fp16", "int8", "int4"))
    assert fp16 < int8 <= 2 * fp16 < int4 < 4 * fp16


def test_c05_admits_on_the_real_scheduler_what_the_ledger_says(tiny: dict[str, Any]) -> None:
    found = run_claim("C05", options={"settings": {**tiny, "kv_memory_mib": 1}})
    measured = [row for row in found["evidence"] if row["provenance"] == "measured"]
    assert len(measured) == 2 * len(kv_admission.FORMATS)
    assert all(0 < row["admitted"] == row["predicted"] for row in measured)
    by_name = {(row["kv_dtype"], row["kv_key_axis"], row["block_size"]): row for row in measured}
    assert by_name["int4", "channel", 64]["bits_per_element"] < by_name["int4", "channel", 16]["bits_per_element"]
    assert by_name["bf16", None, 64]["open_block_bytes_a_sequence"] == 0
    tail = by_name["int8", None, 64]["open_block_bytes_a_sequence"]
    assert tail == 64 * 3 * 2 * 2 * 16 * 4  # tokens x layers x keys and values x heads x head size x float32
    assert found["verdict"] in ("holds with a limit", "does not hold here")


# ---- C06 and C50


def text_row(change_pct: float, spread: float = 0.1, **fields: Any) -> dict[str, Any]:
    """A text's row with an interval of change_pct +- spread."""
    bounds = [change_pct - spread, change_pct + spread]
    return {
        "text": "all texts", "tokens": 100, "baseline_perplexity": 20.0, "perplexity": 20 * (1 + change_pct / 100),
        "change_pct": change_pct, "change_ci95": bounds, "kl_mean": 0.01, "kl_ci95": [0.0, 0.02],
        "top1_agreement": 0.95, "top1_ci95": [0.9, 1.0], **fields,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("int8", "channel", "token", "verdict"),
    [
        (0.0, 0.5, 0.8, "holds"),
        (0.0, 0.5, 4.0, "holds with a limit"),
        (3.0, 0.5, 4.0, "does not hold here"),
        (1.0, 0.5, 4.0, "undecided"),
    ],
)
def test_c06_is_judged_format_by_format(int8: float, channel: float, token: float, verdict: str) -> None:
    rows = dict(zip(kv_quality.COSTS, map(text_row, (int8, channel, token)), strict=True))
    assert kv_quality.judge_costs(rows, text_row(token - channel))[0] == verdict


@pytest.mark.parametrize(("change", "word"), [(5.0, "worse"), (-5.0, "better"), (0.0, "no different")])
def test_c06_says_how_keys_per_token_compare(change: float, word: str) -> None:
    rows = {label: text_row(0.0) for label in kv_quality.COSTS}
    assert f"Keys per token are {word}" in kv_quality.judge_costs(rows, text_row(change))[1]


@pytest.mark.parametrize(
    ("plain", "channel", "outliers", "verdict", "said"),
    [
        (5.0, 3.0, 2.0, "holds", "does not collapse"),
        (900.0, 40.0, 6.0, "holds with a limit", "works with int2, keys per channel, outliers apart"),
        (900.0, 60.0, 40.0, "holds with a limit", "costs more than 10 %"),
        (900.0, 600.0, 400.0, "does not hold here", "collapses"),
        (900.0, 600.0, 100.0, "undecided", "best protection"),
    ],
)
def test_c50_is_judged_by_plain_and_protected(
    plain: float, channel: float, outliers: float, verdict: str, said: str
) -> None:
    rows = dict(zip(kv_quality.TWO_BITS, map(text_row, (plain, channel, outliers, channel)), strict=True))
    word, reason = kv_quality.judge_two_bits(rows)
    assert word == verdict and said in reason


def on(tiny: Mapping[str, Any]) -> Any:
    """Evaluations of the tiny model, on its own text."""
    return lambda arms, base, items, _: evaluate(arms, base, items, [TEXT])


@pytest.mark.slow
@pytest.mark.parametrize("claim", ["C06", "C50"])
def test_kv_claims_run_on_a_tiny_model(claim: str, tiny: dict[str, Any]) -> None:
    options = {"settings": {**tiny, "kv_memory_mib": 4}}
    found = run_claim(claim, options=options, evaluate=on(tiny))
    arms = kv_quality.COSTS if claim == "C06" else kv_quality.TWO_BITS
    parts = [row["part"] for row in found["evidence"]]
    assert parts[: len(arms)] == list(arms)
    assert found["verdict"] in ("holds", "holds with a limit", "does not hold here", "undecided")
    assert all(row["tokens"] == len(TEXT.content) - 1 and row["kl_mean"] > 0 for row in found["evidence"])
    if claim == "C06":
        assert parts[-1].endswith("against int4, keys per channel")
        kl = {row["part"]: row["kl_mean"] for row in found["evidence"]}
        assert kl[kv_quality.INT8] < kl[kv_quality.CHANNEL]


# ---- C25


def probed(ratio: float, products: float, held: tuple[int, int], noise: float = 0.002) -> Any:
    """A probe whose w8a8 steps and linear layers take so much of the others' time."""

    def probe(steps: Any, arms: Any, repeats: int) -> PairedProbe:
        base = [1.0 + 0.002 * (i % 3) for i in range(repeats)]

        def of(share: float) -> tuple[tuple[list[float], list[float]], ...]:
            return tuple((base, [b * share * (1 + noise * (i % 4)) for i, b in enumerate(base)]) for _ in steps)

        return PairedProbe(of(ratio), "compiled", arms[0]["dtype"], 2, of(products), held)

    return probe


@pytest.mark.parametrize(
    ("probe", "verdict"),
    [
        (probed(0.5, 0.4, (200, 102)), "holds"),
        (probed(0.8, 0.7, (200, 102)), "holds with a limit"),
        (probed(0.5, 0.4, (200, 122)), "holds with a limit"),
        (probed(1.3, 1.5, (200, 102)), "does not hold here"),
        (probed(0.9, 0.9, (200, 102), noise=1.0), "undecided"),
    ],
)
def test_c25_is_judged_by_bytes_and_by_the_linear_layers_of_a_prefill(probe: Any, verdict: str) -> None:
    found = integer_products.check({}, probe)
    assert found["verdict"] == verdict
    assert len([row for row in found["evidence"] if row.get("of")]) == 2 * 2 * len(integer_products.STEPS)


def test_c25_shows_that_dense_int8_is_twice_fp16_on_data_centre_cards() -> None:
    found = integer_products.check({"settings": {"dtype": "fp32"}}, probed(0.5, 0.4, (200, 102)))
    assert [row["ratio"] for row in found["evidence"] if "ratio" in row] == pytest.approx([2.0, 2.0], rel=0.01)
    assert {row["dtype"] for row in found["evidence"] if "dtype" in row} == {"fp32"}


@pytest.mark.parametrize(
    ("flags", "said"),
    [({"avx2"}, "vpmaddwd"), ({"avx2", "avx512_vnni"}, "VNNI"), ({"asimddp"}, "dot"), (set(), "unknown")],
)
def test_c25_names_the_integer_instructions(flags: set[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core_engine.environment.cpu_flags", lambda: frozenset(flags))
    assert said in integer_products.instructions()


def test_c25_runs_on_a_tiny_model(tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_text(monkeypatch, tmp_path)
    monkeypatch.setattr(integer_products, "STEPS", (ProbedStep("prefill", 1, 16),))
    found = run_claim("C25", options={"settings": {**tiny, "dtype": "fp32"}, "repeats": 2})
    held = found["evidence"][0]
    # Linear layers in a byte instead of four; the rest stays.
    assert held["baseline_bytes"] > 2 * held["candidate_bytes"] > held["baseline_bytes"] / 2
    assert found["evidence"][1]["values"] == ["none", "w8a8"]


def test_linear_layers_are_timed_apart_in_compiled_code(tiny: dict[str, Any], compiled_kernels: None) -> None:
    arms = [{**tiny, "kernels": "compiled", "dtype": "fp32", "weights": name} for name in ("none", "w8a16")]
    found = probe_pair([ProbedStep("decode", 1, 5)], arms, 2)
    assert all(0 < part < whole for part, whole in zip(found.products[0][0], found.seconds[0][0], strict=True))
    assert found.weights_bytes[0] > found.weights_bytes[1]


# ---- C26


def evaluation(rows: Mapping[str, tuple[float, float]]) -> Any:
    """A finished evaluation of candidates with (change of perplexity in %, change of accuracy in points)."""
    made = [
        SimpleNamespace(
            candidate=label, slice="all", items=100, accuracy=0.5, ci95=(0.4, 0.6), lost=3, gained=1,
            change_points=points, change_ci95=(points - 2, points + 2), logprob_change=0.0, logprob_ci95=None,
            scored_by="accuracy", verdict="inconclusive",
        )
        for label, (_, points) in rows.items()
    ]  # fmt: skip
    return SimpleNamespace(rows=made, text_rows={label: [text_row(change)] for label, (change, _) in rows.items()})


def four_bits(awq: float, gptq: float) -> Any:
    """Evaluations in which these are the changes of perplexity against rounding."""

    def run(arms: Mapping[str, Any], base: Mapping[str, Any], items: Any, texts: Any) -> Any:
        if base.get("weights") == weight_quality.RTN:
            return evaluation({weight_quality.AWQ: (awq, 1.0), weight_quality.GPTQ: (gptq, 0.5)})
        return evaluation(dict.fromkeys(arms, (30.0, -5.0)))

    return run


@pytest.mark.parametrize(
    ("awq", "gptq", "ratio", "verdict"),
    [
        (-5.0, -3.0, 0.4, "holds"),
        (-5.0, 0.0, 0.4, "holds with a limit"),
        (2.0, 3.0, 0.4, "does not hold here"),
        (-5.0, -3.0, 1.1, "does not hold here"),
        (0.0, 3.0, 0.4, "undecided"),
    ],
)
def test_c26_is_judged_in_pairs_and_on_made_tensors(awq: float, gptq: float, ratio: float, verdict: str) -> None:
    made = [{"part": "made", "weights": "w4a16-awq", "ratio": ratio}]
    found = weight_quality.check({"num_requests": 1}, four_bits(awq, gptq), lambda: made)
    assert found["verdict"] == verdict
    if ratio < 1:
        assert "4-bit before" in found["reason"] and "as stored" in found["reason"]
    other = weight_quality.check({"num_requests": 1, "settings": {"model": "x"}}, four_bits(awq, gptq), lambda: made)
    assert "4-bit before" not in other["reason"] and "as stored" not in other["reason"]


@pytest.mark.parametrize("seed", [0, 1])
def test_awq_and_gptq_win_on_tensors_made_for_what_they_claim(seed: int) -> None:
    ratios = {row["weights"]: row["ratio"] for row in made_rows(seed)}
    assert ratios["w4a16-awq"] < 0.6 and ratios["w4a16-gptq"] < 0.3


def test_a_7b_fits_the_consumer_card_in_four_bits_with_room_to_spare() -> None:
    shares = [row["share"] for row in weight_quality._on_a_card()]
    assert shares[0] > 0.5 and shares[1] < 0.2


def test_c26_runs_on_a_tiny_model(tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_text(monkeypatch, tmp_path)
    options = {"settings": {**tiny, "kv_memory_mib": 4}, "num_requests": 1}
    found = run_claim("C26", options=options, evaluate=on(tiny))
    parts = [row["part"] for row in found["evidence"]]
    assert {"w4a16-rtn", "w4a16-awq", "w4a16-gptq", "w4a16-gptq against w4a16-rtn"} <= set(parts)
    assert "w4a16-awq against w4a16-rtn, all items" in parts and "as stored" not in parts


# ---- C27


def bytes_held(shares: Mapping[str, float], *, off_by: int = 0) -> Any:
    """A stand-in for the engine that holds these shares of a million bytes."""

    def hold(settings: Mapping[str, Any], arms: Any) -> list[dict[str, Any]]:
        return [
            {
                "model": "m", "head_weights": "16bit", **arm, "held_bytes": size, "predicted_bytes": size + off_by,
            }
            for arm in arms
            for size in (int(1e6 * shares[arm["weights"]]),)
        ]  # fmt: skip

    return hold


NEAR = {"none": 1.0, "w8a8": 0.51, "w4a16-rtn": 0.27, "w4a16-awq": 0.27, "w4a16-gptq": 0.27}
FAR = {"none": 1.0, "w8a8": 0.61, "w4a16-rtn": 0.42, "w4a16-awq": 0.42, "w4a16-gptq": 0.42}


@pytest.mark.parametrize(
    ("shares", "off", "off_by", "verdict"),
    [
        (NEAR, [], 0, "holds"),
        (NEAR, ["llama-3.2-1b w4a16 44 %"], 0, "holds with a limit"),
        (FAR, [], 0, "holds with a limit"),
        (FAR, ["a", "b"], 0, "does not hold here"),
        (NEAR, [], 1, "undecided"),
    ],
)
def test_c27_is_judged_by_the_bytes_held(
    shares: Mapping[str, float], off: list[str], off_by: int, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_weights, "weight_rows", lambda: ([{"provenance": "computed"}] * 2, off))
    assert held_weights.check({}, bytes_held(shares, off_by=off_by))["verdict"] == verdict


def test_four_bit_weights_are_near_a_quarter_for_a_large_model_only() -> None:
    rows, off = formats.weight_rows()
    share = {row["name"]: row["value"] for row in rows}
    assert share["llama-3.1-70b, w4a16"] < 29
    assert share["llama-3.1-8b, w4a16"] > 35
    assert share["smollm2-135m, w4a16"] > 40
    assert share["llama-3.1-70b, w8a8"] < 52 < 60 < share["smollm2-135m, w8a8"]
    assert 0 < len(off) < len(rows) and {row["provenance"] for row in rows} == {"computed"}


def test_c27_holds_a_tiny_models_bytes_as_the_ledger_says(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled_kernels: None
) -> None:
    use_small_text(monkeypatch, tmp_path)
    found = run_claim("C27", options={"settings": {**tiny, "kernels": "compiled"}})
    rows = {row["part"]: row for row in found["evidence"] if row["provenance"] == "measured"}
    assert len(rows) == len(held_weights.ARMS)
    assert all(row["held_bytes"] == row["predicted_bytes"] == sum(row["by_part"].values()) for row in rows.values())
    assert rows["weights=w8a8"]["quantizing"]["calibration_tokens"] > 0
    assert rows["weights=none"]["quantizing"] is None and rows["weights=none"]["share"] == 1
    assert rows["weights=w4a16-rtn, int8 head"]["share"] < rows["weights=w4a16-rtn"]["share"] < 1
    assert all(row["fits_for"] for row in rows.values())


# ---- C38


def looked(verdict: str) -> Overlooked:
    """What the finder says."""
    return Overlooked(verdict, f"it was {verdict}", 0)


@pytest.mark.parametrize(
    ("here", "built", "verdict"),
    [
        ("found", "found", "holds"),
        ("none", "found", "holds with a limit"),
        ("not confirmed", "found", "holds with a limit"),
        ("not confirmed", "none", "undecided"),
        ("none", "none", "does not hold here"),
    ],
)
def test_c38_is_judged_by_what_the_finder_confirms(here: str, built: str, verdict: str) -> None:
    word, reason = hidden_loss.judge(looked(here), looked(built))
    assert word == verdict and f"it was {here}" in reason
    assert ("constructed" in reason) == (here != "found")


def test_c38_finds_the_slice_of_the_constructed_model_and_says_that_a_tiny_model_has_none(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_text(monkeypatch, tmp_path)
    options = {"settings": {**tiny, "kv_memory_mib": 4}, "num_requests": 2}
    found = run_claim("C38", options=options, evaluate=on_items_only)
    assert found["verdict"] == "holds with a limit"
    here, built = found["evidence"][-2:]
    assert here["verdict"] != "found" and built["verdict"] == "found" and built["slice"] == "rare"
    for half in (built["chosen_on"], built["confirmed_on"]):
        assert half["slice_change_points"] <= -8 and abs(half["mean_change_points"]) <= 2
    labelled = [row for row in found["evidence"] if "model" in row]
    assert {row["part"].rsplit(", ", 1)[-1] for row in labelled} == {"common", "rare", "all items"}


def on_items_only(arms: Any, base: Any, items: Any, _: Any) -> Evaluation:
    """Evaluations of short items alone."""
    return evaluate(arms, base, [item for item in items if len(item.prompt) < 200], [])


# ---- what is scored


def test_num_requests_makes_texts_and_slices_smaller() -> None:
    everything, few = quality_rows.items({}), quality_rows.items({"num_requests": 3})
    slices = {item.slice for item in everything}
    assert "long_context" not in slices and {item.slice for item in few} == slices and len(few) == 3 * len(slices)
    assert [len(text.content) for text in quality_rows.texts({"num_requests": 2})] == [2000, 2000]
    assert all(len(text.content) > 2000 for text in quality_rows.texts({}))


@pytest.mark.parametrize("claim", ["C05", "C06", "C25", "C26", "C27", "C38", "C50"])
def test_the_claims_refuse_unknown_options(claim: str) -> None:
    with pytest.raises(InputError, match="option"):
        run_claim(claim, options={"nothing": 1})
