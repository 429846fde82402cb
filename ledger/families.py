"""The architectures that are known: which layer rule each `model_type` follows, and how its config is spelled.

An architecture that is not in the table is refused: guessing plain attention is wrong by up to two orders of magnitude.
What a config.json may leave out comes from class_defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal

from ledger import layer_rules as rules
from ledger.class_defaults import with_defaults
from ledger.errors import InputError
from ledger.fields import Fields
from ledger.spellings import (
    Prepare,
    as_written,
    chained,
    chosen_blocks,
    dbrx_fields,
    derived_heads,
    mpt_fields,
    preferred,
    renamed,
    uniform,
    value_head_dim,
)
from ledger.window_rules import (
    image_layers,
    late_window,
    leading_full,
    named_pattern,
    optional_pattern,
    restarted_pattern,
    shared_tail,
)

TEXT_SECTIONS = ("text_config", "llm_config", "language_config")
LAYER_COUNTS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
HEAD_COUNTS = ("num_attention_heads", "n_head", "num_heads", "n_heads")
LISTS_OF_LAYERS = ("layers_block_type", "layer_types")


@dataclass(frozen=True)
class Family:
    """Class defaults and layer rule of one model_type. A default of None means that the config has to say it."""

    layout: rules.LayerRule = rules.full
    prepare: Prepare = as_written  # other spellings of the config's fields
    tied: bool = False  # default of tie_word_embeddings where the class defaults do not list it
    multi_query: bool = False  # Falcon's switches instead of a KV head count
    inner_name: str = "intermediate_size"
    inner_factor: int | None = None  # MLP width = factor x hidden when the config does not say
    label: str = ""
    attention_free: bool = False  # no attention heads at all

    def num_layers(self, fields: Fields) -> int:
        """Number of layers: `num_hidden_layers` or its other names; else as many as the config lists one by one."""
        if not any(map(fields.has, LAYER_COUNTS)):
            for name in LISTS_OF_LAYERS:
                if fields.has(name):
                    return len(fields.strings(name, None) or ())
            return len(fields.text("hybrid_override_pattern")) or fields.integer(*LAYER_COUNTS)
        return fields.integer(*LAYER_COUNTS)

    def heads(self, fields: Fields) -> int:
        """Number of query heads; 0 in a family without attention."""
        return 0 if self.attention_free else fields.integer(*HEAD_COUNTS)

    def head_dim(self, fields: Fields, hidden: int, heads: int) -> int:
        """`head_dim` when the config has it, else the class default, else hidden / heads (which has to divide)."""
        if self.attention_free:
            return 0
        given = fields.optional_integer("head_dim", "attention_head_dim", "kv_channels")
        if given is not None:
            return given
        if hidden % heads and not fields.has("kv_lora_rank"):
            raise InputError(fields.where + "head_dim", "missing", f"a head size: {heads} heads do not divide {hidden}")
        return max(1, hidden // heads)

    def kv_heads(self, fields: Fields, heads: int) -> int:
        """KV heads: the config's, else the class default, else one a query head. InputError above the query heads."""
        if self.attention_free:
            return 0
        if self.multi_query and not fields.boolean("new_decoder_architecture"):
            return 1 if fields.boolean("multi_query", True) else heads
        found = fields.optional_integer("num_key_value_heads", "num_kv_heads", "n_head_kv") or heads
        if found > heads:
            raise InputError(fields.where + "num_key_value_heads", found, f"at most the {heads} query heads")
        return found

    def intermediate(self, fields: Fields, hidden: int) -> int:
        """Width of the MLP; 0 when the config does not give one and the class has no rule."""
        default = None if self.inner_factor is None else self.inner_factor * hidden
        return fields.optional_integer(self.inner_name, default=default, minimum=0) or default or 0


_GPT = Family(inner_name="n_inner", inner_factor=4)
_MLA = Family(rules.latent())
_DSA = Family(rules.latent_with_index)
_MAMBA1 = Family(rules.every_layer_mamba1, attention_free=True, inner_factor=2)
_MINIMAX = Family(rules.lightning)
_KIMI_NAMES = renamed(
    num_experts="n_routed_experts",
    num_local_experts="n_routed_experts",
    num_shared_experts="n_shared_experts",
    num_experts_per_token="num_experts_per_tok",
    model_max_length="max_position_embeddings",
)
_DELTA = Family(rules.gated_delta)
_SLIDING = Family(rules.one_window(None))
_QWEN = Family(rules.switched_window)

