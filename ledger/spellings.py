"""Config fields that some families spell in their own way, brought to the common names. Knows no defaults of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ledger.errors import InputError
from ledger.fields import Fields

Prepare = Callable[[Fields], Mapping[str, object]]


def as_written(fields: Fields) -> Mapping[str, object]:
    """Nothing to do."""
    return fields.values


def renamed(**names: str) -> Prepare:
    """Copies each field to its common name, unless that is there already."""

    def prepare(fields: Fields) -> Mapping[str, object]:
        found = {common: fields.values[name] for name, common in names.items() if name in fields.values}
        return {**fields.values, **{name: value for name, value in found.items() if not fields.has(name)}}

    return prepare


def preferred(**names: str) -> Prepare:
    """Copies each field to its common name, over what is there: the class reads the other name first."""

    def prepare(fields: Fields) -> Mapping[str, object]:
        found = {common: fields.values[name] for name, common in names.items() if name in fields.values}
        return {**fields.values, **found}

    return prepare


def uniform(*names: str) -> Prepare:
    """A list with one equal value a layer becomes that value. InputError when the layers differ."""

    def prepare(fields: Fields) -> Mapping[str, object]:
        values = dict(fields.values)
        for name in names:
            if isinstance(values.get(name), list):
                found = set(fields.integers(name) or [0])
                if len(found) != 1:
                    raise InputError(fields.where + name, f"{len(found)} different values", "one value for all layers")
                values[name] = found.pop()
        return values

    return prepare


def chained(*steps: Prepare) -> Prepare:
    """One after the other."""

    def prepare(fields: Fields) -> Mapping[str, object]:
        for step in steps:
            fields = Fields(step(fields), fields.where)
        return fields.values

    return prepare


def mpt_fields(fields: Fields) -> Mapping[str, object]:
    """MPT: a ratio gives the MLP's width; biases and norms of q and k are refused, because no class has them."""
    if not fields.boolean("no_bias", True):
        raise InputError(fields.where + "no_bias", False, "true")
    section = fields.section("attn_config")
    for name in ("qk_ln", "qk_gn"):
        if section and section.boolean(name):
            raise InputError(section.where + name, True, "false")
    kind = section.text("attn_type", "multihead_attention") if section else "multihead_attention"
    if kind != "multihead_attention":
        raise InputError(fields.where + "attn_config.attn_type", kind[:60], "multihead_attention")
    hidden = fields.integer("d_model", "hidden_size")
    width = hidden * fields.integer("expansion_ratio", default=4)
    return {**fields.values, "hidden_size": hidden, "intermediate_size": width}


def dbrx_fields(fields: Fields) -> Mapping[str, object]:
    """DBRX: KV heads and experts in their own sections."""
    attention, mlp = fields.section("attn_config"), fields.section("ffn_config")
    if attention is None or mlp is None:
        missing = "attn_config" if attention is None else "ffn_config"
        raise InputError(fields.where + missing, "missing", "a JSON object")
    return {
        **fields.values,
        "num_key_value_heads": attention.integer("kv_n_heads", default=1),
        "intermediate_size": mlp.integer("ffn_hidden_size", default=3584),
        "num_local_experts": mlp.integer("moe_num_experts", default=4),
        "num_experts_per_tok": mlp.integer("moe_top_k", default=1),
    }


def derived_heads(fields: Fields) -> Mapping[str, object]:
    """JetMoE: query heads are the KV heads times the experts of a token; heads are `kv_channels` wide."""
    chosen = fields.integer("num_experts_per_tok", default=2)
    heads = fields.integer("num_key_value_heads", default=16) * chosen
    return {**fields.values, "num_attention_heads": heads, "head_dim": fields.integer("kv_channels", default=128)}


def value_head_dim(fields: Fields) -> Mapping[str, object]:
    """MiniCPM3: values are hidden / heads wide unless the config says otherwise."""
    given = fields.optional_integer("v_head_dim")
    return {
        **fields.values,
        "v_head_dim": given or fields.integer("hidden_size") // fields.integer("num_attention_heads"),
    }


def chosen_blocks(fields: Fields) -> Mapping[str, object]:
    """MiniMax-M3: its indexer chooses blocks of tokens; `index_topk` is how many tokens that makes."""
    section = fields.section("sparse_attention_config") or Fields({})
    blocks = section.integer("sparse_topk_blocks", default=fields.integer("index_topk_blocks", default=16))
    size = section.integer("sparse_block_size", default=fields.integer("index_block_size", default=128))
    return {**fields.values, "index_topk": blocks * size}
