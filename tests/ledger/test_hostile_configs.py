"""Mutated configs of every family: a spec whose figures hold together, or one clear line."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.errors import InputError
from ledger.families import FAMILIES
from ledger.fields import MAX_CONFIG_BYTES, parse_config
from ledger.kv_cache import kv_report
from ledger.model_spec import ModelSpec, load_model_spec
from ledger.presets import presets
from ledger.tensors.towers import TOWERS
from ledger.vision import vision_label, vision_parameter_count
from ledger.weights import active_parameter_count, parameter_count, parts
from tests.ledger.dense_configs import VISION, nested, tiny
from tests.ledger.hybrid_configs import HYBRID_CONFIGS

SAME_AS = {"kimi_k2": "deepseek_v3", "youtu_llm": "youtu"}
BASES: dict[str, dict[str, Any]] = {
    **{name: {**HYBRID_CONFIGS.get(SAME_AS.get(name, name), tiny(name)), "model_type": name} for name in FAMILIES},
    **{f"multimodal {kind}": nested(kind, dict(VISION)) for kind in TOWERS},
    **presets(),
}
DELETED = object()
HOSTILE = [
    DELETED, None, True, False, 0, -1, 1, 2, 3, 5, 7, 1.5, 64.0, math.nan, math.inf, -math.inf, 1e308, 10**9, 10**12,
    10**400,
    "", "12", "x" * 300, "\ud800", "line\nbreak", "null", "MM*-", "llama", "bfloat16",
    [], [0], [1] * 4, [2, 3], [-1], [None], [[]], [[["global"], 3]], ["full_attention"] * 4, ["sliding_attention"] * 4,
    ["mamba"] * 4, ["x\n"] * 4, ["dense"] * 4, {}, {"model_type": "llama"}, {"hidden_size": -1}, {"a": {"b": []}},
]  # fmt: skip
EXTRA_KEYS = [
    "text_config", "vision_config", "audio_config", "layer_types", "mlp_layer_types", "sliding_window", "head_dim",
    "sliding_window_pattern", "num_kv_shared_layers", "first_k_dense_replace", "num_key_value_heads", "model_type",
    "quantization_config", "tie_word_embeddings", "num_experts", "num_experts_per_tok", "attn_config", "name\n",
]  # fmt: skip


def is_one_clear_line(error: InputError) -> None:
    text = str(error)
    assert "\n" not in text and text.isprintable() and len(text) < 300, text
    text.encode("utf-8")


def are_figures(value: Any) -> None:
    if isinstance(value, dict):
        for name, item in value.items():
            if "bits" not in name:  # bits of an element, scales included, need not be whole
                are_figures(item)
    elif isinstance(value, list):
        for item in value:
            are_figures(item)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        assert isinstance(value, int) and value >= 0


def kv_holds_together(spec: ModelSpec) -> None:
    totals = []
    for length in (1, 4_096, 50_000):
        report = kv_report(spec, length)
        are_figures(report)
        assert report["kv_bytes_per_sequence"] == sum(layer["bytes_per_sequence"] for layer in report["per_layer"])
        assert report["kv_bytes_per_token"] <= report["kv_bytes_per_token_all_layers"]
        totals.append(report["kv_bytes_per_sequence"])
    assert totals == sorted(totals)
    json.dumps(report)
    spec.name.encode("utf-8")


def weights_hold_together(spec: ModelSpec) -> None:
    count = parameter_count(spec)
    assert sum(parts(spec).values()) == count > 0
    assert 0 < active_parameter_count(spec) <= count


def vision_holds_together(spec: ModelSpec) -> None:
    count = vision_parameter_count(spec)
    assert count is None or count >= 0
    assert (count is None) == bool(vision_label(spec))


def check(config: dict[str, Any], *, plain_attention: bool = False) -> bool:
    """True when the config is a spec; asserts that everything else is one clear line."""
    try:
        spec = ModelSpec.from_config(config, plain_attention=plain_attention)
    except InputError as error:
        is_one_clear_line(error)
        return False
    for holds_together in (kv_holds_together, weights_hold_together, vision_holds_together):
        try:
            holds_together(spec)
        except InputError as error:
            is_one_clear_line(error)
    return True


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    config = copy.deepcopy(BASES[draw(st.sampled_from(sorted(BASES)))])
    for _ in range(draw(st.integers(1, 4))):
        section = config
        inner = [key for key, value in config.items() if isinstance(value, dict)]
        if inner and draw(st.booleans()):
            section = config[draw(st.sampled_from(inner))]
        key = draw(st.sampled_from([*section, *EXTRA_KEYS]))
        value = draw(st.sampled_from(HOSTILE))
        if value is DELETED:
            section.pop(key, None)
        else:
            section[key] = copy.deepcopy(value)
    return config


@pytest.mark.parametrize("name", BASES)
def test_every_base_is_a_spec_with_all_its_figures(name):
    spec = ModelSpec.from_config(BASES[name])
    kv_holds_together(spec)
    weights_hold_together(spec)
    vision_holds_together(spec)


FUZZ = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


@settings(max_examples=600, **FUZZ)
@given(mutated(), st.booleans())
def test_mutated_configs(config, plain_attention):
    check(config, plain_attention=plain_attention)


@pytest.mark.slow
@settings(max_examples=40_000, derandomize=False, **FUZZ)
@given(mutated(), st.booleans())
def test_forty_thousand_mutated_configs(config, plain_attention):
    check(config, plain_attention=plain_attention)


@settings(max_examples=300, **FUZZ)
@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3), max_leaves=8,
))  # fmt: skip
def test_any_json(value):
    try:
        config = parse_config(json.dumps(value))
    except InputError as error:
        is_one_clear_line(error)
    else:
        check(config)


@pytest.mark.parametrize("name", ["llama", "gpt2", "deepseek_v3", "qwen3_moe", "jamba", "gemma3n_text"])
def test_a_thousand_layers_are_counted_and_ten_thousand_refused(name):
    known = {"num_hidden_layers", "n_layer"} & set(BASES[name])
    lists = ("layer_types", "mlp_layer_types")
    config = {key: value for key, value in BASES[name].items() if key not in lists}
    assert check({**config, **dict.fromkeys(known, 1_000)})
    with pytest.raises(InputError, match=r"num_hidden_layers.*at most 1,000 layers"):
        ModelSpec.from_config({**config, **dict.fromkeys(known, 10_000)})


def test_every_number_of_a_family_at_its_largest():
    for name in sorted(FAMILIES):
        for key, old in BASES[name].items():
            if isinstance(old, int) and not isinstance(old, bool):
                check({**BASES[name], key: 10**9})


def test_a_name_a_head_or_stream_does_not_make_endless_tables():
    stable = {**BASES["stablelm"], "qk_layernorm": True, "num_attention_heads": 10**6, "head_dim": 1}
    streams = {**BASES["gemma3n_text"], "altup_num_inputs": 10**9}
    for config in (stable, streams):
        with pytest.raises(InputError) as caught:
            parameter_count(ModelSpec.from_config(config))
        is_one_clear_line(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":' + "[" * 50_000, '{"a": ' * 900 + "1" + "}" * 900, '{"model_type": "llama", "model_type": "llama"}',
        '{"hidden_size": ' + "9" * 5_000 + "}", '{"hidden_size": 1e999}', '{"model_type": "\\ud800"}', "\ufeff{}",
        '{"x": "' + "y" * MAX_CONFIG_BYTES + '"}', '{"layer_types": [' + "1," * 1_000_000 + "1]}", "NaN", "\0",
        "{'a': 1}",
    ],
    ids=lambda text: f"{text[:12]!a}",
)  # fmt: skip
def test_malformed_text(text):
    try:
        check(parse_config(text))
    except InputError as error:
        is_one_clear_line(error)


def test_ten_megabytes_are_refused_in_one_line(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "llama", "padding": "x" * 10 * 2**20}))
    with pytest.raises(InputError, match="at most 4 MiB") as caught:
        load_model_spec(path)
    is_one_clear_line(caught.value)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"\x80" * 100, b"", b"\xef\xbb\xbf{}"])
def test_bytes_that_are_no_config(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_model_spec(path)
    is_one_clear_line(caught.value)


def test_a_device_that_never_ends_is_refused():
    with pytest.raises(InputError, match="readable"):
        load_model_spec("/dev/zero")
