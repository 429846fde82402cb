"""RooflineExecutor: an executor without weights, whose steps move a virtual clock by what ledger/step_time.py says.

Tokens are numbers that depend on the request's seed and the position alone, so that a resumed answer goes on as it was.
Of a row's drafts as many are accepted as a counted random stream says of a measured acceptance rate. Scores and hidden
states it has none. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from core_engine.clock import NS, VirtualClock
from core_engine.plan import Row, StepPlan, StepResult
from core_engine.random_stream import uniform
from core_engine.speculation.proposer import Ask, Draft
from ledger.errors import InputError
from ledger.step_time import StepTimes

PRIME = 2_654_435_761  # spreads a seed and a position over the vocabulary


@dataclass(frozen=True)
class SimulatedMemory:
    """What the KV pool and the accounts beside it hold, bytes; from the ledger's formulas."""

    num_blocks: int
    block_bytes: int
    weights_bytes: int = 0
    tail_bytes: int = 0
    activation_peak_bytes: int = 0


@dataclass(frozen=True)
class Acceptance:
    """Speculation as it was measured elsewhere: alpha, the share of tested drafts that is accepted, and what a draft of
    k tokens for a whole batch takes, k times draft_s."""

    alpha: float
    draft_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise InputError("acceptance", self.alpha, "a share from 0 to 1")
        if not 0 <= self.draft_s < float("inf"):
            raise InputError("draft_s", self.draft_s, "seconds, 0 or more")


class RooflineExecutor:
    """Times from `times`, or from `duration` where that is given: seconds of a plan, to replay recorded ones."""

    provenance = "simulated"
    runs_ahead = False

    def __init__(
        self,
        times: StepTimes,
        memory: SimulatedMemory,
        clock: VirtualClock,
        *,
        acceptance: Acceptance | None = None,
        duration: Callable[[StepPlan], float] | None = None,
    ) -> None:
        self.num_blocks = memory.num_blocks
        self.needs_hidden = False
        self.times = times
        self.memory = memory
        self._clock = clock
        self._alpha = 0.0 if acceptance is None else acceptance.alpha
        self._duration = duration or self.step_s
        self._vocab_size = times.spec.vocab_size

    def execute(self, plan: StepPlan) -> StepResult:
        """Pass the step's time; what it gives follows from positions and seeds."""
        self._clock.pass_ns(max(1, round(self._duration(plan) * NS)))
        tokens: list[int | None] = []
        accepted: list[int] = []
        for row in plan.rows:
            if row.targets:
                raise InputError("score", "a scoring request", "generation only: a simulated model has no scores")
            right = self._accepted(row) if row.num_drafts else 0
            sampling, position = row.sampling, row.start + len(row.tokens) - row.num_drafts + right
            tokens.append(None if sampling is None else self.token(sampling.seed, position))
            accepted.append(right)
        scores = ((),) * len(tokens)
        return StepResult(tuple(tokens), scores, accepted=tuple(accepted) if any(accepted) else ())

    def step_s(self, plan: StepPlan) -> float:
        """Seconds of a plan by the model of step times."""
        return self.times.step_s(self.times.shape(map(_measures, plan.rows)))

    def token(self, seed: int, position: int) -> int:
        """The token at a position of an answer."""
        return (seed + position) * PRIME % self._vocab_size

    def tokens(self, seed: int, position: int, count: int) -> list[int]:
        """`token` of `count` positions from there on."""
        first, vocab = seed + position, self._vocab_size
        return [place * PRIME % vocab for place in range(first, first + count)]

    def _accepted(self, row: Row) -> int:
        assert row.sampling is not None
        seed, sample = row.sampling.seed, row.sampling.sample_index
        for place in range(row.num_drafts):
            if uniform(seed, row.next_position + place, sample_index=sample, purpose="accept") >= self._alpha:
                return place
        return row.num_drafts

    def kv_pool_bytes(self) -> int:
        """Bytes that the pool would take."""
        return self.num_blocks * self.memory.block_bytes

    def kv_tail_bytes(self) -> int:
        """Bytes of full-precision blocks beside it."""
        return self.memory.tail_bytes

    def padding_bytes(self) -> int:
        """Bytes of a block that padding tokens would write to."""
        return self.memory.block_bytes

    def activation_peak_bytes(self) -> int:
        """The ledger's peak, and the padding block."""
        return self.memory.activation_peak_bytes + self.padding_bytes()


def _measures(row: Row) -> tuple[int, int, int, bool]:
    """(start, count, rows of logits, whether it is a piece of a prompt) of a row."""
    wanted = 0 if row.sampling is None else 1 + row.num_drafts
    return row.start, len(row.tokens), wanted, row.is_prefill


@dataclass
class SimulatedProposer:
    """Proposes as many tokens as it is asked for, and passes the time that this takes; how many are right is the
    executor's to draw."""

    clock: VirtualClock
    acceptance: Acceptance
    needs_hidden: bool = field(default=False, init=False)

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """A draft of full length for each ask, of token 0; the drafts of a batch are made together."""
        if asks and self.acceptance.draft_s:
            self.clock.pass_ns(round(self.acceptance.draft_s * max(ask.k for ask in asks) * NS))
        return [Draft((0,) * ask.k) for ask in asks]

    def observe(self, rows: Sequence[Row], hidden: object) -> None:
        """It looks at no hidden states."""

    def release(self, request_id: str) -> None:
        """It keeps nothing of a sequence."""

    def weights_bytes(self) -> int:
        """It has none."""
        return 0

    def cache_bytes(self) -> int:
        """It has none."""
        return 0
