"""A canary: part of the traffic goes to a second engine, and all of it back when that one breaks an objective.

Owns the split, the samples of both arms over a sliding window, and the rule. Knows no engine, no HTTP and no clock of
its own, so that the rule is tested on made times.

The rule. A is the engine as it is, B the one on trial. Every second each objective is judged that has at least
`min_count` samples of both arms within the window. B breaks it when its value is over the limit and either A's is
not, or B's is more than WORSE_BY times A's. What both break alike is a breach of the machine or of the load: it is
shown as shared and rolls nothing back, since A would not serve those requests better. An engine that is broken as a
whole is rolled back at once. The rule acts on the values as they are, without waiting for significance: to send
traffic back to the engine that served it before costs little, to go on with a bad one costs requests.

Latencies are measured on the arm's own clock, which stands still while the other arm computes: both use the same
cores in turns, so B being slow would otherwise slow A as much, and look like a breach of both.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.metrics.objectives import LATENCIES, Objective
from experiments.statistics import percentile
from ledger.errors import InputError

WORSE_BY = 1.1
JUDGE_EVERY_NS = 1_000_000_000
MOST_SAMPLES = 50_000  # a kind and arm; beyond, the oldest go before the window ends
ARMS = ("A", "B")


@dataclass(frozen=True)
class CanaryPlan:
    """share: of the requests that go to B, between 0 and 1; window_s and min_count: see the module."""

    share: float
    objectives: tuple[Objective, ...]
    window_s: float = 60.0
    min_count: int = 20

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InputError("--canary-share", self.share, "a number between 0 and 1, as 0.1")
        if not self.objectives:
            raise InputError("--slo", "", "at least one objective for a canary, as ttft_p95=0.5")
        for objective in self.objectives:
            if objective.latency is None and objective.name != "error_rate":
                raise InputError("--slo", objective.name, f"latencies ({', '.join(LATENCIES)}) and error_rate here")
        if not self.window_s > 0:
            raise InputError("--canary-window", self.window_s, "a number of seconds above 0")
        if self.min_count < 1:
            raise InputError("--canary-min-requests", self.min_count, "a whole number from 1 up")


class _Samples:
    """Values with their times, of which only those of the window count."""

    def __init__(self, window_ns: int) -> None:
        self._window_ns = window_ns
        self._held: deque[tuple[int, float]] = deque(maxlen=MOST_SAMPLES)

    def add(self, at_ns: int, value: float) -> None:
        self._held.append((at_ns, value))

    def values(self, now_ns: int) -> list[float]:
        while self._held and self._held[0][0] < now_ns - self._window_ns:
            self._held.popleft()
        return [value for _, value in self._held]


@dataclass(frozen=True)
class Judged:
    """One objective in both arms: values (None without samples), counts, and what follows.

    state: "waiting" (too few samples), "met", "shared" (broken in A alike) or "broken".
    """

    name: str
    limit: float
    a: float | None
    b: float | None
    num_a: int
    num_b: int
    state: str


class Canary:
    """now_ns: the clock of all times; on_roll_back is told once, with what brought it about."""

    def __init__(
        self,
        plan: CanaryPlan,
        now_ns: Callable[[], int],
        on_roll_back: Callable[[dict[str, Any]], None] = lambda _: None,
        seed: int = 0,
    ) -> None:
        self.plan = plan
        self.share = plan.share
        self.rolled_back: dict[str, Any] | None = None
        self.counts = [0, 0]  # requests sent to each arm
        self._now_ns, self._on_roll_back = now_ns, on_roll_back
        self._random = random.Random(seed)
        window_ns = int(plan.window_s * 1e9)
        kinds = (*LATENCIES, "error_rate")
        self._samples = [{kind: _Samples(window_ns) for kind in kinds} for _ in ARMS]
        self._judged_ns = now_ns()

    def choose(self) -> int:
        """The arm of the next request: 0 is A, 1 is B."""
        arm = int(self._random.random() < self.share)
        self.counts[arm] += 1
        return arm

    def latency(self, arm: int, kind: str, value_s: float) -> None:
        """A sample of ttft, tpot, itl or e2e."""
        self._samples[arm][kind].add(self._now_ns(), value_s)

    def ended(self, arm: int, *, failed: bool) -> None:
        """A request that was answered, or that failed for another reason than its client's."""
        self._samples[arm]["error_rate"].add(self._now_ns(), float(failed))

    def judge(self, broken: str | None = None) -> None:
        """Roll back when B breaks an objective; looks at most once a second. broken: why B's engine is, if it is."""
        if self.rolled_back is not None:
            return
        if broken is not None:
            self._roll_back({"objective": None, "reason": broken})
            return
        now_ns = self._now_ns()
        if now_ns - self._judged_ns < JUDGE_EVERY_NS:
            return
        self._judged_ns = now_ns
        for judged in self.look():
            if judged.state == "broken":
                values = f"{judged.name} is {judged.b:.4g} in B and {judged.a:.4g} in A"
                self._roll_back(
                    {"objective": judged.name, "reason": f"{values}; limit {judged.limit:g}", **vars(judged)}
                )
                return

    def look(self) -> list[Judged]:
        """Every objective as it stands now."""
        return [self.judged(objective) for objective in self.plan.objectives]

    def judged(self, objective: Objective) -> Judged:
        """One objective as it stands now."""
        now_ns = self._now_ns()
        kind = objective.latency or objective.name
        of_a, of_b = (samples[kind].values(now_ns) for samples in self._samples)
        a, b = statistic(objective, of_a), statistic(objective, of_b)
        if a is None or b is None or min(len(of_a), len(of_b)) < self.plan.min_count:
            state = "waiting"
        elif b <= objective.limit:
            state = "met"
        else:
            state = "broken" if a <= objective.limit or b > a * WORSE_BY else "shared"
        return Judged(objective.name, objective.limit, a, b, len(of_a), len(of_b), state)

    def _roll_back(self, why: dict[str, Any]) -> None:
        self.share = 0.0
        self.rolled_back = {**why, "at_ns": self._now_ns()}
        self._on_roll_back(self.rolled_back)

    def status(self) -> dict[str, Any]:
        """For GET /canary."""
        return {
            "state": "watching" if self.rolled_back is None else "rolled back",
            "share": self.share,
            "planned_share": self.plan.share,
            "window_s": self.plan.window_s,
            "min_requests": self.plan.min_count,
            "requests": dict(zip(ARMS, self.counts, strict=True)),
            "objectives": [
                {
                    "name": j.name, "limit": j.limit, "state": j.state,
                    "A": {"value": j.a, "n": j.num_a}, "B": {"value": j.b, "n": j.num_b},
                }
                for j in self.look()
            ],
            "rolled_back": self.rolled_back,
        }  # fmt: skip


def statistic(objective: Objective, values: Sequence[float]) -> float | None:
    """The objective's value over samples: their mean or a percentile; an error rate is a mean. None without any."""
    name = "mean" if objective.latency is None else objective.name.rsplit("_", 1)[1]
    if not values:
        return None
    return sum(values) / len(values) if name == "mean" else percentile(values, float(name[1:]))
