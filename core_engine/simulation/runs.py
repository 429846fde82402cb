"""Runs: decode steps that can only go one way, passed in one go.

While every running request computes its newest token, nobody can be admitted and the blocks suffice, the next steps are
known until the first answer ends: each row gets a token. (Who did not fit into the last step fits into none of these:
they free nothing, and what they publish are answers, which no prompt in the queue begins with.) Their times follow from
how many tokens of context there are, for all of them at once. What they change is then made up for: tokens, blocks in
the order in which steps would have taken them, prefixes in the order in which steps would have published them. Steps
taken one by one lead to the same state, to the nanosecond; tests compare the two event for event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from core_engine.clock import NS
from core_engine.request import Request, State
from ledger.step_time import Ends

if TYPE_CHECKING:
    from core_engine.simulation.replica import Replica

ARRAYS = Ends(np.maximum, np.minimum)
FEWEST = 2  # shorter runs cost as much to foresee as to take


@dataclass
class Run:
    """ends_ns: when each of the steps ends; the first begins at start_ns."""

    rows: list[Request]
    start_ns: int
    ends_ns: np.ndarray
    last_ns: int = field(init=False)  # when the last one begins

    def __post_init__(self) -> None:
        self.last_ns = int(self.ends_ns[-2])  # there are FEWEST of them at least

    @property
    def steps(self) -> int:
        """How many there are."""
        return len(self.ends_ns)

    def is_over(self, moment_ns: int) -> bool:
        """Whether the last step begins before a moment. Asked of every replica at every arrival."""
        return self.last_ns < moment_ns

    def begun(self, moment_ns: int) -> int:
        """Steps that begin before a moment."""
        if self.start_ns >= moment_ns:
            return 0
        return min(self.steps, 1 + int(np.searchsorted(self.ends_ns, moment_ns, side="left")))

    def apply(self, replica: Replica, steps: int) -> None:
        """Bring the replica to where the first `steps` of them lead."""
        self._emit(replica, steps)
        size, layout, tokens = replica.config.block_size, replica.scheduler.layout, replica.executor.tokens
        events: list[tuple[int, int, int]] = []  # (step, 0 take a block or 1 publish, row), as a step does
        computed = []
        for place, request in enumerate(self.rows):
            done = request.num_computed
            computed.append(done)
            length = len(request.tokens)
            request.tokens += tokens(request.seed, length, steps)
            for step in range(len(request.blocks) * size - done + 1, steps + 1, size):
                events.append((step, 0, place))
            for step in range(size - done % size, steps + 1, size):
                events.append((step, 1, place))
        for step, what, place in sorted(events):
            request = self.rows[place]
            if what:
                request.num_computed = computed[place] + step
                layout.publish(request)
            else:
                taken = layout.grow(request, computed[place] + step)
                assert taken is not None, "a run was foreseen beyond the free blocks"
        for place, request in enumerate(self.rows):
            request.num_computed = computed[place] + steps
        layout.drain()
        replica.scheduler.pass_steps(steps)
        replica.clock.reach_ns(int(self.ends_ns[steps - 1]))

    def _emit(self, replica: Replica, steps: int) -> None:
        first_ns = int(self.ends_ns[0])
        if steps > 1:
            replica.gaps.add_all(np.diff(self.ends_ns[:steps]), len(self.rows))
        last = (int(self.ends_ns[steps - 1]), 1)
        events = [(int(moment), 1) for moment in self.ends_ns[:steps]] if replica.keep_events else []
        for request in self.rows:
            emissions = request.log.emissions
            replica.gaps.add(first_ns - emissions[-1][0])
            if replica.keep_events:
                emissions.extend(events)
            elif len(emissions) < 2:
                emissions.append(last)
            else:
                emissions[1] = last


def foreseen_run(replica: Replica) -> Run | None:
    """The steps up to the one before the first answer ends; None where there are fewer than FEWEST, or one may bring
    anything but a token to every row."""
    scheduler = replica.scheduler
    rows = scheduler.running
    if not rows or len(rows) > scheduler.max_num_batched_tokens:
        return None
    if scheduler.could_admit(replica.clock.now_ns()) and not replica.is_blocked:
        return None
    left = 1 << 60
    for request in rows:
        if request.state is not State.RUNNING or len(request.tokens) - request.num_computed != 1:
            return None
        if not request.log.emissions:  # the whole prompt was found but for a token that is still to be sampled from
            return None
        answer, total = request.params.answer_tokens, min(request.max_total_tokens, replica.most_tokens)
        left = min(left, total - len(request.tokens))
        if answer is not None:
            left = min(left, answer - request.num_output_tokens)
    steps = left - 1
    if steps < FEWEST or _blocks_needed(replica, rows, steps) > replica.pool.num_available:
        return None
    durations = np.maximum(1, np.rint(_step_seconds(replica, rows, steps) * NS)).astype(np.int64)
    start_ns = replica.clock.now_ns()
    return Run(list(rows), start_ns, start_ns + np.cumsum(durations))


def _blocks_needed(replica: Replica, rows: list[Request], steps: int) -> int:
    size = replica.config.block_size
    return sum(max(0, -(-(request.num_computed + steps) // size) - len(request.blocks)) for request in rows)


def _step_seconds(replica: Replica, rows: list[Request], steps: int) -> np.ndarray:
    """Seconds of each of the next steps."""
    times, count = replica.executor.times, len(rows)
    if times.is_plain and times.split.pp == times.split.cp == 1:
        context = sum([request.num_computed for request in rows]) + count
        return times.decode_run_s(count, context + count * np.arange(steps, dtype=np.float64), ARRAYS)
    contexts = [request.num_computed for request in rows]
    return np.array(
        [times.step_s(times.shape((context + step, 1, 1, False) for context in contexts)) for step in range(steps)]
    )
