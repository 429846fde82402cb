"""What the calculator pages draw: the views over ledger, roofline and cost, and the model they are asked about."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from typing import Any

import pytest

from experiments.calculator_commands import kv_command, ledger_command
from experiments.cli import run as command_line
from experiments.cost_view import CostSetting, cost_view
from experiments.kv_view import kv_view, weights_known
from experiments.ladders import concurrencies_around, lengths_around
from experiments.ledger_view import compared, ledger_rows, ledger_view, surface_of
from experiments.model_source import MOST_IN_ADDRESS, ModelSource, packed, unpacked
from experiments.roofline_view import PHASES, StepSetting, bars_of, roofline_view
from ledger.capacity import Deployment, fits, max_concurrency
from ledger.errors import InputError
from ledger.hardware import accelerator
from ledger.model_spec import load_model_spec

GIB = 2**30


def deployment(model: str = "llama-3.1-8b", gpu: str = "l4", **changes: Any) -> Deployment:
    usual: dict[str, Any] = {"concurrency": 4, "capacity_bytes": accelerator(gpu).memory_bytes}
    return Deployment(load_model_spec(model), **(usual | changes))


# -- the ledger --------------------------------------------------------------------------------------------------------


def test_the_bar_adds_up_to_the_total_in_every_precision() -> None:
    for item in ledger_view(deployment()).precisions:
        assert sum(segment["bytes"] for segment in item.segments) == item.ledger.total_bytes


def test_the_chosen_format_is_compared_with_the_usual_three_once_each() -> None:
    assert compared("bf16") == ("bf16", "int8", "int4")
    assert compared("fp16") == ("fp16", "int8", "int4")
    assert set(compared("fp8")) == {"bf16", "fp8", "int8", "int4"} and compared("int2")[-1] == "int2"


def test_scales_cost_sequences() -> None:
    view = ledger_view(deployment())
    bf16, _, int4 = view.precisions
    assert bf16.without_scales == bf16.max_concurrency
    assert int4.without_scales > int4.max_concurrency > 3 * bf16.max_concurrency  # type: ignore[operator]


def test_every_remedy_makes_it_fit_and_a_fit_needs_none() -> None:
    over = deployment(concurrency=8)
    view = ledger_view(over)
    assert view.chosen.fits is False and view.remedies
    for remedy in view.remedies:
        assert fits(deployment(**({"concurrency": 8} | {remedy.field: remedy.value}))), remedy
    assert ledger_view(deployment(concurrency=1)).remedies == ()


def test_room_over_bytes_of_a_sequence_is_the_most_sequences() -> None:
    view = ledger_view(deployment())
    each = view.chosen.sequence_bytes + view.chosen.state_bytes
    assert view.kv_room_bytes is not None and view.kv_room_bytes // each == view.chosen.max_concurrency


def test_terms_of_a_model_with_windows_and_of_a_latent_add_up_to_the_cache() -> None:
    for model in ("gemma-2-9b", "deepseek-v3", "llama-3.1-8b"):
        view = ledger_view(deployment(model, "h200-sxm", kv_dtype="int4"))
        assert sum(term.token_bytes * term.kept for term in view.kv_terms) == view.chosen.sequence_bytes
        for term in view.kv_terms:
            assert term.form != "bytes"


def test_the_csv_has_every_account_of_every_precision() -> None:
    view = ledger_view(deployment())
    rows = {(row["kv_dtype"], row["what"]): row["value"] for row in ledger_rows(view)}
    assert rows["bf16", "total"] == view.chosen.ledger.total_bytes
    assert rows["int4", "max_concurrency"] == view.precisions[-1].max_concurrency


def test_the_surface_has_the_chosen_cell_and_frontiers_that_agree_with_the_ledger() -> None:
    d = deployment(seq_len=5000)
    view = ledger_view(d)
    found = surface_of(d, view.kv_room_bytes, view.precisions[-1].max_concurrency)
    assert 5000 in found.lengths and 4 in found.concurrencies
    assert len(found.cells) == len(found.lengths) * len(found.concurrencies) >= 200
    column = found.lengths.index(5000)
    for line, item in zip(found.frontiers, view.precisions, strict=True):
        within = [count for count in found.concurrencies if count <= (item.max_concurrency or 0)]
        assert line["rows"][column] == len(within)
        assert line["rows"] == sorted(line["rows"], reverse=True)


@pytest.mark.parametrize("seq_len", [1, 100, 4096, 5000, 131_072, 2**24])
@pytest.mark.parametrize("longest", [0, 1024, 131_072])
def test_axes_hold_the_chosen_value_and_stay_within_what_can_be_drawn(seq_len: int, longest: int) -> None:
    lengths = lengths_around(seq_len, longest)
    assert seq_len in lengths and len(lengths) <= 15 and list(lengths) == sorted(set(lengths))
    for most in (None, 0, 7, 100_000):
        counts = concurrencies_around(seq_len, most)
        assert seq_len in counts and len(counts) <= 14


# -- the cache alone ---------------------------------------------------------------------------------------------------

KV = {"seq_len": 131_072, "concurrency": 1, "kv_dtype": "bf16", "kv_group_size": 64, "block_size": 16, "tp": 1, "pp": 1}


def test_the_interview_question_without_any_file() -> None:
    """32 layers, 8 KV heads x 128, 128K tokens: 17,179,869,184 B = 16 GiB (claim C45)."""
    spec = ModelSource(fields=(32, 8, 128)).spec()
    view = kv_view(spec, 24 * GIB, KV)
    assert not weights_known(spec)
    assert view.chosen.total_bytes == 17_179_869_184 and view.chosen.at_most == 1
    assert [row.sequence_bytes * 16 for row in view.precisions] == [
        16 * 16 * GIB,
        264 * GIB // 2 * 1,
        144 * GIB // 2 * 1,
    ]


# -- the model asked about ---------------------------------------------------------------------------------------------

TINY = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 100}  # fmt: skip


def test_a_config_comes_back_from_its_address() -> None:
    text = packed(json.dumps(TINY, indent=4))
    assert text is not None and len(text) < MOST_IN_ADDRESS
    assert json.loads(unpacked(text) or "") == TINY


def test_what_is_no_json_or_too_long_has_no_address() -> None:
    assert packed("{") is None
    assert packed(json.dumps({str(place): place**5 for place in range(2000)})) is None


@pytest.mark.parametrize("text", ["", "%%%", "AAAA", "x" * 4000])
def test_an_address_that_holds_no_config_gives_none(text: str) -> None:
    assert unpacked(text) is None


def test_an_address_that_unpacks_to_more_than_a_config_may_have_gives_none() -> None:
    bomb = base64.urlsafe_b64encode(zlib.compress(b'"' + b"a" * (64 * 2**20) + b'"')).decode()
    assert unpacked(bomb) is None


def test_a_source_without_a_model_is_refused_and_a_bad_config_names_its_field() -> None:
    with pytest.raises(InputError):
        ModelSource().spec()
    with pytest.raises(InputError, match="num_hidden_layers"):
        ModelSource(config=json.dumps(TINY | {"num_hidden_layers": -1})).spec()


# -- the roofline ------------------------------------------------------------------------------------------------------

STEP = StepSetting(batch=8, seq_len=4096, weights="bf16", kv_dtype="bf16", tp=1)


def test_linear_layers_climb_with_the_batch_and_attention_does_not() -> None:
    """Claim C02: attention over KV stays below the ridge at any batch under grouped heads."""
    view = roofline_view(load_model_spec("llama-3.1-8b"), accelerator("l4"), PHASES, STEP)
    linear, attention = ([point["intensity"] for point in line["points"]] for line in view.lines)
    assert linear == sorted(linear) and linear[0] < view.ridge < linear[-1]
    assert max(attention) == pytest.approx(min(attention)) and max(attention) < view.ridge / 50
    assert view.crossover_batch is not None


def test_shares_of_a_phase_add_up_and_the_bars_keep_them() -> None:
    view = roofline_view(load_model_spec("deepseek-v3"), accelerator("h100"), PHASES, STEP)
    for phase in PHASES:
        bars = bars_of(view.points, phase)
        assert sum(bar["share"] for bar in bars) == pytest.approx(1)
        assert bars[-1]["is_rest"] and len(bars) == 13


def test_the_batch_axis_reaches_the_crossover() -> None:
    view = roofline_view(load_model_spec("deepseek-v3"), accelerator("h100"), ("decode",), STEP)
    assert view.crossover_batch is not None and view.crossover_batch > 4096
    assert view.lines[0]["points"][-1]["batch"] >= view.crossover_batch


# -- cost --------------------------------------------------------------------------------------------------------------


def cost(**changes: Any) -> CostSetting:
    usual: dict[str, Any] = {
        "requests_per_s": 10.0, "input_tokens": 500, "output_tokens": 500, "weights": "bf16", "kv_dtype": "bf16",
        "tp": 1, "price_per_device_hour": 1.0, "utilisation": 0.7,
    }  # fmt: skip
    return CostSetting(**(usual | changes))


def test_a_lever_changes_the_work_and_all_together_are_the_last_row() -> None:
    levers = (("weights", "fp8"), ("routing", 0.3))
    view = cost_view(load_model_spec("llama-3.1-8b"), accelerator("h100"), cost(levers=levers))
    base, fp8, routed, together = view.rows
    assert base["change_pct"] is None and routed["change_pct"] == pytest.approx(-27)
    assert fp8["cost"] < base["cost"] and together["cost"] < min(fp8["cost"], routed["cost"])
    assert view.best in (fp8, routed) and base["devices"] * 720 == pytest.approx(base["cost"])


def test_a_run_alone_knows_no_card_and_refuses_levers_of_a_step() -> None:
    setting = cost(source="run", tokens_per_s_per_device=1000.0, levers=(("routing", 0.5),))
    view = cost_view(load_model_spec("llama-3.1-8b"), accelerator("h100"), setting)
    assert view.report["provenance"] == "measured" and view.rows[0]["cards"] == 8
    with pytest.raises(InputError):
        cost_view(load_model_spec("llama-3.1-8b"), accelerator("h100"), cost(
            source="run", tokens_per_s_per_device=1000.0, levers=(("weights", "fp8"),)
        ))  # fmt: skip


# -- the command lines -------------------------------------------------------------------------------------------------


def test_the_command_line_gives_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    settings = {
        **KV, "seq_len": 5000, "concurrency": 3, "kv_dtype": "int4", "kv_group_size": 32, "gpu": "l4",
        "weights": "w4a16", "engine": "sglang", "memory_fraction": 0.8, "max_num_batched_tokens": 2048,
    }  # fmt: skip
    line = ledger_command(ModelSource(preset="llama-3.1-8b"), settings)
    assert command_line([*line.split()[1:], "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    given = {key: value for key, value in settings.items() if key != "gpu"}
    d = deployment(**given)
    assert report["total_bytes"] == ledger_view(d).chosen.ledger.total_bytes
    assert report["max_concurrency"] == max_concurrency(d)


def test_the_kv_command_line_gives_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    line = kv_command(ModelSource(fields=(32, 8, 128)), KV)
    assert command_line([*line.split()[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kv_bytes_total"] == 17_179_869_184


def test_a_roofline_knows_how_many_sequences_the_cards_memory_holds():
    spec = load_model_spec("llama-3.1-8b")
    held = {
        kv: roofline_view(spec, accelerator("l4"), PHASES, replace(STEP, kv_dtype=kv)).held for kv in ("bf16", "int8")
    }
    deployed = [
        Deployment(spec, kv_dtype=kv, seq_len=STEP.seq_len, capacity_bytes=accelerator("l4").memory_bytes)
        for kv in held
    ]
    assert list(held.values()) == [max_concurrency(one) for one in deployed]
    assert held["int8"] > held["bf16"]
