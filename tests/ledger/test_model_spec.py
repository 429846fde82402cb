"""Reading configs: what is derived, what is kept apart, and what is refused."""

from __future__ import annotations

import io
import json
import sys

import pytest

from ledger.errors import InputError
from ledger.fields import MAX_CONFIG_BYTES, parse_config
from ledger.model_spec import ModelSpec, load_model_spec
from ledger.presets import presets
from ledger.weights import parameter_count

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 256,
}


def spec_of(**changes):
    return ModelSpec.from_config({**LLAMA, **changes})


def test_head_size_is_the_configs_not_hidden_over_heads():
    assert spec_of(head_dim=40).head_dim == 40
    assert spec_of().head_dim == 16
    assert spec_of(model_type="qwen3").head_dim == 128  # the class default


def test_head_size_that_cannot_be_derived_is_refused():
    with pytest.raises(InputError, match="head_dim"):
        spec_of(hidden_size=65)


def test_kv_heads_default_to_query_heads_only_where_the_class_does():
    config = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    assert ModelSpec.from_config(config).num_kv_heads == 4
    assert ModelSpec.from_config({**config, "model_type": "mistral", "num_attention_heads": 16}).num_kv_heads == 8


def test_falcon_multi_query_is_one_head():
    config = {**LLAMA, "model_type": "falcon", "num_attention_heads": 8}
    del config["num_key_value_heads"]
    assert ModelSpec.from_config({**config, "multi_query": True}).num_kv_heads == 1
    grouped = ModelSpec.from_config({**config, "new_decoder_architecture": True, "num_kv_heads": 4})
    assert grouped.num_kv_heads == 4


def test_bloom_configs_that_say_n_embed_have_the_published_size():
    """bloom-560m and bloom state `n_embed`, which their class takes over `hidden_size`."""
    config = {"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16, "vocab_size": 250_880}
    for stated in (config, {**config, "hidden_size": 64}):
        spec = ModelSpec.from_config(stated)
        assert (spec.hidden_size, parameter_count(spec)) == (1024, 559_214_592)


def test_window_over_the_longest_position_never_acts():
    assert {layer.kind for layer in spec_of(model_type="phi3", sliding_window=512).layers} == {"full"}
    assert {layer.kind for layer in spec_of(model_type="phi3", sliding_window=128).layers} == {"swa"}


def test_qwen_window_needs_its_switch():
    off = spec_of(model_type="qwen2", sliding_window=32, use_sliding_window=False, max_window_layers=1)
    on = spec_of(model_type="qwen2", sliding_window=32, use_sliding_window=True, max_window_layers=1)
    assert [layer.kind for layer in off.layers] == ["full", "full"]
    assert [layer.kind for layer in on.layers] == ["full", "swa"]


def test_explicit_layer_types_win_over_the_pattern():
    spec = spec_of(model_type="gemma2", sliding_window=32, layer_types=["full_attention", "sliding_attention"])
    assert [layer.kind for layer in spec.layers] == ["full", "swa"]


def test_strange_layer_type_is_refused():
    with pytest.raises(InputError, match="layer_types"):
        spec_of(layer_types=["full_attention", "wormhole_attention"])


def test_nested_text_config_is_read():
    spec = ModelSpec.from_config({"model_type": "gemma3", "text_config": {**LLAMA, "model_type": "gemma3_text"}})
    assert spec.model_type == "gemma3_text"
    assert spec.tie_embeddings


def test_unknown_architecture_is_refused_with_what_it_lacks():
    config = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    with pytest.raises(InputError, match=r"model_type: 'llama9' .*closest: llama.*lacks num_key_value_heads"):
        ModelSpec.from_config({**config, "model_type": "llama9"})


def test_plain_attention_is_labelled_and_counts_as_llama_but_never_experts():
    spec = ModelSpec.from_config({**LLAMA, "model_type": "llama9"}, plain_attention=True)
    assert "llama9" in spec.assumed
    assert parameter_count(spec) == parameter_count(spec_of())
    mixture = ModelSpec.from_config({**LLAMA, "model_type": "llama9", "num_experts": 8}, plain_attention=True)
    with pytest.raises(InputError, match="num_experts"):
        parameter_count(mixture)


def test_a_nested_section_may_leave_out_what_its_class_defaults_to_a_flat_one_may_not():
    nested = ModelSpec.from_config({"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}})
    assert (nested.hidden_size, nested.num_layers, nested.num_heads) == (4096, 32, 32)
    with pytest.raises(InputError, match="num_hidden_layers"):
        ModelSpec.from_config({"model_type": "llama", "vocab_size": 32064})


def test_a_models_name_is_one_printable_line():
    assert spec_of(_name_or_path="a\nb\ud800").name == "a\\nb\\ud800"


def test_missing_latent_fields_are_named():
    with pytest.raises(InputError, match="kv_lora_rank, qk_rope_head_dim"):
        spec_of(model_type="deepseek_v3")


@pytest.mark.parametrize("value", [0, -1, "12", True, 1.5, float("nan"), float("inf"), 10**12, [], {}])
@pytest.mark.parametrize("field", ["hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"])
def test_hostile_numbers_are_one_clear_line(field, value):
    with pytest.raises(InputError) as caught:
        spec_of(**{field: value})
    assert field in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "1", "null", '"x"', "[" * 100_000, '{"a":' * 100_000, " " * (MAX_CONFIG_BYTES + 1)]
)
def test_malformed_json_is_one_clear_line(text):
    with pytest.raises(InputError) as caught:
        parse_config(text)
    assert "\n" not in str(caught.value)


def test_every_preset_is_a_spec():
    for name in presets():
        assert load_model_spec(name).name == name
    assert load_model_spec("Llama-3.1-8B").num_kv_heads == 8


def test_file_directory_and_standard_input_agree(tmp_path, monkeypatch):
    folder = tmp_path / "tiny-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(LLAMA)))
    specs = [load_model_spec(source) for source in (folder, folder / "config.json", "-")]
    assert specs[0].layers == specs[1].layers == specs[2].layers
    assert specs[0].name == specs[1].name == "tiny-model"


@pytest.mark.parametrize("source", ["no-such-model", "", "/proc/self/mem", "a" * 5000, "nul\0byte"])
def test_unreadable_source_is_one_clear_line(source):
    with pytest.raises(InputError) as caught:
        load_model_spec(source)
    assert str(caught.value).startswith("config: ")
    assert len(str(caught.value)) < 300


def test_binary_file_is_one_clear_line(tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(bytes(range(256)))
    with pytest.raises(InputError, match="config"):
        load_model_spec(path)


def test_typed_fields():
    spec = ModelSpec.from_fields(layers=32, kv_heads=8, head_dim=128)
    assert (spec.num_layers, spec.num_kv_heads, spec.head_dim, spec.num_heads) == (32, 8, 128, 8)
    with pytest.raises(InputError, match="layers"):
        ModelSpec.from_fields(layers=0, kv_heads=8, head_dim=128)
