"""Tables of tensors by model_type: which parameters the text model holds, by Hugging Face name. Knows shapes only.

Experts are stacked, as transformers 5 holds them. A tied head is left out; vision towers and prediction layers are
not listed.
"""

from __future__ import annotations

from collections.abc import Callable

from ledger.model_spec import ModelSpec
from ledger.tensors import classic, gated, hybrid, latent, linear_attention, state_space
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
    "deepseek_v2": latent.deepseek,
    "deepseek_v3": latent.deepseek,
    "kimi_k2": latent.deepseek,
    "glm4_moe_lite": latent.deepseek,
    "sarvam_mla": latent.deepseek,
    "axk1": latent.axk1,
    "minicpm3": latent.dense,
    "youtu": latent.dense,
    "youtu_llm": latent.dense,
    "longcat_flash": latent.longcat,
    "deepseek_v32": latent.sparse,
    "glm_moe_dsa": latent.sparse,
    "deepseek_v4": latent.deepseek_v4,
    "kimi_linear": latent.kimi_linear,
    "bailing_hybrid": latent.ling_hybrid,
    "jamba": state_space.jamba,
    "nemotron_h": state_space.nemotron_h,
    "granitemoehybrid": state_space.granite_hybrid,
    "bamba": state_space.bamba,
    "falcon_h1": state_space.falcon_h1,
    "zamba": state_space.zamba,
    "zamba2": state_space.zamba2,
    "mamba": state_space.mamba1,
    "falcon_mamba": state_space.mamba1,
    "mamba2": state_space.mamba2,
    "qwen3_5_text": linear_attention.qwen3_5,
    "qwen3_5_moe_text": linear_attention.qwen3_5_moe,
    "qwen3_next": linear_attention.qwen3_next,
    "olmo_hybrid": linear_attention.olmo_hybrid,
    "minimax": linear_attention.minimax,
    "minimax_text_01": linear_attention.minimax,
    "minimax_m1": linear_attention.minimax,
    "recurrent_gemma": linear_attention.recurrent_gemma,
    "lfm2": linear_attention.lfm2,
    "lfm2_moe": linear_attention.lfm2_moe,
    "gemma4_text": hybrid.gemma4,
    "mimo_v2_flash": hybrid.mimo_v2,
    "gpt2": classic.gpt2,
    "gptj": classic.gptj,
    "gpt_neox": classic.gpt_neox,
    "opt": classic.opt,
    "falcon": classic.falcon,
}
