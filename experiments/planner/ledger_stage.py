"""What arithmetic says before anything is simulated: which candidates cannot be, and how good the others look.

A candidate is dropped here only for what its own simulation could not show otherwise: it can't be split so, it does not
fit by the ledger, one request alone misses an objective by the simulator's own step times, or more cards are needed
than there are even if prompts and answers cost nothing beside each other. Everything else is an estimate that orders
what is simulated, and is said to be one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from experiments.planner.candidates import Candidate, candidates, cannot_be_split
from experiments.planner.pruned import Pruned
from experiments.planner.spec import PlanSpec
from experiments.planner.traffic import PlanTraffic
from ledger.capacity import Deployment, max_concurrency
from ledger.device_profile import device_profile
from ledger.model_spec import ModelSpec
from ledger.step_time import Split, StepTimes

KEPT = ("groups", "stages", "width", "others")  # of a Deployment: what does not depend on its batching limits
# Of the prompts' lengths, the percentile that a statistic of TTFT can't be below; a mean is above the shortest's.
SHARES = {"mean": 0.0, "p50": 50.0, "p95": 95.0, "p99": 99.0}


@dataclass(frozen=True)
class Estimate:
    """A steady state by step times alone, as in ledger/serving.py with efficiencies in place of the roof.

    held: sequences of mean length that the pool holds; batch: at once under the objective on TPOT. rps: of one
    replica; most_rps: more than any order of the same work could give. prefill_s: of a mean prompt, decode_step_s: of
    a step of `batch` rows.
    """

    candidate: Candidate
    held: int
    batch: int
    rps: float
    most_rps: float
    prefill_s: float
    decode_step_s: float
    devices: int
    cost_per_hour: float
    exact_cost: float  # an hour, before whole replicas: of cards in fractions
    output_tokens: float

    @property
    def tokens_per_s_per_user(self) -> float:
        """1 / the time of a token at that batch, prompts beside it included."""
        return self.rps / self.batch * self.output_tokens

    @property
    def tokens_per_s_per_card(self) -> float:
        """Output tokens of one card."""
        return self.rps * self.output_tokens / (self.candidate.tp * self.candidate.pp)


class LedgerStage:
    """Owns the candidates of a spec and what became of each."""

    def __init__(self, spec: PlanSpec, model: ModelSpec, traffic: PlanTraffic) -> None:
        self.spec, self.model, self.traffic = spec, model, traffic
        self.pruned = Pruned()
        self.total = 0
        self._times = lru_cache(None)(self._step_times)
        self._deployments: dict[Candidate, Deployment] = {}

    def estimates(self) -> list[Estimate]:
        """Those that may be, the best first by cost; the others are counted in `pruned`."""
        found: dict[tuple[object, ...], Estimate] = {}
        for candidate in candidates(self.spec, self.model):
            self.total += 1
            reason = cannot_be_split(candidate, self.model)
            if reason is not None:
                self.pruned.add("split", candidate, reason)
                continue
            estimate = self._estimate(candidate)
            if estimate is None:
                continue
            # A limit that memory never lets a batch reach is the same plan as the next smaller one.
            slots = min(candidate.max_num_seqs, max(estimate.held, self.spec.seqs[0]))
            key = (candidate.shape, candidate.max_num_batched_tokens, slots)
            if key in found:
                self.pruned.add("same", candidate, f"memory holds {estimate.held:,} sequences, whatever max_num_seqs")
            else:
                found[key] = estimate
        return sorted(found.values(), key=lambda one: (one.cost_per_hour, one.exact_cost, -one.rps))

    def times(self, candidate: Candidate) -> StepTimes:
        """Step times of the candidate's replicas."""
        return self._times(candidate.shape)

    def held(self, candidate: Candidate, tokens: int) -> int:
        """Sequences of so many tokens that one replica holds."""
        return max_concurrency(self.deployment(candidate, tokens)) or 0

    def _estimate(self, candidate: Candidate) -> Estimate | None:
        traffic, spec = self.traffic, self.spec
        if not self.held(candidate, traffic.longest):
            card = device_profile(candidate.gpu).accelerator.label
            self.pruned.add("memory", candidate, f"{candidate.weights} weights leave no room for one request on {card}")
            return None
        times = self.times(candidate)
        if (told := self._misses_alone(candidate, times)) is not None:
            self.pruned.add(*told)
            return None
        held = self.held(candidate, traffic.mean_sequence)
        prefill_s = self.prompt_s(candidate, times)
        output, middle = traffic.mean_output, traffic.mean_sequence
        most = max(1, min(held, candidate.max_num_seqs))
        limit_s = self._limit("tpot")

        def tpot_s(batch: int) -> float:
            return decode_s(times, batch, middle) + batch * prefill_s / output

        batch = _largest(lambda count: tpot_s(count) <= limit_s, most) or 1
        step_s = decode_s(times, batch, middle)
        rps = 1 / (prefill_s + output * step_s / batch)
        most_step_s = decode_s(times, most, middle)
        most_rps = 1 / max(prefill_s, output * most_step_s / most)
        cards, price = candidate.tp * candidate.pp, spec.price(candidate.gpu)
        usable = 1 - spec.headroom
        fewest = math.ceil(spec.rate_rps / (most_rps * usable)) * cards
        if spec.max_devices is not None and fewest > spec.max_devices:
            self.pruned.add("devices", candidate, f"{fewest} cards at the very least, {spec.max_devices} are allowed")
            return None
        replicas = math.ceil(spec.rate_rps / (rps * usable))
        exact = spec.rate_rps / (rps * usable) * cards * price
        return Estimate(
            candidate, held, batch, rps, most_rps, prefill_s, step_s, replicas * cards, replicas * cards * price, exact,
            output,
        )  # fmt: skip

    def prompt_s(self, candidate: Candidate, times: StepTimes) -> float:
        """Seconds a mean prompt takes in steps that are full of prompts: least, since they share the weights."""
        tokens = max(1, round(self.traffic.mean_input))
        budget = candidate.max_num_batched_tokens
        together = max(1, budget // tokens)
        return prompts_s(times, tokens, together, budget) / together

    def _misses_alone(self, candidate: Candidate, times: StepTimes) -> tuple[str, Candidate, str] | None:
        """An objective that one request misses on an idle replica: nothing serves it faster."""
        for one in self.spec.objectives:
            if one.latency == "ttft":
                share = SHARES[one.name.rsplit("_", 1)[1]]
                tokens = max(1, int(self.traffic.percentile_input(share)))
                alone_s = prompts_s(times, tokens, 1, candidate.max_num_batched_tokens)
                if alone_s > one.limit:
                    return "ttft", candidate, f"a prompt of {tokens:,} tokens alone takes {alone_s:.3g} s"
        limit_s = min(self._limit("tpot"), self._limit("itl"))
        alone_s = decode_s(times, 1, max(1, min(prompt for prompt, _ in self.traffic.lengths)))
        if alone_s > limit_s:
            return "tpot", candidate, f"a step of one sequence takes {alone_s * 1e3:.3g} ms"
        return None

    def _limit(self, latency: str) -> float:
        limits = [one.limit for one in self.spec.objectives if one.latency == latency]
        return min(limits, default=math.inf)

    def _step_times(self, shape: Candidate) -> StepTimes:
        return StepTimes(
            self.model,
            device_profile(shape.gpu),
            weights=shape.weights,
            kv_dtype=shape.kv_dtype,
            split=Split(shape.tp, shape.pp),
        )

    def deployment(self, candidate: Candidate, tokens: int) -> Deployment:
        """The candidate's replica, with what is costly to derive taken from one of the same shape."""
        base = self._deployments.get(candidate.shape)
        if base is None:
            card = device_profile(candidate.gpu).accelerator
            base = Deployment(
                self.model, weights=candidate.weights, kv_dtype=candidate.kv_dtype, tp=candidate.tp, pp=candidate.pp,
                capacity_bytes=card.memory_bytes, card=card.name,
            )  # fmt: skip
            for name in KEPT:
                getattr(base, name)
            self._deployments[candidate.shape] = base
        made = replace(
            base,
            seq_len=tokens,
            max_num_batched_tokens=candidate.max_num_batched_tokens,
            max_num_seqs=candidate.max_num_seqs,
        )
        made.__dict__.update({name: getattr(base, name) for name in KEPT})
        return made


def decode_s(times: StepTimes, rows: int, context: int) -> float:
    """Seconds of a step of so many decode rows of one length."""
    if times.is_plain and times.split.pp == 1:
        return float(times.decode_run_s(rows, rows * (context + 1)))
    return times.step_s(times.shape([(context, 1, 1, False)] * rows))


def prompts_s(times: StepTimes, tokens: int, together: int, budget: int) -> float:
    """Seconds until equal prompts that start together have their first tokens, in pieces of the budget."""
    seconds, done = 0.0, 0
    piece = max(1, min(tokens, budget // together))
    while done < tokens:
        count = min(piece, tokens - done)
        last = done + count == tokens
        seconds += times.step_s(times.shape([(done, count, int(last), True)] * together))
        done += count
    return seconds


def _largest(holds: Callable[[int], bool], most: int) -> int:
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
