"""Child: transformers' `generate`, all prompts as one batch of equal lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from protocol import serve
from transformers import AutoModelForCausalLM, StoppingCriteria, StoppingCriteriaList


class _EveryStep(StoppingCriteria):
    """Called after every step with all ids so far; never stops."""

    def __init__(self, took: Callable[[int, int], None]) -> None:
        self._took = took

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        for index, token in enumerate(input_ids[:, -1].tolist()):
            self._took(index, token)
        return torch.zeros(len(input_ids), dtype=torch.bool)


class Transformers:
    """options: model (directory), threads, dtype, attention, compile, and what else `generate` is to be given."""

    def __init__(self, options: dict[str, Any]) -> None:
        torch.set_num_threads(options["threads"])
        self._model = AutoModelForCausalLM.from_pretrained(
            options["model"],
            dtype=getattr(torch, options["dtype"]),
            attn_implementation=options["attention"],
            local_files_only=True,
        ).eval()
        if options.get("compile"):
            self._model.forward = torch.compile(self._model.forward, dynamic=True)
        self._generate = options.get("generate", {})
        self.about = {"transformers": transformers.__version__, "torch": torch.__version__}

    @torch.inference_mode()
    def generate(self, prompts: list[list[int]], new_tokens: int, took: Callable[[int, int], None]) -> None:
        ids = torch.tensor(prompts)
        self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=new_tokens,
            eos_token_id=None,
            pad_token_id=0,
            stopping_criteria=StoppingCriteriaList([_EveryStep(took)]),
            **self._generate,
        )


if __name__ == "__main__":
    serve(Transformers)
