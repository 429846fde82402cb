"""Vision towers, projectors and audio encoders of multimodal models, by the outer config's model_type.

Names and shapes are those of transformers 5. A tower reads its own section (class defaults filled in), the outer config
and the width of the text model; what it does not know is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ledger.errors import InputError
from ledger.fields import Fields
from ledger.tensors import towers_qwen
from ledger.tensors.base import Tensors, linear, norm

TOWER = "model.vision_tower."
PROJECTOR = "model.multi_modal_projector."


@dataclass(frozen=True)
class Tower:
    """How a multimodal config builds its vision part: the section's class, its shape when the config has no section."""

    build: Callable[[Fields, Fields, int], Tensors]  # (vision section, outer config, text width)
    section_type: str = ""  # "": the section's own model_type decides, `siglip` unless it says so
    absent: dict[str, object] | None = None  # section that the outer class makes up; None: no tower without a section


def encoder(at: str, section: Fields) -> Tensors:
    """Layers of SigLIP and CLIP: two LayerNorms, four projections and two MLP layers, all with biases."""
    hidden, inner = section.integer("hidden_size"), section.integer("intermediate_size")
    for index in range(section.integer("num_hidden_layers")):
        layer = f"{at}{index}."
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from linear(f"{layer}self_attn.{name}", hidden, hidden, True)
        yield from linear(f"{layer}mlp.fc1", inner, hidden, True)
        yield from linear(f"{layer}mlp.fc2", hidden, inner, True)
        yield from norm(f"{layer}layer_norm1", hidden, True)
        yield from norm(f"{layer}layer_norm2", hidden, True)


