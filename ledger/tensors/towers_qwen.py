"""Vision towers of Qwen2-VL to Qwen3.5 and GLM-4V: patches over two frames, then a merger into the text model."""

from __future__ import annotations

from ledger.fields import Fields
from ledger.tensors.base import Tensors, linear, norm

AT = "model.visual."


def qwen2_vl(section: Fields, outer: Fields, text: int) -> Tensors:
    """Qwen2-VL: `embed_dim` wide inside, `hidden_size` wide towards the text model."""
    hidden = section.integer("embed_dim")
    inner, merged = hidden * section.integer("mlp_ratio"), hidden * section.integer("spatial_merge_size") ** 2
    yield from _patches(section, hidden, bias=False)
    for index in range(section.integer("depth")):
        at = f"{AT}blocks.{index}."
        yield from norm(f"{at}norm1", hidden, True)
        yield from norm(f"{at}norm2", hidden, True)
        yield from _attention(at, hidden, bias=True)
        yield from linear(f"{at}mlp.fc1", inner, hidden, True)
        yield from linear(f"{at}mlp.fc2", hidden, inner, True)
    yield from norm(f"{AT}merger.ln_q", hidden, True)
    yield from linear(f"{AT}merger.mlp.0", merged, merged, True)
    yield from linear(f"{AT}merger.mlp.2", section.integer("hidden_size"), merged, True)


def qwen2_5_vl(section: Fields, outer: Fields, text: int) -> Tensors:
    """Qwen2.5-VL: norms without a shift, a gated MLP."""
    hidden, inner = section.integer("hidden_size"), section.integer("intermediate_size")
    merged = hidden * section.integer("spatial_merge_size") ** 2
    yield from _patches(section, hidden, bias=False)
    for index in range(section.integer("depth")):
        at = f"{AT}blocks.{index}."
        yield from norm(f"{at}norm1", hidden)
        yield from norm(f"{at}norm2", hidden)
        yield from _attention(at, hidden, bias=True)
        yield from linear(f"{at}mlp.gate_proj", inner, hidden, True)
        yield from linear(f"{at}mlp.up_proj", inner, hidden, True)
        yield from linear(f"{at}mlp.down_proj", hidden, inner, True)
    yield from norm(f"{AT}merger.ln_q", hidden)
    yield from linear(f"{AT}merger.mlp.0", merged, merged, True)
    yield from linear(f"{AT}merger.mlp.2", section.integer("out_hidden_size"), merged, True)


def qwen3_vl(section: Fields, outer: Fields, text: int) -> Tensors:
    """Qwen3-VL: learned positions, and a merger for each of `deepstack_visual_indexes` beside the last one."""
    listed = section.values.get("deepstack_visual_indexes")
    deep = [8, 16, 24] if listed is None else section.integers("deepstack_visual_indexes") or []
    merged = section.integer("hidden_size") * section.integer("spatial_merge_size") ** 2
    yield from qwen3_5(section, outer, text)
    for index in range(len(deep)):
        yield from _merger(f"{AT}deepstack_merger_list.{index}.", merged, merged, section.integer("out_hidden_size"))


def qwen3_5(section: Fields, outer: Fields, text: int) -> Tensors:
    """Qwen3.5: Qwen3-VL's tower with one merger."""
    hidden, inner = section.integer("hidden_size"), section.integer("intermediate_size")
    yield from _patches(section, hidden, bias=True)
    yield f"{AT}pos_embed.weight", (section.integer("num_position_embeddings"), hidden)
    for index in range(section.integer("depth")):
        at = f"{AT}blocks.{index}."
        yield from norm(f"{at}norm1", hidden, True)
        yield from norm(f"{at}norm2", hidden, True)
        yield from _attention(at, hidden, bias=True)
        yield from linear(f"{at}mlp.linear_fc1", inner, hidden, True)
        yield from linear(f"{at}mlp.linear_fc2", hidden, inner, True)
    merged = hidden * section.integer("spatial_merge_size") ** 2
    yield from _merger(f"{AT}merger.", hidden, merged, section.integer("out_hidden_size"))


def glm4v(section: Fields, outer: Fields, text: int) -> Tensors:
    """GLM-4V: gated MLPs as wide as the output, a strided convolution, a gated merger."""
    hidden, out, inner = (section.integer(name) for name in ("hidden_size", "out_hidden_size", "intermediate_size"))
    merge, side = section.integer("spatial_merge_size"), section.integer("image_size") // section.integer("patch_size")
    yield f"{AT}embeddings.position_embedding.weight", (side**2, hidden)
    yield from _patches(section, hidden, bias=True)
    yield from norm(f"{AT}post_conv_layernorm", hidden)
    for index in range(section.integer("depth")):
        at = f"{AT}blocks.{index}."
        yield from norm(f"{at}norm1", hidden)
        yield from norm(f"{at}norm2", hidden)
        yield from linear(f"{at}attn.qkv", 3 * hidden, hidden, section.boolean("attention_bias"))
        yield from linear(f"{at}attn.proj", hidden, hidden)
        yield from linear(f"{at}mlp.gate_proj", out, hidden)
        yield from linear(f"{at}mlp.up_proj", out, hidden)
        yield from linear(f"{at}mlp.down_proj", hidden, out)
    yield from norm(f"{AT}post_layernorm", hidden)
    yield f"{AT}downsample.weight", (out, hidden, merge, merge)
    yield f"{AT}downsample.bias", (out,)
    yield from linear(f"{AT}merger.proj", out, out)
    yield from norm(f"{AT}merger.post_projection_norm", out, True)
    yield from linear(f"{AT}merger.gate_proj", inner, out)
    yield from linear(f"{AT}merger.up_proj", inner, out)
    yield from linear(f"{AT}merger.down_proj", out, inner)


def _patches(section: Fields, hidden: int, bias: bool) -> Tensors:
    patch, frames = section.integer("patch_size"), section.integer("temporal_patch_size")
    yield f"{AT}patch_embed.proj.weight", (hidden, section.integer("in_channels"), frames, patch, patch)
    if bias:
        yield f"{AT}patch_embed.proj.bias", (hidden,)


def _attention(at: str, hidden: int, bias: bool) -> Tensors:
    yield from linear(f"{at}attn.qkv", 3 * hidden, hidden, bias)
    yield from linear(f"{at}attn.proj", hidden, hidden, bias)


def _merger(at: str, normed: int, merged: int, out: int) -> Tensors:
    yield from norm(f"{at}norm", normed, True)
    yield from linear(f"{at}linear_fc1", merged, merged, True)
    yield from linear(f"{at}linear_fc2", out, merged, True)