FAMILIES: dict[str, Family] = {
    "llama": Family(),
    "mistral": _SLIDING,
    "ministral": _SLIDING,
    "ministral3": _SLIDING,
    "mixtral": _SLIDING,
    "qwen": Family(prepare=renamed(seq_length="max_position_embeddings")),
    "qwen2": _QWEN,
    "qwen2_moe": _QWEN,
    "qwen2_vl_text": _QWEN,
    "qwen2_5_vl_text": _QWEN,
    "qwen3": _QWEN,
    "qwen3_moe": _QWEN,
    "qwen3_vl_text": Family(),
    "qwen3_vl_moe_text": Family(),
    "qwen3_next": _DELTA,
    "qwen3_5_text": _DELTA,
    "qwen3_5_moe_text": replace(_DELTA, inner_name="shared_expert_intermediate_size"),
    "mimo": _QWEN,
    "phi": Family(),
    "phi3": _SLIDING,
    "phimoe": _SLIDING,
    "phi4_multimodal": _SLIDING,
    "gemma": Family(),
    "gemma2": Family(rules.patterned_window(2, 4096)),
    "gemma3_text": Family(rules.patterned_window(6, 4096)),
    "gemma3n_text": Family(shared_tail(5), prepare=uniform("intermediate_size")),
    "gemma4_text": Family(rules.two_geometries),
    "gemma4_unified_text": Family(rules.two_geometries),
    "vaultgemma": Family(rules.patterned_window(2, 4096)),
    "chatglm": Family(
        prepare=renamed(
            multi_query_group_num="num_key_value_heads",
            ffn_hidden_size="intermediate_size",
            padded_vocab_size="vocab_size",
            seq_length="max_position_embeddings",
        )
    ),
    "glm": Family(),
    "glm4": Family(),
    "glm4_moe": Family(),
    "glm4v_text": Family(),
    "glm4v_moe_text": Family(),
    "olmo": Family(),
    "olmo2": Family(),
    "olmo3": Family(rules.patterned_window(4, 4096)),
    "olmoe": Family(),
    "flex_olmo": Family(),
    "cohere": Family(),
    "cohere2": Family(rules.patterned_window(4, 4096)),
    "cohere2_moe": Family(restarted_pattern),
    "granite": Family(),
    "granite_swa": Family(leading_full(4, 128)),
    "granitemoe": Family(),
    "granitemoeshared": Family(),
    "granitemoe_swa": Family(leading_full(4, 128)),
    "smollm3": Family(),
    "starcoder2": _SLIDING,
    "baichuan": Family(),
    "internlm": Family(),
    "internlm2": Family(),
    "internlm3": Family(prepare=renamed(qkv_bias="attention_bias", bias="mlp_bias")),
    "minicpm": Family(tied=True),
    "minimax_m2": Family(),
    "gpt_oss": Family(rules.patterned_window(2, 128)),
    "llama4_text": Family(rules.chunked),
    "mllama_text_model": Family(image_layers),
    "exaone": Family(prepare=renamed(num_layers="num_hidden_layers")),
    "exaone4": Family(optional_pattern(4)),
    "exaone_moe": Family(optional_pattern(4)),
    "hunyuan_v1_dense": Family(),
    "hunyuan_v1_moe": Family(
        prepare=chained(renamed(moe_topk="num_experts_per_tok"), uniform("num_experts_per_tok", "intermediate_size"))
    ),
    "hy_v3": Family(),
    "hyperclovax": Family(),
    "ernie4_5": Family(),
    "ernie4_5_moe": Family(prepare=renamed(moe_num_experts="num_experts", moe_k="num_experts_per_tok")),
    "seed_oss": Family(),
    "helium": Family(),
    "cwm": Family(leading_full(4, 8192)),
    "arcee": Family(),
    "afmoe": Family(
        rules.patterned_window(4, 1024), prepare=renamed(global_attn_every_n_layers="sliding_window_pattern")
    ),
    "apertus": Family(),
    "bitnet": Family(),
    "diffllama": Family(),
    "dots1": Family(late_window),
    "deepseek": Family(),
    "iquestcoder": Family(),
    "jetmoe": Family(prepare=derived_heads),
    "mellum": Family(),
    "nemotron": Family(),
    "solar_open": Family(),
    "stablelm": Family(),
    "deepseek_v2": _MLA,
    "deepseek_v3": _MLA,
    "kimi_k2": _MLA,
    "glm4_moe_lite": _MLA,
    "minicpm3": replace(_MLA, prepare=value_head_dim),
    "youtu": _MLA,
    "youtu_llm": replace(_MLA, tied=True),
    "sarvam_mla": Family(
        rules.latent(), prepare=renamed(num_experts="n_routed_experts", num_shared_experts="n_shared_experts")
    ),
    "axk1": _MLA,
    "longcat_flash": Family(
        rules.latent(attentions=2),
        prepare=preferred(num_layers="num_hidden_layers", moe_topk="num_experts_per_tok"),
        inner_name="ffn_hidden_size",
    ),
    "mistral4": _MLA,
    "deepseek_v32": _DSA,
    "glm_moe_dsa": _DSA,
    "deepseek_v4": Family(rules.compressed, inner_name="moe_intermediate_size"),
    "kimi_linear": Family(rules.kimi_linear, prepare=_KIMI_NAMES),
    "bailing_hybrid": Family(rules.ling_hybrid, prepare=_KIMI_NAMES),
    "jamba": Family(rules.jamba),
    "nemotron_h": Family(
        rules.pattern_string,
        prepare=preferred(mamba_n_groups="n_groups", mamba_d_conv="conv_kernel", mamba_conv_bias="use_conv_bias"),
    ),
    "granitemoehybrid": Family(rules.mamba2_or_attention),
    "bamba": Family(rules.mamba2_or_attention),
    "falcon_h1": Family(rules.beside_mamba),
    "zamba": Family(rules.shared_attention_beside_mamba1),
    "zamba2": Family(rules.shared_attention_beside_mamba2, inner_factor=4),
    "mamba": _MAMBA1,
    "falcon_mamba": _MAMBA1,
    "mamba2": Family(rules.every_layer_mamba2, attention_free=True, inner_factor=2),
    "minimax": _MINIMAX,
    "minimax_m3_vl_text": Family(rules.full_with_index, prepare=chosen_blocks),
    "minimax_text_01": _MINIMAX,
    "minimax_m1": _MINIMAX,
    "recurrent_gemma": Family(rules.griffin),
    "lfm2": Family(
        rules.conv_or_attention,
        prepare=preferred(block_ff_dim="intermediate_size", tie_embedding="tie_word_embeddings"),
    ),
    "lfm2_moe": Family(rules.conv_or_attention, prepare=preferred(tie_embedding="tie_word_embeddings")),
    "olmo_hybrid": Family(rules.delta_at_ends),
    "mimo_v2_flash": Family(rules.wider_windows),
    "falcon": Family(multi_query=True, inner_name="ffn_hidden_size", inner_factor=4),
    "gpt2": _GPT,
    "gptj": _GPT,
    "gpt_neox": Family(),
    "gpt_neo": Family(named_pattern, inner_factor=4),
    "gpt_bigcode": replace(_GPT, multi_query=True),
    "codegen": _GPT,
    "bloom": replace(_GPT, prepare=preferred(n_embed="hidden_size")),
    "mpt": Family(prepare=mpt_fields),
    "dbrx": Family(prepare=dbrx_fields),
    "persimmon": Family(),
    "opt": Family(inner_name="ffn_dim"),
}


