"""Child: this project's engine, through its own interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from protocol import serve

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.memory_readings import process_peak_bytes
from core_engine.model.loader import load_model
from core_engine.request import SamplingParams


class Ours:
    """One engine for every request; nothing is shared between prompts."""

    def __init__(self, options: dict[str, Any]) -> None:
        config = EngineConfig.from_settings(options)
        loaded = load_model(config)
        loading_peak_bytes = process_peak_bytes()  # an engine starts the reading anew
        self._engine = Engine(config, loaded)
        self.about = {
            "decoder": type(loaded.decoder).__name__,
            "loading_peak_bytes": loading_peak_bytes,
            "threads": self._engine.environment.get("threads"),
        }

    def generate(self, prompts: list[list[int]], new_tokens: int, took: Callable[[int, int], None]) -> None:
        params = SamplingParams(max_tokens=new_tokens, ignore_eos=True)
        place = {self._engine.add(prompt, params): index for index, prompt in enumerate(prompts)}
        while self._engine.has_unfinished():
            for output in self._engine.step():
                for token in output.token_ids:
                    took(place[output.request_id], token)
        self._engine.clear_history()


if __name__ == "__main__":
    serve(Ours)
