"""A whole Engine over a RooflineExecutor: for what needs records, text and metrics of a run, a comparison say.

The stand-in for a loaded model has its shape and name and no weights; its tokenizer is one token a byte. Imports torch,
as the engine does; Replica does without.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import torch

from core_engine.clock import VirtualClock
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor.roofline_executor import Acceptance, RooflineExecutor, SimulatedMemory, SimulatedProposer
from core_engine.kernels.choice import KernelChoice
from ledger.model_spec import ModelSpec
from ledger.step_time import StepTimes


class NumberedTokenizer:
    """Text as bytes in, numbers out: a simulated token has no text of its own."""

    eos_token_ids: tuple[int, ...] = ()
    byte_tokens: ClassVar[dict[int, int]] = {}
    token_bytes = None

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def encode(self, text: str) -> list[int]:
        """One token a byte of UTF-8."""
        return [byte % self.vocab_size for byte in text.encode()]

    def decode(self, ids: Any) -> str:
        """One character a token, so that text costs as little as it can."""
        return "." * len(ids)

    def apply_chat_template(self, messages: Any) -> list[int]:
        """The messages' texts, one after another."""
        return self.encode("".join(message["content"] for message in messages))


@dataclass(frozen=True)
class _Weights:
    dtype: torch.dtype
    bytes: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def num_bytes(self) -> int:
        return self.bytes


def simulated_engine(
    config: EngineConfig,
    times: StepTimes,
    memory: SimulatedMemory,
    *,
    tokenizer: Any = None,
    acceptance: Acceptance | None = None,
    max_position: int | None = None,
) -> Engine:
    """An engine of the model of `times` on a virtual clock. tokenizer: the real one, where texts have to be drawn."""
    clock, spec = VirtualClock(), times.spec
    executor = RooflineExecutor(times, memory, clock, acceptance=acceptance)
    proposer = None if acceptance is None else SimulatedProposer(clock, acceptance)
    loaded = _stand_in(spec, memory, max_position or spec.max_position or 1 << 40, tokenizer)
    engine = Engine(config, loaded, clock=clock, executor=executor, proposer=proposer)
    engine.environment["simulated"] = times.profile.to_json()
    return engine


def _stand_in(spec: ModelSpec, memory: SimulatedMemory, max_position: int, tokenizer: Any) -> Any:
    return cast(
        Any,
        SimpleNamespace(
            name=spec.name,
            tokenizer=tokenizer or NumberedTokenizer(spec.vocab_size),
            spec=spec,
            runtime_bytes=None,
            decoder=SimpleNamespace(spec=SimpleNamespace(max_position=max_position), formats={}),
            weights=_Weights(torch.float32, memory.weights_bytes),
            scheme=None,
            quantizing=None,
            kernels=KernelChoice("simulated", "no weights"),
        ),
    )