@dataclass(frozen=True)
class Wrapper:
    """A multimodal config around a text model: its text model_type when the section names none, and who ties the head.

    `tied` is the outer class default; where it is true, an outer config that is silent leaves it to the text section.
    `by`: the outer config, either of the two, the text section, or nobody.
    """

    text_type: str
    tied: bool = False
    by: Literal["outer", "either", "text", "nobody"] = "outer"


WRAPPERS: dict[str, Wrapper] = {
    "aya_vision": Wrapper("cohere2", tied=True),
    "cohere2_vision": Wrapper("cohere2", tied=True),
    "gemma3": Wrapper("gemma3_text", tied=True),
    "gemma3n": Wrapper("gemma3n_text", tied=True),
    "gemma4": Wrapper("gemma4_text", tied=True),
    "gemma4_unified": Wrapper("gemma4_unified_text", tied=True),
    "glm4v": Wrapper("glm4v_text", by="either"),
    "glm4v_moe": Wrapper("glm4v_moe_text", by="either"),
    "idefics3": Wrapper("llama"),
    "internvl": Wrapper("qwen2", tied=True),
    "kimi_k25": Wrapper("deepseek_v3", tied=True),
    "minimax_m3_vl": Wrapper("minimax_m3_vl_text"),
    "kimi_vl": Wrapper("deepseek_v3"),
    "llama4": Wrapper("llama4_text", by="text"),
    "llava": Wrapper("llama", by="either"),
    "llava_next": Wrapper("llama"),
    "llava_onevision": Wrapper("qwen2", by="either"),
    "mistral3": Wrapper("mistral", tied=True),
    "mllama": Wrapper("mllama_text_model", by="nobody"),
    "paligemma": Wrapper("gemma", tied=True),
    "qwen2_vl": Wrapper("qwen2_vl_text", by="either"),
    "qwen2_5_vl": Wrapper("qwen2_5_vl_text", by="either"),
    "qwen3_vl": Wrapper("qwen3_vl_text"),
    "qwen3_vl_moe": Wrapper("qwen3_vl_moe_text"),
    "qwen3_5": Wrapper("qwen3_5_text"),
    "qwen3_5_moe": Wrapper("qwen3_5_moe_text"),
    "smolvlm": Wrapper("llama"),
}


