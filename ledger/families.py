"""The architectures that are known: class defaults of each `model_type`, and which layer rule it follows.

Defaults are those of the public model configuration classes (transformers 5), which a config.json may leave out. An
architecture that is not in the table is refused: guessing plain attention is wrong by up to two orders of magnitude.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ledger import layer_rules as rules
from ledger.errors import InputError
from ledger.fields import Fields

TEXT_SECTIONS = ("text_config", "llm_config", "language_config")
LAYER_COUNTS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
HEAD_COUNTS = ("num_attention_heads", "n_head", "num_heads", "n_heads")
LISTS_OF_LAYERS = ("layers_block_type", "layer_types", "hybrid_override_pattern")


@dataclass(frozen=True)
class Family:
    """Class defaults and layer rule of one model_type. A default of None means that the config has to say it."""

    layout: rules.LayerRule = rules.full
    tied: bool = False  # default of tie_word_embeddings
    kv_heads_default: int | None = None  # None: as many as query heads
    head_dim_default: int | None = None  # None: hidden / heads
    vocab_size: int | None = None
    max_position: int | None = None
    multi_query: bool = False  # Falcon's switches instead of a KV head count
    inner_name: str = "intermediate_size"
    inner_factor: int | None = None  # MLP width = factor x hidden when the config does not say
    label: str = ""
    attention_free: bool = False  # no attention heads at all
    defaults: Mapping[str, object] = field(default_factory=dict)  # further fields that a config may leave out
    aliases: Mapping[str, str] = field(default_factory=dict)  # other names of fields; the other name wins

    def complete(self, fields: Fields) -> Fields:
        """The section with class defaults filled in and fields under their usual names. A null stays null."""
        values = {**self.defaults, **fields.values}
        for other, usual in self.aliases.items():
            if other in values:
                values[usual] = values[other]
        return Fields(values, fields.where)

    def num_layers(self, fields: Fields) -> int:
        """Number of layers: `num_hidden_layers` or its other names; else as many as the config lists one by one."""
        for name in LISTS_OF_LAYERS:
            if not any(map(fields.has, LAYER_COUNTS)) and fields.has(name):
                listed = fields.text(name) if name == "hybrid_override_pattern" else fields.strings(name, None)
                return len(listed or ())
        return fields.integer(*LAYER_COUNTS)

    def heads(self, fields: Fields) -> int:
        """Number of query heads; 0 in a family without attention."""
        return 0 if self.attention_free else fields.integer(*HEAD_COUNTS)

    def head_dim(self, fields: Fields, hidden: int, heads: int) -> int:
        """`head_dim` when the config has it, else the class default, else hidden / heads (which has to divide)."""
        if self.attention_free:
            return 0
        given = fields.optional_integer("head_dim", "attention_head_dim", "kv_channels", default=self.head_dim_default)
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
        default = heads if self.kv_heads_default is None else self.kv_heads_default
        found = fields.optional_integer("num_key_value_heads", "num_kv_heads", "n_head_kv", default=default) or heads
        if found > heads:
            raise InputError(fields.where + "num_key_value_heads", found, f"at most the {heads} query heads")
        return found

    def intermediate(self, fields: Fields, hidden: int) -> int:
        """Width of the MLP; 0 when the config does not give one and the class has no rule."""
        default = None if self.inner_factor is None else self.inner_factor * hidden
        if isinstance(fields.values.get(self.inner_name), list):  # one a layer: the widest
            return max(fields.integers(self.inner_name) or [0])
        return fields.optional_integer(self.inner_name, default=default, minimum=0) or default or 0


_GEMMA = Family(tied=True, head_dim_default=256)
_GPT = Family(tied=True, inner_name="n_inner", inner_factor=4)
_QWEN3 = Family(rules.switched_window, kv_heads_default=32, head_dim_default=128)
_MLA = Family(rules.latent())
_DSA = Family(rules.latent_with_index)
_MINIMAX = Family(rules.lightning, kv_heads_default=8)
_DELTA = Family(rules.gated_delta, head_dim_default=256)

_KIMI_NAMES = {
    "num_experts": "n_routed_experts",
    "num_local_experts": "n_routed_experts",
    "num_shared_experts": "n_shared_experts",
    "num_experts_per_token": "num_experts_per_tok",
}

FAMILIES: dict[str, Family] = {
    "llama": Family(vocab_size=32000),
    "mistral": Family(rules.one_window(4096), kv_heads_default=8),
    "ministral": Family(rules.one_window(4096), kv_heads_default=8),
    "mixtral": Family(rules.one_window(None), kv_heads_default=8),
    "qwen2": Family(rules.switched_window, kv_heads_default=32),
    "qwen2_moe": Family(rules.switched_window, kv_heads_default=16),
    "qwen3": _QWEN3,
    "qwen3_moe": Family(rules.switched_window, kv_heads_default=4),
    "qwen3_vl_text": Family(kv_heads_default=32, head_dim_default=128),
    "qwen3_vl_moe_text": Family(kv_heads_default=16),
    "qwen3_next": replace(_DELTA, kv_heads_default=2),
    "qwen3_5_text": replace(_DELTA, kv_heads_default=4),
    "qwen3_5_moe_text": replace(_DELTA, kv_heads_default=2, inner_name="shared_expert_intermediate_size"),
    "mimo": Family(rules.switched_window),
    "phi3": Family(rules.one_window(None)),
    "gemma": replace(_GEMMA, kv_heads_default=16),
    "gemma2": replace(_GEMMA, layout=rules.patterned_window(2, 4096), kv_heads_default=4),
    "gemma3_text": replace(
        _GEMMA, layout=rules.patterned_window(6, 4096), kv_heads_default=4, vocab_size=262_208, max_position=131_072
    ),
    "gemma4_text": replace(_GEMMA, layout=rules.two_geometries, kv_heads_default=4),
    "glm": Family(kv_heads_default=2, head_dim_default=128),
    "glm4": Family(kv_heads_default=2, head_dim_default=128),
    "glm4_moe": Family(kv_heads_default=8),
    "olmo": Family(),
    "olmo2": Family(),
    "olmo3": Family(rules.patterned_window(4, 4096)),
    "cohere": Family(tied=True),
    "cohere2": Family(rules.patterned_window(4, 4096), tied=True),
    "granite": Family(),
    "smollm3": Family(kv_heads_default=4, tied=True),
    "starcoder2": Family(rules.one_window(None), kv_heads_default=2, tied=True),
    "baichuan": Family(),
    "internlm2": Family(),
    "internlm3": Family(kv_heads_default=2, head_dim_default=128),
    "minimax_m2": Family(kv_heads_default=8, head_dim_default=128),
    "gpt_oss": Family(rules.patterned_window(2, 128), kv_heads_default=8, head_dim_default=64),
    "llama4_text": Family(rules.chunked, kv_heads_default=8, head_dim_default=128),
    "deepseek_v2": _MLA,
    "deepseek_v3": _MLA,
    "kimi_k2": _MLA,
    "glm4_moe_lite": replace(_MLA, defaults={"first_k_dense_replace": 1}),
    "minicpm3": replace(_MLA, tied=True),
    "youtu": replace(_MLA, tied=True),
    "youtu_llm": replace(_MLA, tied=True),
    "sarvam_mla": _MLA,
    "axk1": _MLA,
    "longcat_flash": Family(
        rules.latent(attentions=2),
        inner_name="ffn_hidden_size",
        aliases={"num_layers": "num_hidden_layers", "moe_topk": "num_experts_per_tok"},
    ),
    "deepseek_v32": _DSA,
    "glm_moe_dsa": _DSA,
    "deepseek_v4": Family(
        rules.compressed, kv_heads_default=1, head_dim_default=512, inner_name="moe_intermediate_size"
    ),
    "kimi_linear": Family(rules.kimi_linear, kv_heads_default=32, aliases=_KIMI_NAMES),
    "bailing_hybrid": Family(rules.ling_hybrid, kv_heads_default=32, head_dim_default=128, aliases=_KIMI_NAMES),
    "jamba": Family(rules.jamba, kv_heads_default=8),
    "nemotron_h": Family(
        rules.pattern_string,
        kv_heads_default=8,
        head_dim_default=128,
        defaults={"mamba_ssm_cache_dtype": "float32"},
    ),
    "granitemoehybrid": Family(rules.mamba2_or_attention),
    "bamba": Family(rules.mamba2_or_attention, kv_heads_default=8),
    "falcon_h1": Family(rules.beside_mamba, kv_heads_default=8),
    "zamba": Family(rules.shared_attention_beside_mamba1, kv_heads_default=16, tied=True),
    "zamba2": Family(rules.shared_attention_beside_mamba2, tied=True, inner_factor=4),
    "mamba": Family(rules.every_layer_mamba1, attention_free=True, tied=True, inner_factor=2),
    "falcon_mamba": Family(rules.every_layer_mamba1, attention_free=True, tied=True, inner_factor=2),
    "mamba2": Family(rules.every_layer_mamba2, attention_free=True, inner_factor=2),
    "minimax": _MINIMAX,
    "minimax_text_01": _MINIMAX,
    "minimax_m1": _MINIMAX,
    "recurrent_gemma": Family(rules.griffin, tied=True),
    "lfm2": Family(
        rules.conv_or_attention,
        kv_heads_default=8,
        tied=True,
        aliases={"block_ff_dim": "intermediate_size", "tie_embedding": "tie_word_embeddings"},
    ),
    "lfm2_moe": Family(
        rules.conv_or_attention, kv_heads_default=8, tied=True, aliases={"tie_embedding": "tie_word_embeddings"}
    ),
    "olmo_hybrid": Family(rules.delta_at_ends),
    "mimo_v2_flash": Family(rules.wider_windows, kv_heads_default=4, head_dim_default=192),
    "falcon": Family(tied=True, multi_query=True, inner_name="ffn_hidden_size", inner_factor=4, max_position=2048),
    "gpt2": _GPT,
    "gptj": replace(_GPT, tied=False),
    "gpt_neox": Family(),
    "bloom": _GPT,
    "opt": Family(tied=True, inner_name="ffn_dim"),
}

INNER_TYPE = {
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "llama4": "llama4_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "kimi_k25": "deepseek_v3",
    "kimi_vl": "deepseek_v3",
}


def family_of(outer: Fields, plain_attention: bool = False) -> tuple[Family, Fields]:
    """The family of a config and the section that describes its text model.

    InputError for an unknown model_type, unless `plain_attention`, which treats it as full attention and labels it so.
    """
    section = next((found for found in map(outer.section, TEXT_SECTIONS) if found), None)
    fields = section or outer
    outer_type = outer.text("model_type")
    model_type = fields.text("model_type") or INNER_TYPE.get(outer_type, "")
    if section is None:
        model_type = INNER_TYPE.get(model_type, model_type)
    if model_type in FAMILIES:
        return FAMILIES[model_type], FAMILIES[model_type].complete(fields)
    if plain_attention:
        return Family(label=f"model_type {model_type[:60]!r} is unknown: treated as full attention, as asked"), fields
    if not model_type:
        raise InputError(fields.where + "model_type", "missing", "the model_type of a known architecture")
    raise InputError(fields.where + "model_type", model_type[:60], ", ".join(sorted(FAMILIES)))
