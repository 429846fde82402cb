"""Greedy choices in bf16: those of the reference wherever its two largest logits are far enough apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from core_engine.config import EngineConfig
from core_engine.executor.torch_executor import TorchExecutor
from core_engine.model.loader import load_model
from core_engine.plan import GREEDY, Row, StepPlan

PROMPTS = (
    "The history of the city begins with a river, and",
    "def merge_sort(values):\n",
    "Q: What is the boiling point of water at sea level?\nA:",
    "Once upon a time there was a lighthouse keeper who",
    "The three most important ideas in economics are",
)
NEW_TOKENS, BLOCK_SIZE = 64, 16
# The lead of a choice that no rounding seen here takes away: 320 leads differed by at most 0.05 from the reference's
# where KV alone is rounded, by 0.40 where activations are as well (median 0.06).
KV_ROUNDED, ALL_ROUNDED = 0.1, 0.6


def reference_choices(model: Any, prompt: list[int]) -> tuple[list[int], list[float]]:
    """The reference's greedy ids after the prompt, and by how much each of them led."""
    ids, margins = list(prompt), []
    with torch.inference_mode():
        for _ in range(NEW_TOKENS):
            top = model(torch.tensor([ids])).logits[0, -1].topk(2)
            margins.append(float(top.values[0] - top.values[1]))
            ids.append(int(top.indices[0]))
    return ids[len(prompt) :], margins


def forced_choices(executor: TorchExecutor, prompt: list[int], following: list[int]) -> list[int]:
    """What our engine chooses after the prompt and after each of `following`, whatever it chose before."""
    blocks = tuple(range(-(-(len(prompt) + len(following)) // BLOCK_SIZE)))
    chosen: list[int] = []
    for tokens, start in [(tuple(prompt), 0), *(((token,), len(prompt) + i) for i, token in enumerate(following[:-1]))]:
        row = Row("r", start, tokens, blocks, start == 0, GREEDY)
        token = executor.execute(StepPlan(index=len(chosen), rows=(row,), reserved=())).tokens[0]
        assert token is not None
        chosen.append(token)
    return chosen


@pytest.mark.slow
@pytest.mark.parametrize("kernels", ["torch", "auto"])
def test_bf16_gives_the_reference_ids_wherever_the_margin_is_clear(embedded_dir: Path, kernels: str) -> None:
    from transformers import AutoModelForCausalLM

    # The weights as bf16 holds them, computed in fp32: what is left is the rounding of KV, and of activations.
    model = AutoModelForCausalLM.from_pretrained(embedded_dir, dtype=torch.bfloat16).eval().float()
    loaded = load_model(EngineConfig.from_settings({"dtype": "bf16", "kernels": kernels}))
    executor = TorchExecutor(loaded.decoder, block_size=BLOCK_SIZE, kv_memory_bytes=16 * 2**20)
    compiled = loaded.kernels.kernels == "compiled" and not loaded.kernels.bf16_pairs
    enough = KV_ROUNDED if compiled else ALL_ROUNDED
    clear = wrong = near = 0
    for text in PROMPTS:
        prompt = loaded.tokenizer.encode(text)
        ids, margins = reference_choices(model, prompt)
        for mine, theirs, margin in zip(forced_choices(executor, prompt, ids), ids, margins, strict=True):
            clear += margin > enough
            wrong += mine != theirs and margin > enough
            near += mine != theirs and margin <= enough
    assert wrong == 0
    assert clear > 0.7 * len(PROMPTS) * NEW_TOKENS  # or equal ids would say little
    assert near < 0.1 * len(PROMPTS) * NEW_TOKENS
