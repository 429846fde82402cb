"""Tables of tensors by model_type: which parameters the text model holds, by Hugging Face name. Knows shapes only.

Experts are stacked, as transformers 5 holds them. A tied head is left out; vision towers and prediction layers are
not listed.
"""

from __future__ import annotations

from collections.abc import Callable

from ledger.model_spec import ModelSpec
from ledger.tensors import classic, gated, hybrid
from ledger.tensors.base import Tensors

TABLES: dict[str, Callable[[ModelSpec], Tensors]] = {
    "llama": gated.llama,
    "mistral": gated.plain,
    "baichuan": gated.plain,
    "internlm2": gated.plain,
    "qwen2": gated.qwen2,
    "qwen3": gated.qwen3,
    "qwen3_vl_text": gated.qwen3,
    "mimo": gated.mimo,
    "phi3": gated.phi3,
    "glm4": gated.glm4,
    "olmo2": gated.olmo,
    "olmo3": gated.olmo,
    "cohere": gated.cohere,
    "gemma": gated.gemma,
    "gemma2": gated.gemma2,
    "gemma3_text": gated.gemma3,
    "mixtral": gated.mixtral,
    "minimax_m2": gated.minimax,
    "qwen3_moe": gated.qwen3_moe,
    "gpt_oss": gated.gpt_oss,
    "llama4_text": gated.llama4,
    "deepseek_v2": gated.deepseek,
    "deepseek_v3": gated.deepseek,
    "kimi_k2": gated.deepseek,
    "jamba": hybrid.jamba,
    "nemotron_h": hybrid.nemotron_h,
    "qwen3_5_text": hybrid.qwen3_5,
    "gemma4_text": hybrid.gemma4,
    "gpt2": classic.gpt2,
    "gptj": classic.gptj,
    "gpt_neox": classic.gpt_neox,
    "opt": classic.opt,
    "falcon": classic.falcon,
}
