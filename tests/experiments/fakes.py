"""An engine without a model: the real scheduler and log around an executor that only moves a virtual clock.

Deterministic and fast, so that load generation, comparisons and jobs are tested apart from the speed of this machine.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import torch

from core_engine import clock as clocks
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.kernels.choice import KernelChoice
from core_engine.plan import Row, StepPlan, StepResult
from core_engine.speculation.artefact import KINDS
from ledger.errors import CannotRunError
from ledger.model_spec import ModelSpec

NS = 1_000_000_000
SPEC = ModelSpec.from_config(
    {
        "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 256,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 4096,
    }
)  # fmt: skip


class VirtualClock(clocks.VirtualClock):
    """Begins at 5 s, not at 0: the record's own 0 is the start of the run."""

    def __init__(self) -> None:
        super().__init__(5 * NS)


class ByteTokenizer:
    """One token a byte."""

    eos_token_ids: tuple[int, ...] = ()
    byte_tokens: ClassVar[dict[int, int]] = {}
    token_bytes = None
    vocab_size = 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode("latin-1")

    def apply_chat_template(self, messages: Sequence[dict[str, str]]) -> list[int]:
        return self.encode("".join(message["content"] for message in messages))


class FakeExecutor:
    """Takes `base_s` a step and `token_s` a token, times a noise; samples a token that depends on the position."""

    runs_ahead = False

    def __init__(
        self,
        clock: VirtualClock,
        config: EngineConfig,
        *,
        base_s: float = 0.010,
        token_s: float = 0.001,
        noise: Callable[[], float] = lambda: 1.0,
        logprob: float = -1.0,
    ) -> None:
        self.num_blocks = config.kv_memory_mib * 64 // config.block_size
        self._clock = clock
        self._base_s, self._token_s, self._noise, self._logprob = base_s, token_s, noise, logprob

    def kv_pool_bytes(self) -> int:
        return self.num_blocks * 1024

    def padding_bytes(self) -> int:
        return 0

    def kv_tail_bytes(self) -> int:
        return 0

    def activation_peak_bytes(self) -> int:
        return 1000

    def execute(self, plan: StepPlan) -> StepResult:
        tokens = sum(row.count for row in plan.rows)
        self._clock.sleep((self._base_s + self._token_s * tokens) * self._noise())
        accepted = tuple(map(_accepted, plan.rows))
        return StepResult(
            tokens=tuple(
                _token(row.next_position + count) if row.sample else None
                for row, count in zip(plan.rows, accepted, strict=True)
            ),
            scores=tuple(tuple(self._logprob for target in row.targets if target >= 0) for row in plan.rows),
            accepted=accepted,
        )


def _token(position: int) -> int:
    """The token that the fake model has at a position, whatever came before."""
    return 65 + position % 26


def _accepted(row: Row) -> int:
    """Drafts of a row that come before the first wrong one."""
    right = [draft == _token(row.next_position + place) for place, draft in enumerate(row.drafts)]
    return [*right, False].index(False)


def fake_loaded() -> Any:
    """What an engine asks of a loaded model."""
    return SimpleNamespace(
        name="fake",
        tokenizer=ByteTokenizer(),
        spec=SPEC,
        runtime_bytes=None,
        decoder=SimpleNamespace(spec=SimpleNamespace(max_position=4096), formats={}),
        weights=SimpleNamespace(dtype=torch.float32, device=torch.device("cpu"), num_bytes=lambda: 4),
        scheme=None,
        quantizing=None,
        kernels=KernelChoice("fake", "no weights"),
    )


class FakeRig:
    """Stands in for experiments.rig.Rig. `speed` gives an executor's keywords for a configuration."""

    def __init__(
        self,
        clock: VirtualClock,
        *,
        seed: int = 0,
        noise: float = 0.0,
        speed: Callable[[EngineConfig], dict[str, float]] = lambda _: {},
    ) -> None:
        self.clock = clock
        self.made: list[EngineConfig] = []
        self._random = random.Random(seed)
        self._noise = noise
        self._speed = speed

    def engine(self, config: EngineConfig, proposer: Any = None) -> Engine:
        if proposer is None and config.speculation in KINDS:
            raise CannotRunError("draft_model: no trained draft knows a model without weights")
        self.made.append(config)
        # A run's own level and a step's own jitter, as a real machine has both.
        level = self._random.lognormvariate(0, self._noise)
        executor = FakeExecutor(
            self.clock,
            config,
            noise=lambda: level * self._random.lognormvariate(0, self._noise / 4),
            **self._speed(config),
        )
        return Engine(config, fake_loaded(), clock=self.clock, executor=executor, proposer=proposer)

    def tokenizer(self, config: EngineConfig) -> ByteTokenizer:
        return ByteTokenizer()
