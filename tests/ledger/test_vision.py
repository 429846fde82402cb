"""Vision towers and the text model inside a multimodal config, against transformers' own models on the meta device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ledger.errors import InputError
from ledger.families import WRAPPERS
from ledger.model_spec import ModelSpec, load_model_spec
from ledger.tensors.towers import TOWERS
from ledger.vision import vision_label, vision_parameter_count, vision_parameter_shapes
from ledger.weights import parameter_count, parameter_shapes
from tests.ledger.dense_configs import TEXT, VISION, nested

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

RENAMED = (
    ("model.language_model.", "model."), ("model.text_model.", "model."), ("language_model.model.", "model."),
    ("language_model.lm_head.", "lm_head."),
)  # fmt: skip


def their_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    theirs = type(transformers.AutoConfig.for_model(config["model_type"])).from_dict(config)
    with torch.device("meta"):
        model = transformers.AutoModelForImageTextToText.from_config(theirs)
    found = {}
    for name, parameter in model.named_parameters():
        for old, new in RENAMED:
            name = name.replace(old, new)
        found[name] = tuple(parameter.shape)
    return found


def our_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    spec = ModelSpec.from_config(config)
    vision = vision_parameter_shapes(spec)
    assert vision is not None
    assert vision_parameter_count(spec) == sum(torch.Size(shape).numel() for shape in vision.values())
    return {**parameter_shapes(spec), **vision}


# The linear-attention text model of Qwen3.5 is compared through its real config.
COMPARED = sorted(set(TOWERS) - {"qwen3_5", "qwen3_5_moe"})


@pytest.mark.parametrize("kind", COMPARED)
def test_whole_model_with_a_stated_vision_section(kind):
    vision = {key: value for key, value in VISION.items() if kind != "gemma4" or key != "num_heads"}
    config = nested(kind, vision, tie_word_embeddings=WRAPPERS[kind].tied)
    assert our_shapes(config) == their_shapes(config)


@pytest.mark.parametrize(
    "kind", [kind for kind in COMPARED if TOWERS[kind].absent is not None and kind != "aya_vision"]
)
def test_a_missing_vision_section_is_the_outer_class_default(kind):
    config = nested(kind, None, tie_word_embeddings=WRAPPERS[kind].tied)
    assert our_shapes(config) == their_shapes(config)


@pytest.mark.parametrize("kind", COMPARED)
@pytest.mark.parametrize("outer", [None, True, False])
@pytest.mark.parametrize("inner", [None, True, False])
def test_who_ties_the_head(kind, outer, inner):
    config = nested(kind, VISION if kind != "gemma4" else None)
    config |= {} if outer is None else {"tie_word_embeddings": outer}
    config["text_config"] |= {} if inner is None else {"tie_word_embeddings": inner}
    spec = ModelSpec.from_config(config)
    if outer is None and WRAPPERS[kind].tied and WRAPPERS[kind].by == "outer":
        # The empty model is tied then, but a stored head is loaded beside the embedding.
        text = ModelSpec.from_config({"model_type": WRAPPERS[kind].text_type, **config["text_config"]})
        assert spec.tie_embeddings == text.tie_embeddings
        return
    assert spec.tie_embeddings == ("lm_head.weight" not in their_shapes(config))


def test_a_silent_outer_config_keeps_the_head_that_the_checkpoint_stores():
    """Mistral Small 3.1 says nothing about tying and is published with 24,011,361,280 parameters, head included."""
    text = {
        "model_type": "mistral", "hidden_size": 5120, "intermediate_size": 32768, "num_hidden_layers": 40,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072,
        "sliding_window": None,
    }  # fmt: skip
    vision = {
        "model_type": "pixtral", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
        "num_attention_heads": 16, "head_dim": 64, "patch_size": 14, "image_size": 1540, "num_channels": 3,
    }  # fmt: skip
    config = {"model_type": "mistral3", "text_config": text, "vision_config": vision}
    spec = ModelSpec.from_config({**config, "spatial_merge_size": 2, "multimodal_projector_bias": False})
    assert parameter_count(spec) + (vision_parameter_count(spec) or 0) == 24_011_361_280


@pytest.mark.parametrize(
    ("kind", "vision", "outer"),
    [
        ("gemma3", {"vision_use_head": False, "image_size": 56, "patch_size": 14}, {}),
        ("gemma4", {"num_key_value_heads": 2, "head_dim": 12}, {"audio_config": {}}),
        ("glm4v", {"attention_bias": True, "out_hidden_size": 32}, {}),
        ("idefics3", {"image_size": 28, "patch_size": 14}, {"scale_factor": 3}),
        ("internvl", {"attention_bias": True, "use_qk_norm": True, "norm_type": "rms_norm"}, {}),
        ("internvl", {"use_mean_pooling": False, "use_mask_token": True, "image_size": [28, 28]}, {}),
        ("llava", {"model_type": "clip_vision_model"}, {"multimodal_projector_bias": False}),
        ("llava", {"model_type": "siglip_vision_model"}, {"vision_feature_layer": [-1, -2]}),
        ("llava", {"model_type": "pixtral", "head_dim": 12}, {}),
        ("mistral3", {"model_type": "pixtral"}, {"spatial_merge_size": 3, "multimodal_projector_bias": True}),
        ("mllama", {"image_size": 56, "num_global_layers": 1, "supported_aspect_ratios": [[1, 1], [1, 2]]}, {}),
        ("paligemma", {"model_type": "siglip_vision_model"}, {"projection_dim": 64}),
        ("qwen2_vl", {"embed_dim": 32, "mlp_ratio": 3, "hidden_size": 64}, {}),
        ("qwen3_vl", {"deepstack_visual_indexes": [0]}, {}),
        ("qwen3_vl", {"deepstack_visual_indexes": []}, {}),
    ],
)  # fmt: skip
def test_switches_of_a_tower(kind, vision, outer):
    base = {key: value for key, value in VISION.items() if kind != "gemma4" or key != "num_heads"}
    config = nested(kind, {**base, **vision}, **outer, tie_word_embeddings=WRAPPERS[kind].tied)
    assert our_shapes(config) == their_shapes(config)


def test_a_flat_qwen_config_has_its_tower():
    config = {**TEXT, "model_type": "qwen2_5_vl", "vision_config": VISION, "tie_word_embeddings": True}
    assert our_shapes(config) == their_shapes(config)


def test_totals_equal_the_reference(shared_dir: Path):
    folder = shared_dir / "data" / "configs"
    for name, row in json.loads((folder / "REFERENCE.json").read_text()).items():
        spec = load_model_spec(folder / row["file"])
        assert parameter_count(spec) + (vision_parameter_count(spec) or 0) == row["params_total"], name
        assert vision_label(spec) == "", name


def test_an_unknown_tower_has_no_count_and_says_so():
    spec = ModelSpec.from_config({**nested("gemma3", {}), "model_type": "gemma3", "audio_config": {"hidden_size": 8}})
    assert vision_parameter_count(spec) is None
    assert "not known" in vision_label(spec)
    text = {**TEXT, "model_type": "llama"}
    outer = ModelSpec.from_config({"model_type": "some_vlm", "text_config": text, "vision_config": {}})
    assert vision_parameter_count(outer) is None


def test_a_text_model_has_none():
    assert vision_parameter_count(ModelSpec.from_config({**TEXT, "model_type": "llama"})) == 0


@pytest.mark.parametrize("vision", [[], "x", {"hidden_size": 0}, {"num_hidden_layers": 10**6}, {"patch_size": [1, 2]}])
def test_a_hostile_vision_section_is_one_clear_line(vision):
    with pytest.raises(InputError) as caught:
        vision_parameter_shapes(ModelSpec.from_config(nested("gemma3", vision)))
    assert str(caught.value).startswith("vision_config")