def patches_of(section: Fields) -> tuple[int, int]:
    """(patches of an image, values of a patch)."""
    image, patch = _side(section, "image_size"), _side(section, "patch_size")
    return (image // patch) ** 2, section.integer("num_channels", default=3) * patch**2


def siglip(section: Fields, at: str = TOWER) -> Tensors:
    """SigLIP; `vision_use_head` adds a pooling head (there by default)."""
    hidden, inner = section.integer("hidden_size"), section.integer("intermediate_size")
    positions, _ = patches_of(section)
    yield from _convolution(f"{at}embeddings.patch_embedding", section, hidden, True)
    yield f"{at}embeddings.position_embedding.weight", (positions, hidden)
    yield from encoder(f"{at}encoder.layers.", section)
    yield from norm(f"{at}post_layernorm", hidden, True)
    if section.boolean("vision_use_head", True):
        yield f"{at}head.probe", (1, 1, hidden)
        yield f"{at}head.attention.in_proj_weight", (3 * hidden, hidden)
        yield f"{at}head.attention.in_proj_bias", (3 * hidden,)
        yield from linear(f"{at}head.attention.out_proj", hidden, hidden, True)
        yield from norm(f"{at}head.layernorm", hidden, True)
        yield from linear(f"{at}head.mlp.fc1", inner, hidden, True)
        yield from linear(f"{at}head.mlp.fc2", hidden, inner, True)


def clip(section: Fields) -> Tensors:
    """CLIP: a class token, patches without a bias, a norm before the layers."""
    hidden = section.integer("hidden_size")
    positions, _ = patches_of(section)
    yield f"{TOWER}embeddings.class_embedding", (hidden,)
    yield from _convolution(f"{TOWER}embeddings.patch_embedding", section, hidden, False)
    yield f"{TOWER}embeddings.position_embedding.weight", (positions + 1, hidden)
    yield from norm(f"{TOWER}pre_layrnorm", hidden, True)
    yield from encoder(f"{TOWER}encoder.layers.", section)
    yield from norm(f"{TOWER}post_layernorm", hidden, True)


def pixtral(section: Fields) -> Tensors:
    """Pixtral: a Llama-like encoder with rotary positions."""
    hidden, inner = section.integer("hidden_size"), section.integer("intermediate_size")
    yield from _convolution(f"{TOWER}patch_conv", section, hidden, False)
    yield from norm(f"{TOWER}ln_pre", hidden)
    for index in range(section.integer("num_hidden_layers")):
        at = f"{TOWER}transformer.layers.{index}."
        yield from norm(f"{at}attention_norm", hidden)
        yield from norm(f"{at}ffn_norm", hidden)
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            yield from linear(f"{at}attention.{name}", hidden, hidden)
        yield from linear(f"{at}feed_forward.gate_proj", inner, hidden)
        yield from linear(f"{at}feed_forward.up_proj", inner, hidden)
        yield from linear(f"{at}feed_forward.down_proj", hidden, inner)


ENCODERS = {"siglip_vision_model": siglip, "clip_vision_model": clip, "pixtral": pixtral}


def chosen_encoder(section: Fields) -> Tensors:
    """The encoder that the section's model_type names."""
    kind = section.text("model_type")
    if kind not in ENCODERS:
        raise InputError(section.where + "model_type", kind[:60], ", ".join(ENCODERS))
    return ENCODERS[kind](section)


def llava(section: Fields, outer: Fields, text: int) -> Tensors:
    """LLaVA 1.5: a chosen encoder and two linear layers."""
    bias = outer.boolean("multimodal_projector_bias", True)
    yield from chosen_encoder(section)
    yield from linear(f"{PROJECTOR}linear_1", text, section.integer("hidden_size") * _features(outer), bias)
    yield from linear(f"{PROJECTOR}linear_2", text, text, bias)


def llava_next(section: Fields, outer: Fields, text: int) -> Tensors:
    """LLaVA-NeXT and OneVision: LLaVA with a learned end of line."""
    yield "model.image_newline", (text,)
    yield from llava(section, outer, text)


def mistral3(section: Fields, outer: Fields, text: int) -> Tensors:
    """Mistral Small 3.1: Pixtral, patches merged `spatial_merge_size` x `spatial_merge_size`."""
    hidden, bias = section.integer("hidden_size"), outer.boolean("multimodal_projector_bias")
    merged = hidden * outer.integer("spatial_merge_size", default=2) ** 2
    yield from chosen_encoder(section)
    yield from norm(f"{PROJECTOR}norm", hidden)
    yield from linear(f"{PROJECTOR}patch_merger.merging_layer", hidden, merged)
    yield from linear(f"{PROJECTOR}linear_1", text, hidden * _features(outer), bias)
    yield from linear(f"{PROJECTOR}linear_2", text, text, bias)


def gemma3(section: Fields, outer: Fields, text: int) -> Tensors:
    """Gemma 3: SigLIP, a norm and one matrix."""
    hidden = section.integer("hidden_size")
    yield from chosen_encoder(section)
    yield f"{PROJECTOR}mm_input_projection_weight", (hidden, text)
    yield from norm(f"{PROJECTOR}mm_soft_emb_norm", hidden)


def paligemma(section: Fields, outer: Fields, text: int) -> Tensors:
    """PaliGemma: SigLIP and one linear layer."""
    yield from chosen_encoder(section)
    width = outer.integer("projection_dim", default=2048)
    yield from linear(f"{PROJECTOR}linear", width, section.integer("hidden_size"), True)


def cohere_vision(layer_norm: bool) -> Callable[[Fields, Fields, int], Tensors]:
    """Aya Vision (with a norm) and Command A Vision: SigLIP, pixels shuffled, a gated projector."""

    def build(section: Fields, outer: Fields, text: int) -> Tensors:
        merged = section.integer("hidden_size") * outer.integer("downsample_factor", default=2) ** 2
        width = outer.integer("alignment_intermediate_size", default=text if layer_norm else 36864)
        yield from chosen_encoder(section)
        if layer_norm:
            yield from norm(f"{PROJECTOR}layernorm", merged, True)
        yield from linear(f"{PROJECTOR}linear_1", width, merged, True)
        yield from linear(f"{PROJECTOR}linear_2", text, width // 2, True)

    return build


def idefics3(section: Fields, outer: Fields, text: int) -> Tensors:
    """Idefics 3 and SmolVLM: SigLIP without a head, pixels shuffled, one matrix."""
    at = "model.vision_model."
    yield from siglip(Fields({**section.values, "vision_use_head": False}, section.where), at)
    merged = section.integer("hidden_size") * outer.integer("scale_factor", default=2) ** 2
    yield from linear("model.connector.modality_projection.proj", text, merged)


def internvl(section: Fields, outer: Fields, text: int) -> Tensors:
    """InternVL: InternViT with a learned scale of each half, four patches merged, two linear layers."""
    hidden, inner = section.integer("hidden_size"), section.integer("intermediate_size")
    positions, _ = patches_of(section)
    bias, shift = section.boolean("attention_bias"), section.text("norm_type", "layer_norm") == "layer_norm"
    at = f"{TOWER}embeddings."
    yield f"{at}cls_token", (1, 1, hidden)
    if section.boolean("use_mask_token"):
        yield f"{at}mask_token", (1, 1, hidden)
    if section.boolean("use_absolute_position_embeddings", True):
        yield f"{at}position_embeddings", (1, positions + 1, hidden)
    yield from _convolution(f"{at}patch_embeddings.projection", section, hidden, True)
    for index in range(section.integer("num_hidden_layers")):
        at = f"{TOWER}encoder.layer.{index}."
        yield f"{at}lambda_1", (hidden,)
        yield f"{at}lambda_2", (hidden,)
        for name in ("q_proj", "k_proj", "v_proj"):
            yield from linear(f"{at}attention.{name}", hidden, hidden, bias)
        yield from linear(f"{at}attention.projection_layer", hidden, hidden, True)
        if section.boolean("use_qk_norm"):
            yield from norm(f"{at}attention.q_norm", hidden)
            yield from norm(f"{at}attention.k_norm", hidden)
        yield from linear(f"{at}mlp.fc1", inner, hidden, True)
        yield from linear(f"{at}mlp.fc2", hidden, inner, True)
        yield from norm(f"{at}layernorm_before", hidden, shift)
        yield from norm(f"{at}layernorm_after", hidden, shift)
    if not section.boolean("use_mean_pooling", True):
        yield from norm(f"{TOWER}layernorm", hidden, True)
    yield from norm(f"{PROJECTOR}layer_norm", 4 * hidden, True)
    yield from linear(f"{PROJECTOR}linear_1", text, 4 * hidden, True)
    yield from linear(f"{PROJECTOR}linear_2", text, text, True)


def llama4(section: Fields, outer: Fields, text: int) -> Tensors:
    """Llama 4: a class token, learned positions, pixels shuffled into an adapter, one matrix."""
    hidden, inner, at = section.integer("hidden_size"), section.integer("intermediate_size"), "vision_model."
    positions, values = patches_of(section)
    yield f"{at}class_embedding", (hidden,)
    yield f"{at}positional_embedding_vlm", (positions + 1, hidden)
    yield from linear(f"{at}patch_embedding.linear", hidden, values)
    yield from norm(f"{at}layernorm_pre", hidden, True)
    yield from norm(f"{at}layernorm_post", hidden, True)
    for index in range(section.integer("num_hidden_layers")):
        yield from _llama_vision_layer(f"{at}model.layers.{index}.", hidden, inner, bias=True)
    width = section.integer("projector_output_dim")
    yield from linear(f"{at}vision_adapter.mlp.fc1", section.integer("projector_input_dim"), inner)
    yield from linear(f"{at}vision_adapter.mlp.fc2", width, width)
    yield from linear("multi_modal_projector.linear_1", text, section.integer("vision_output_dim"))


def mllama(section: Fields, outer: Fields, text: int) -> Tensors:
    """Llama 3.2 Vision: tiles with learned positions by aspect ratio, local layers, then gated global ones."""
    hidden, inner, at = section.integer("hidden_size"), section.integer("intermediate_size"), "model.vision_model."
    positions, _ = patches_of(section)
    ratios = section.values.get("supported_aspect_ratios")
    rows = (len(ratios) if isinstance(ratios, list) and ratios else 8) + 1
    tiles = section.integer("max_num_tiles") * hidden
    yield f"{at}class_embedding", (hidden,)
    yield from _convolution(f"{at}patch_embedding", section, hidden, False)
    yield f"{at}gated_positional_embedding.gate", (1,)
    yield f"{at}gated_positional_embedding.embedding", (positions + 1, hidden)
    yield f"{at}gated_positional_embedding.tile_embedding.weight", (rows, tiles * (positions + 1))
    for name in ("pre", "post"):
        yield f"{at}{name}_tile_positional_embedding.gate", (1,)
        yield f"{at}{name}_tile_positional_embedding.embedding.weight", (rows, tiles)
        yield from norm(f"{at}layernorm_{name}", hidden, True)
    for index in range(section.integer("num_hidden_layers")):
        yield from _llama_vision_layer(f"{at}transformer.layers.{index}.", hidden, inner, bias=False)
    for index in range(section.integer("num_global_layers")):
        layer = f"{at}global_transformer.layers.{index}."
        yield f"{layer}gate_attn", (1,)
        yield f"{layer}gate_ffn", (1,)
        yield from _llama_vision_layer(layer, hidden, inner, bias=False)
    yield from linear("model.multi_modal_projector", text, section.integer("vision_output_dim"), True)


def gemma4(section: Fields, outer: Fields, text: int) -> Tensors:
    """Gemma 4: an encoder with four norms a layer and two position tables; an audio encoder when the config has one."""
    hidden, inner, at = section.integer("hidden_size"), section.integer("intermediate_size"), TOWER
    head, heads = section.integer("head_dim"), section.integer("num_attention_heads")
    kv = section.integer("num_key_value_heads", default=heads) * head
    yield f"{at}patch_embedder.position_embedding_table", (2, section.integer("position_embedding_size"), hidden)
    yield from linear(f"{at}patch_embedder.input_proj", hidden, 3 * section.integer("patch_size") ** 2)
    for index in range(section.integer("num_hidden_layers")):
        layer = f"{at}encoder.layers.{index}."
        for name, rows in (("q_proj", heads * head), ("k_proj", kv), ("v_proj", kv)):
            yield from linear(f"{layer}self_attn.{name}.linear", rows, hidden)
        yield from linear(f"{layer}self_attn.o_proj.linear", hidden, heads * head)
        yield from norm(f"{layer}self_attn.q_norm", head)
        yield from norm(f"{layer}self_attn.k_norm", head)
        yield from linear(f"{layer}mlp.gate_proj.linear", inner, hidden)
        yield from linear(f"{layer}mlp.up_proj.linear", inner, hidden)
        yield from linear(f"{layer}mlp.down_proj.linear", hidden, inner)
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield from norm(layer + name, hidden)
        for name in ("pre_feedforward_layernorm", "post_feedforward_layernorm"):
            yield from norm(layer + name, hidden)
    yield from linear("model.embed_vision.embedding_projection", text, hidden)


def gemma4_audio(section: Fields, text: int) -> Tensors:
    """Gemma 4's audio encoder: two convolutions, then Conformer layers."""
    hidden, at = section.integer("hidden_size"), "model.audio_tower."
    kernel, width = section.integer("conv_kernel_size"), section.integer("output_proj_dims")
    first, second = section.integers("subsampling_conv_channels", 2, 1) or [128, 32]
    yield f"{at}subsample_conv_projection.layer0.conv.weight", (first, 1, 3, 3)
    yield from norm(f"{at}subsample_conv_projection.layer0.norm", first)
    yield f"{at}subsample_conv_projection.layer1.conv.weight", (second, first, 3, 3)
    yield from norm(f"{at}subsample_conv_projection.layer1.norm", second)
    yield from linear(f"{at}subsample_conv_projection.input_proj_linear", hidden, first // 4 * second)
    for index in range(section.integer("num_hidden_layers")):
        layer = f"{at}layers.{index}."
        for name in ("feed_forward1", "feed_forward2"):
            yield from linear(f"{layer}{name}.ffw_layer_1.linear", 4 * hidden, hidden)
            yield from linear(f"{layer}{name}.ffw_layer_2.linear", hidden, 4 * hidden)
            yield from norm(f"{layer}{name}.pre_layer_norm", hidden)
            yield from norm(f"{layer}{name}.post_layer_norm", hidden)
        yield f"{layer}self_attn.per_dim_scale", (hidden // section.integer("num_attention_heads"),)
        for name in ("q_proj.linear", "k_proj.linear", "v_proj.linear", "post.linear", "relative_k_proj"):
            yield from linear(f"{layer}self_attn.{name}", hidden, hidden)
        yield from linear(f"{layer}lconv1d.linear_start.linear", 2 * hidden, hidden)
        yield from linear(f"{layer}lconv1d.linear_end.linear", hidden, hidden)
        yield f"{layer}lconv1d.depthwise_conv1d.weight", (hidden, 1, kernel)
        for name in ("lconv1d.pre_layer_norm", "lconv1d.conv_norm", "norm_pre_attn", "norm_post_attn", "norm_out"):
            yield from norm(layer + name, hidden)
    yield from linear(f"{at}output_proj", width, hidden, True)
    yield from linear("model.embed_audio.embedding_projection", text, width)


def _llama_vision_layer(at: str, hidden: int, inner: int, bias: bool) -> Tensors:
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        yield from linear(f"{at}self_attn.{name}", hidden, hidden, bias)
    yield from linear(f"{at}mlp.fc1", inner, hidden, True)
    yield from linear(f"{at}mlp.fc2", hidden, inner, True)
    yield from norm(f"{at}input_layernorm", hidden, True)
    yield from norm(f"{at}post_attention_layernorm", hidden, True)


def _convolution(name: str, section: Fields, hidden: int, bias: bool) -> Tensors:
    patch = _side(section, "patch_size")
    yield f"{name}.weight", (hidden, section.integer("num_channels", default=3), patch, patch)
    if bias:
        yield f"{name}.bias", (hidden,)


def _side(section: Fields, name: str) -> int:
    """An edge that may be written as a pair of equal numbers."""
    if not isinstance(section.values.get(name), list):
        return section.integer(name)
    pair = section.integers(name, 2, 1) or [0, 1]
    if pair[0] != pair[1]:
        raise InputError(section.where + name, str(pair)[:60], "two equal numbers")
    return pair[0]


def _features(outer: Fields) -> int:
    """How many encoder layers the projector reads side by side."""
    layers = outer.values.get("vision_feature_layer")
    return len(layers) if isinstance(layers, list) and layers else 1


_CLIP_L: dict[str, object] = {
    "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
    "num_attention_heads": 16, "image_size": 336, "patch_size": 14,
}  # fmt: skip
_PIXTRAL: dict[str, object] = {
    "model_type": "pixtral", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
    "num_attention_heads": 16, "image_size": 1540, "patch_size": 14, "head_dim": 64,
}  # fmt: skip
_SIGLIP_ONEVISION: dict[str, object] = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 26,
    "num_attention_heads": 14, "image_size": 384, "patch_size": 14, "vision_use_head": False,
}  # fmt: skip
_SIGLIP_PALI: dict[str, object] = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4096, "num_hidden_layers": 27,
    "num_attention_heads": 16, "image_size": 224, "patch_size": 14, "vision_use_head": False,
}  # fmt: skip

TOWERS: dict[str, Tower] = {
    "aya_vision": Tower(cohere_vision(layer_norm=True), absent={**_SIGLIP_ONEVISION, "num_attention_heads": 16}),
    "cohere2_vision": Tower(cohere_vision(layer_norm=False)),
    "gemma3": Tower(gemma3, absent={}),
    "gemma4": Tower(gemma4, "gemma4_vision"),
    "glm4v": Tower(towers_qwen.glm4v, "glm4v_vision", absent={}),
    "glm4v_moe": Tower(towers_qwen.glm4v, "glm4v_moe_vision", absent={}),
    "idefics3": Tower(idefics3, "idefics3_vision", absent={}),
    "internvl": Tower(internvl, "internvl_vision", absent={}),
    "llama4": Tower(llama4, "llama4_vision_model", absent={}),
    "llava": Tower(llava, absent=_CLIP_L),
    "llava_next": Tower(llava_next, absent=_CLIP_L),
    "llava_onevision": Tower(llava_next, absent=_SIGLIP_ONEVISION),
    "mistral3": Tower(mistral3, absent=_PIXTRAL),
    "mllama": Tower(mllama, "mllama_vision_model", absent={}),
    "paligemma": Tower(paligemma, absent=_SIGLIP_PALI),
    "qwen2_vl": Tower(towers_qwen.qwen2_vl, "qwen2_vl_vision", absent={}),
    "qwen2_5_vl": Tower(towers_qwen.qwen2_5_vl, "qwen2_5_vl_vision", absent={}),
    "qwen3_vl": Tower(towers_qwen.qwen3_vl, "qwen3_vl_vision", absent={}),
    "qwen3_vl_moe": Tower(towers_qwen.qwen3_vl, "qwen3_vl_moe_vision", absent={}),
    "qwen3_5": Tower(towers_qwen.qwen3_5, "qwen3_5_vision", absent={}),
    "qwen3_5_moe": Tower(towers_qwen.qwen3_5, "qwen3_5_moe_vision", absent={}),
    "smolvlm": Tower(idefics3, "smolvlm_vision", absent={}),
}
