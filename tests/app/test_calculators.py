"""The calculator pages: every preset, both languages, the address, a config of one's own, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from app.i18n import catalogue, translate
from experiments.model_source import packed
from ledger.buffers import other_buffers
from ledger.engines import ENGINES
from ledger.layers import KIND_WORDS
from ledger.presets import presets
from ledger.weights import PARTS
from tests.app.alone import PATIENCE_S, page_alone, texts
from tests.app.conftest import Sample
from tests.grids import representative

PAGES = ("ledger", "roofline", "cost")


def charts_in(app: AppTest) -> int:
    return len(app.get("arrow_vega_lite_chart")) + len(app.get("vega_lite_chart"))


def address(app: AppTest) -> dict[str, str]:
    return {name: value[0] if isinstance(value, list) else value for name, value in app.query_params.items()}


@pytest.mark.parametrize(("page", "name"), representative(PAGES, presets()))
def test_every_preset_draws_on_the_default_card(home: Path, name: str, page: str) -> None:
    app = page_alone(page, model=name)
    assert not app.error
    assert address(app)["model"] == name
    assert charts_in(app) >= {"ledger": 2, "roofline": 4, "cost": 0}[page]


@pytest.mark.parametrize("gpu", ["t4", "b300", "mi250x", "gaudi-3", "tpu-v5e"])
def test_cards_of_every_vendor_can_be_chosen(home: Path, gpu: str) -> None:
    app = page_alone("ledger", gpu=gpu, model="smollm2-135m")
    assert not app.error and address(app)["gpu"] == gpu


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize(
    ("page", "keys"),
    [
        ("ledger", ("ledger.bars", "ledger.surface", "ledger.formulas", "ledger.trap", "ledger.weights")),
        ("roofline", ("roofline.roof", "roofline.operator", "roofline.times", "roofline.crossover", "ledger.trap")),
        ("cost", ("cost.levers", "cost.month", "cost.request", "cost.why_title", "ledger.trap")),
    ],
)
def test_a_page_has_its_question_and_sections_in_both_languages(
    home: Path, page: str, keys: tuple[str, ...], lang: str
) -> None:
    app, words = page_alone(page, lang=lang), catalogue(lang)
    assert app.title[0].value == words[f"{page}.question"]
    assert [key for key in keys if f"## {words[key]}" not in texts(app)] == []
    assert f"{words['computed']}]" in texts(app)


def test_every_name_that_the_figures_bring_has_a_text() -> None:
    names = [f"part.{part}" for part in PARTS] + [f"kind.{kind}" for kind in KIND_WORDS]
    names += [f"engine.{engine}" for engine in ENGINES]
    accounts = {"weights", "vision_weights", "kv_cache", "state", "activations"}
    accounts |= {buffer.name for engine in ENGINES for buffer in other_buffers(engine, 2, "cuda")}
    names += [f"ledger.account_{account}" for account in accounts]
    assert [name for name in names if name not in catalogue("en")] == []


# -- Ledger & KV -------------------------------------------------------------------------------------------------------


def test_the_verdict_says_what_is_needed_what_is_usable_and_which_sequence_no_longer_fits(home: Path) -> None:
    app = page_alone("ledger", model="llama-3.1-8b", gpu="l4", concurrency="4")
    said = texts(app)
    assert translate("en", "ledger.fits") in said
    assert "Needs **19." in said and "no longer fits" in said
    assert "INT8 holds **" in said and "INT4 holds **" in said


def test_what_does_not_fit_says_what_would_make_it_fit(home: Path) -> None:
    said = texts(page_alone("ledger", model="llama-3.1-70b", gpu="h100-sxm", concurrency="1"))
    assert translate("en", "ledger.does_not_fit") in said
    assert "It would fit with" in said and "cards** (tensor parallel)" in said


def test_the_formulas_have_the_numbers_put_in(home: Path) -> None:
    said = texts(page_alone("ledger", model="llama-3.1-8b", seq_len="4096", concurrency="4"))
    assert "2 × 32 layers × 8 KV heads × 128 × 2 B = 131,072 B" in said
    assert "4,096 tokens × 131,072 B = 536,870,912 B = 0.50 GiB" in said
    assert "4 × 536,870,912 B = 2.00 GiB" in said


def test_bits_of_scales_are_shown_with_what_they_cost(home: Path) -> None:
    app = page_alone("ledger", model="llama-3.1-8b", concurrency="4")
    frame = next(item.value for item in app.dataframe if "Without scales" in item.value.columns)
    assert list(frame["Bits an element"]) == ["16", "8 + 0.25", "4 + 0.5"]
    assert list(frame["KV a sequence, MiB"]) == ["512", "264", "144"]
    most, without = frame["Most sequences"], frame["Without scales"].astype(int)
    assert most[0] == without[0] and most[2] < without[2]


def test_every_input_is_restored_from_the_address(home: Path) -> None:
    asked = {
        "model": "qwen3-8b",
        "gpu": "h100-sxm",
        "weights": "w4a16",
        "kv_dtype": "int8",
        "seq_len": "5000",
        "concurrency": "7",
        "tp": "2",
        "pp": "2",
        "engine": "sglang",
        "fraction_sglang": "80",
        "block_size": "32",
        "kv_group": "32",
        "step_tokens": "2048",
    }
    app = page_alone("ledger", **asked)
    assert not app.error
    assert {name: address(app)[name] for name in asked} == asked
    command = app.code[0].value
    for part in (
        "qwen3-8b",
        "--gpu h100-sxm",
        "--seq-len 5000",
        "--concurrency 7",
        "--kv-dtype int8",
        "--tp 2",
        "--pp 2",
    ):
        assert part in command
    assert "--kv-group-size 32" in command and "--memory-fraction 0.8" in command and "--engine sglang" in command


def test_values_that_are_not_accepted_are_passed_over(home: Path) -> None:
    app = page_alone(
        "ledger", model="nope", gpu="nope", seq_len="-1", concurrency="many", kv_dtype="int3", fraction_vllm="0"
    )
    assert not app.error
    assert address(app)["model"] == "llama-3.1-8b" and address(app)["kv_dtype"] == "bf16"
    said = app.warning[0].value
    for part in ("model=nope", "gpu=nope", "concurrency=many", "kv\\_dtype=int3", "fraction\\_vllm=0"):
        assert part in said
    app.run()
    assert app.warning[0].value == said
    next(item for item in app.selectbox if item.key == "ledger-gpu").set_value("t4").run()
    assert "gpu=nope" not in app.warning[0].value and "model=nope" in app.warning[0].value


TWO_PAGES = """
import streamlit as st
from app.views import cost, ledger
(cost if st.checkbox("other") else ledger).page()
"""


def test_inputs_are_as_they_were_left_after_another_page(home: Path) -> None:
    app = AppTest.from_string(TWO_PAGES, default_timeout=PATIENCE_S).run()
    next(item for item in app.selectbox if item.key == "ledger-gpu").set_value("h100-sxm").run()
    next(item for item in app.select_slider if item.key == "ledger-seq_len").set_value(8192).run()
    app.checkbox[0].check().run()
    assert address(app)["gpu"] == "h100-sxm"  # the same address here; the navigation of the app drops it
    app.query_params.clear()
    app.checkbox[0].uncheck().run()
    assert not app.exception
    assert address(app)["gpu"] == "h100-sxm" and address(app)["seq_len"] == "8192"


def test_a_number_between_the_rungs_can_be_typed(home: Path) -> None:
    app = page_alone("ledger")
    field = next(item for item in app.number_input if item.label == translate("en", "ledger.exact_seq_len"))
    field.set_value(5000).run()
    assert not app.exception and address(app)["seq_len"] == "5000"


def test_typed_numbers_answer_the_interview_question(home: Path) -> None:
    app = page_alone(
        "ledger", model="typed", layers="32", kv_heads="8", head_dim="128", seq_len="131072", concurrency="1"
    )
    said = texts(app)
    assert "17.18 GB" in said and "16.00 GiB" in said
    assert translate("en", "ledger.unknown_weights") in said
    assert "trilemma kv --layers 32 --kv-heads 8 --head-dim 128 --seq-len 131072" in app.code[0].value


TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 2048,
}


def pasted(page: str, text: str, **params: str) -> AppTest:
    app = page_alone(page, model="config", **params)
    app.text_area[0].set_value(text).run()
    assert not app.exception
    return app


@pytest.mark.parametrize("page", PAGES)
def test_a_pasted_config_is_computed_and_goes_into_the_address(home: Path, page: str) -> None:
    app = pasted(page, json.dumps(TINY, indent=2))
    assert not app.error
    again = page_alone(page, model="config", config=address(app)["config"])
    assert not again.error and json.loads(again.text_area[0].value) == TINY


BAD_CONFIGS = {
    "no JSON": "{",
    "no object": "[1, 2]",
    "negative": json.dumps(TINY | {"num_hidden_layers": -3}),
    "text": json.dumps(TINY | {"hidden_size": "wide"}),
    "nan": json.dumps(TINY | {"num_attention_heads": float("nan")}),
    "unknown architecture": json.dumps(TINY | {"model_type": "never-seen"}),
    "deep": "[" * 100_000,
    "markdown": '{"model_type": "**$x$** [a](b)"}',
}


@pytest.mark.parametrize(
    ("page", "case"), [*(("ledger", case) for case in BAD_CONFIGS), ("roofline", "negative"), ("cost", "no JSON")]
)
def test_a_bad_config_is_one_line_at_the_field_and_the_page_stays(home: Path, page: str, case: str) -> None:
    app = pasted(page, BAD_CONFIGS[case])
    assert len(app.error) == 1 and "\n" not in app.error[0].value
    assert app.text_area[0].value == BAD_CONFIGS[case]
    assert "config" not in app.query_params
    app.text_area[0].set_value(json.dumps(TINY)).run()
    assert not app.exception and not app.error


def test_an_unknown_architecture_can_be_taken_as_plain_attention_and_that_is_said(home: Path) -> None:
    unknown = json.dumps(TINY | {"model_type": "never-seen"})
    app = pasted("ledger", unknown)
    app.checkbox[0].check().run()
    assert not app.exception and not app.error
    assert any("taken as Llama with full attention, as asked" in item.value for item in app.warning)
    assert "--plain-attention" in app.code[0].value


def test_a_config_too_long_for_a_link_is_said_and_offered_as_a_file(home: Path) -> None:
    noise = {f"unused_{place}": f"{place * 7919 % 100_003:x}{place**3:x}" for place in range(600)}
    text = json.dumps(TINY | noise)
    assert packed(text) is None
    app = pasted("ledger", text)
    assert not app.error and "config" not in app.query_params
    assert translate("en", "model.too_long") in texts(app)


@pytest.mark.parametrize("text", ["%%%", "AAAA", "eJwDAAAAAAE", "x" * 5000])
def test_a_config_of_the_address_that_is_none_is_passed_over(home: Path, text: str) -> None:
    app = page_alone("ledger", model="config", config=text)
    assert not app.error and app.text_area[0].value == ""


def test_a_config_that_is_refused_leaves_the_figures_of_the_one_before(home: Path) -> None:
    app = pasted("ledger", json.dumps(TINY))
    before = [part.value for part in app.markdown]
    app.text_area[0].set_value("{oops").run()
    assert len(app.error) == 1 and [part.value for part in app.markdown] == before
    assert translate("en", "model.former") in texts(app)
    assert address(app)["config"] == packed(json.dumps(TINY))


@pytest.mark.parametrize(("batch", "seq_len"), [("4096", "1048576"), ("1048576", "16777216")])
def test_figures_beyond_64_bits_are_drawn(home: Path, batch: str, seq_len: str) -> None:
    app = page_alone("roofline", batch=batch, seq_len=seq_len)
    assert not app.error and charts_in(app) >= 4


@pytest.mark.parametrize("page", PAGES)
def test_a_hardware_file_that_is_wrong_is_said_and_the_shipped_cards_stay(
    home: Path, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    st.cache_data.clear()
    own = tmp_path / "own.toml"
    own.write_text('[mine]\nlabel = "Mine"\n', "utf-8")
    monkeypatch.setenv("TRILEMMA_HARDWARE", str(own))
    app = page_alone(page)
    st.cache_data.clear()
    assert not app.error and "own.toml: mine" in app.warning[0].value
    assert address(app)["gpu"] == "l4"


# -- Roofline ----------------------------------------------------------------------------------------------------------


def test_prefill_and_decode_have_their_own_verdict_and_the_crossover_is_named(home: Path) -> None:
    said = texts(page_alone("roofline", model="llama-3.1-8b", gpu="l4"))
    assert "Prefill is limited by **arithmetic**" in said and "Decode is limited by **bytes**" in said
    assert "reach the ridge (403 FLOP/B) at batch" in said


def test_grouped_heads_stay_on_the_bandwidth_roof_and_a_latent_comes_near_the_ridge(home: Path) -> None:
    assert "4.00 operations a byte of cache at any batch" in texts(page_alone("roofline", model="llama-3.1-8b"))
    said = texts(page_alone("roofline", model="deepseek-v3", gpu="h100-sxm"))
    assert "242 operations a byte of cache at any batch" in said


def test_choosing_an_operator_shows_its_arithmetic(home: Path) -> None:
    app = page_alone("roofline", model="llama-3.1-8b", phase="decode")
    box = app.selectbox(key="roof-operator")
    box.set_value("decode: mlp.down_proj").run()
    assert not app.exception
    assert "4,096 x 14,336" in texts(app).replace("\\", "")


def test_one_phase_alone_can_be_asked_for(home: Path) -> None:
    app = page_alone("roofline", phase="decode")
    assert "Prefill is limited" not in texts(app) and address(app)["phase"] == "decode"


def test_a_format_that_the_card_has_no_rate_for_is_said(home: Path) -> None:
    """A T4 has neither FP8 nor BF16: what stands in is named."""
    app = page_alone("roofline", gpu="t4", weights="fp8", phase="decode")
    assert not app.error and any(item.value.startswith("fp8") and "fp16 rate" in item.value for item in app.warning)


def test_pipeline_stages_beyond_the_layers_are_refused_in_one_line(home: Path) -> None:
    app = page_alone("ledger", model="typed", layers="2", kv_heads="1", head_dim="64", pp="16")
    assert len(app.error) == 1 and "pp" in app.error[0].value and "\n" not in app.error[0].value


# -- Cost --------------------------------------------------------------------------------------------------------------


def test_a_month_of_a_typed_throughput(home: Path) -> None:
    """10 requests/s of 500 tokens are 5,000 tokens/s; at 1,000 a card and 70 % that takes 8 cards, 5,760 a month."""
    app = page_alone("cost", source="typed", tokens_per_s="1000", rate="10", output_tokens="500", utilisation="70")
    said = texts(app)
    assert "**8 × NVIDIA L4** and cost **5,760** a month" in said
    assert "5,000 ÷ (1,000 tokens/s × 0.7) = 7.143, so 8" in said
    assert translate("en", "assumed") in said


def test_levers_are_shown_alone_and_together_and_are_no_sum(home: Path) -> None:
    app = page_alone("cost", gpu="h100-sxm")
    frame = next(item.value for item in app.dataframe if translate("en", "cost.devices") in item.value.columns)
    names = list(frame.iloc[:, 0])
    assert names[0] == translate("en", "lever.base") and names[-1] == translate("en", "lever.together")
    assert "levers act on the same seconds" in texts(app)


def test_a_lever_at_nothing_is_left_out(home: Path) -> None:
    off = {"prefix_cache": "0", "shorter_prompts": "0", "routing": "0", "to_weights": "off", "to_kv": "off"}
    app = page_alone("cost", **off, to_concurrency="0")
    frame = next(item.value for item in app.dataframe if translate("en", "cost.devices") in item.value.columns)
    assert len(frame) == 1


def test_the_throughput_of_a_stored_run_is_measured_and_changes_no_step(home: Path, sample: Sample) -> None:
    app = page_alone("cost", source="run", run=f"{sample.run_id}:1")
    assert not app.error
    assert f"{translate('en', 'measured')}]" in texts(app)
    rate = sample.result["arms"][1]["metrics"]["output_tokens_per_s"]
    command = next(code.value for code in app.code if code.value.startswith("trilemma cost"))
    assert f"--tokens-per-s-per-device {rate:g}" in command and "--lever weights" not in command


def test_a_model_that_does_not_fit_one_card_says_what_to_change(home: Path) -> None:
    app = page_alone("cost", model="llama-3.1-405b", gpu="l4")
    assert not app.error and translate("en", "cost.not_served") in texts(app)