def family_of(outer: Fields, plain_attention: bool = False) -> tuple[Family, Fields, bool]:
    """The family of a config, its text section with class defaults filled in, and whether the head is tied.

    InputError for an unknown model_type, unless `plain_attention`, which treats it as full attention and labels it so.
    """
    section = next((found for found in map(outer.section, TEXT_SECTIONS) if found), None)
    fields = section or outer
    outer_type = outer.text("model_type")
    wrapper = WRAPPERS.get(outer_type)
    model_type = fields.text("model_type") if section or not wrapper else ""
    model_type = model_type or (wrapper.text_type if wrapper else "")
    family = FAMILIES.get(model_type)
    if family is None:
        if not plain_attention:
            raise _unknown(fields, model_type)
        family = Family(
            label=f"model_type {model_type[:60]!r} is unknown: taken as Llama with full attention, as asked"
        )
    values = family.prepare(Fields(fields.values, fields.where))
    complete = with_defaults(model_type, {**values, "model_type": model_type}, nested=section is not None)
    fields = Fields(complete, fields.where)
    return family, fields, _tied(outer, wrapper, fields, family)


HIDDEN_SIZES = ("hidden_size", "n_embd", "d_model")
PLAIN_NEEDS = (LAYER_COUNTS, HEAD_COUNTS, HIDDEN_SIZES, ("num_key_value_heads",), ("vocab_size",))


def _tied(outer: Fields, wrapper: Wrapper | None, fields: Fields, family: Family) -> bool:
    inner = fields.boolean("tie_word_embeddings", family.tied)
    if not any(outer.has(name) for name in TEXT_SECTIONS):
        return inner
    if wrapper is None:
        return outer.boolean("tie_word_embeddings", inner)
    # A class default of "tied" is what older libraries left out of every saved file, so silence says nothing: engines
    # build the text model from its own section, and loaders keep a head that the checkpoint stores (Mistral Small 3.1).
    tied = outer.boolean("tie_word_embeddings", wrapper.tied and inner)
    return {"outer": tied, "either": tied or inner, "text": inner, "nobody": False}[wrapper.by]


def _unknown(fields: Fields, model_type: str) -> InputError:
    """What is known instead, and what the config would have to state for plain attention on request."""
    if not model_type:
        return InputError(fields.where + "model_type", "missing", "the model_type of a known architecture")
    near = get_close_matches(model_type[:60], FAMILIES, 3, 0.6)
    known = f"one of {len(FAMILIES)} known architectures" + (f" (closest: {', '.join(near)})" if near else "")
    missing = [names[0] for names in PLAIN_NEEDS if not any(fields.has(name) for name in names)]
    lacks = f", which lacks {', '.join(missing)} here" if missing else ""
    return InputError(fields.where + "model_type", model_type[:60], f"{known}, or plain attention on request{lacks}")
