"""Child: vLLM's engine on the CPU, stepped by hand so that every token has its time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import torch
import vllm
from protocol import serve
from vllm import EngineArgs, LLMEngine, SamplingParams
from vllm.sampling_params import RequestOutputKind


class Vllm:
    """options: what EngineArgs takes."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._engine = LLMEngine.from_engine_args(EngineArgs(**options))
        self._numbers = count()
        self.about = {"vllm": vllm.__version__, "torch": torch.__version__}

    def generate(self, prompts: list[list[int]], new_tokens: int, took: Callable[[int, int], None]) -> None:
        params = SamplingParams(
            temperature=0.0,
            max_tokens=new_tokens,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        place: dict[str, int] = {}
        for index, prompt in enumerate(prompts):
            name = str(next(self._numbers))
            place[name] = index
            self._engine.add_request(name, {"prompt_token_ids": prompt}, params)
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                for token in output.outputs[0].token_ids:
                    took(place[output.request_id], token)


if __name__ == "__main__":
    serve(Vllm)
