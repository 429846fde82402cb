"""One candidate simulated: a replica in the middle of its day, at a rate, and the highest rate at which it keeps up.

A short horizon is only worth something when it begins where a day is: the replica is given the sequences that an
estimate says are decoding at that rate, their keys and values computed, and arrivals go on until every request that
counts has ended. A group of prefill and decode replicas has no such beginning, so the first half of its requests does
not count. A replica of several gets its share of a Poisson process, as a router that looks at nothing gives it; one
that looks at loads does no worse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from core_engine.simulation.fleet import Side, serve_apart
from core_engine.simulation.gaps import Gaps
from core_engine.simulation.job import Ended, Job
from core_engine.simulation.replica import Replica
from core_engine.simulation.routers import router
from experiments.capacity import HighestRate, highest_rate
from experiments.loadgen import Cancelled
from experiments.metrics import Objective
from experiments.planner.candidates import Candidate
from experiments.planner.ledger_stage import Estimate
from experiments.planner.spec import PlanSpec
from experiments.planner.traffic import NS, PlanTraffic
from experiments.simulator.deployment import Deployed, SimulateSpec, deployed
from experiments.simulator.metrics import fleet_metrics
from experiments.sweep.growth import MATERIAL, slope_of

SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
TYPICAL_LOAD = 0.7  # of the estimate: where the search for the highest rate begins
SPAN = 16.0  # the search goes so far below the estimate; above it ends at twice what any order of the work could give
MOST_EXTRA = 20  # times as many requests as count may arrive until those have ended: then the replica stands still
FEWEST_WAITING = 32  # requests that may wait at once whatever the objectives; more than a queue at a steady load has


@dataclass(frozen=True)
class At:
    """A simulated replica (or group) at a rate.

    missed: objectives that it misses, and "backlog" where the wait grows. running: sequences at once on average, of one
    decode replica. kv_peak: share of its pool.
    """

    rate: float
    metrics: dict[str, Any]
    missed: tuple[str, ...]
    running: float
    kv_peak: float
    preemptions: int
    requests: int

    @property
    def meets(self) -> bool:
        """Whether it keeps up and meets every objective."""
        return not self.missed


@dataclass
class Tried:
    """What is known of a candidate: its estimate, the latest search, and what was simulated at each rate of it."""

    estimate: Estimate
    candidate: Candidate
    search: HighestRate | None = None
    at: dict[float, At] = field(default_factory=dict)
    requests: int = 0

    @property
    def limit(self) -> float | None:
        """The highest rate of one replica or group, requests/s; None where it misses at every one."""
        return None if self.search is None else self.search.rate

    @property
    def at_limit(self) -> At | None:
        """The simulation at that rate."""
        return None if self.limit is None else self.at[self.limit]

    @property
    def beyond(self) -> At | None:
        """The simulation at the lowest rate that missed."""
        if self.search is None or self.search.missed_at is None:
            return None
        return self.at[self.search.missed_at]


class Evaluator:
    """Simulates candidates of a spec under one traffic; Cancelled when asked to stop."""

    def __init__(self, spec: PlanSpec, traffic: PlanTraffic, should_cancel: Callable[[], bool] = lambda: False) -> None:
        self.spec, self.traffic, self._should_cancel = spec, traffic, should_cancel
        self._made: dict[Candidate, Deployed] = {}
        self.simulated_requests = 0

    def search(self, tried: Tried, requests: int, precision: float, most_probes: int) -> None:
        """Find the candidate's highest rate with so many requests that count at each. A rate that missed in an earlier
        search, over fewer requests, still counts as missed."""
        estimate, group = tried.estimate, tried.candidate.decode_replicas
        whole = self.spec.rate_rps / (1 - self.spec.headroom)  # what one replica would have to take if it were alone
        ceiling = min(2 * estimate.most_rps * group, whole)
        begin = tried.limit or TYPICAL_LOAD * estimate.rps * group
        floor = min(begin, ceiling) / SPAN
        at: dict[float, At] = {} if tried.beyond is None else {tried.beyond.rate: tried.beyond}

        def meets(rate: float) -> bool:
            at[rate] = self.at(tried, rate, requests)
            return at[rate].meets

        tried.search = highest_rate(
            meets, start=min(begin, ceiling), floor=floor, ceiling=ceiling, precision=precision,
            most_probes=most_probes, known=dict.fromkeys(at, False),
        )  # fmt: skip
        tried.at, tried.requests = at, requests

    def at(self, tried: Tried, rate: float, requests: int) -> At:
        """The candidate at a rate, with so many requests that count."""
        if self._should_cancel():
            raise Cancelled
        made = self.made(tried.candidate)
        run = self._apart if tried.candidate.is_apart else self._whole
        return run(made, tried, rate, requests)

    def made(self, candidate: Candidate) -> Deployed:
        """What its replicas are made of."""
        if candidate not in self._made:
            self._made[candidate] = deployed(simulate_spec(self.spec, candidate))
        return self._made[candidate]

    def _whole(self, made: Deployed, tried: Tried, rate: float, requests: int) -> At:
        there = self._standing(tried.estimate, rate)
        last = there + requests
        own: list[Ended] = []
        over = _Over(self.spec.objectives, requests)

        def on_end(one: Ended) -> None:
            self.simulated_requests += 1
            if there <= one.job.index < last:
                own.append(one)
                over.see(one)

        replica = made.replica(0, on_end, receives=True)
        for job, computed in self._decoding(there):
            replica.submit(job, computed)
        most_waiting = max(FEWEST_WAITING, requests // 2, rate * self._longest_wait_s())
        cut: tuple[str, ...] = ()
        for job in self.traffic.jobs(rate, there):
            if job.index % 64 == 0 and self._should_cancel():
                raise Cancelled
            replica.advance(job.arrival_ns)
            if len(own) == requests or over.missed:
                break
            if len(replica.scheduler.waiting) > most_waiting or job.index >= there + MOST_EXTRA * requests:
                cut = ("backlog",)
                break
            replica.submit(job)
        return self._told(tried, rate, own, replica.gaps, [replica], (*over.missed, *cut))

    def _longest_wait_s(self) -> float:
        """That an objective allows for; 0 without one."""
        return max((one.limit for one in self.spec.objectives if one.latency in ("ttft", "e2e")), default=0.0)

    def _apart(self, made: Deployed, tried: Tried, rate: float, requests: int) -> At:
        candidate, gaps = tried.candidate, Gaps()
        ended: list[Ended] = []
        source = self.traffic.jobs(rate)
        jobs = [next(source) for _ in range(3 * requests)]
        assert made.times.link is not None  # candidates without one are not made
        done = serve_apart(
            jobs,
            Side(
                candidate.prefill_replicas, lambda number, on_end: made.replica(number, on_end), router("least-loaded")
            ),
            Side(
                candidate.decode_replicas,
                lambda number, on_end: made.replica(number, on_end, receives=True),
                router("least-loaded"),
            ),
            made.times.link,
            made.kv_bytes_per_token,
            ended.append,
            lanes=made.times.split.devices,
        )
        gaps.merge(done.gaps)
        for replica in (*done.prefill, *done.decode):
            gaps.merge(replica.gaps)
        self.simulated_requests += len(ended)
        own = [one for one in ended if requests <= one.job.index < 2 * requests]
        return self._told(tried, rate, own, gaps, done.decode, ())

    def _standing(self, estimate: Estimate, rate: float) -> int:
        """Sequences that decode at a rate, by Little's law: rate x answer x the time of a token at that many."""
        busy = min(0.98, rate * estimate.prefill_s)
        output, batch = self.traffic.mean_output, float(estimate.batch)
        for _ in range(8):  # a fixed point; the time of a token rises slowly with the batch
            share = batch / estimate.batch
            step_s = estimate.decode_step_s * (0.5 + 0.5 * share)
            batch = min(float(estimate.batch), rate * output * step_s / (1 - busy))
        return max(0, min(int(batch), estimate.held - 1, estimate.candidate.max_num_seqs - 1))

    def _decoding(self, count: int) -> list[tuple[Job, int]]:
        """(a request in the middle of its answer, tokens of it that are computed), evenly through their answers."""
        found = []
        for place in range(count):
            prompt, answer = self.traffic.lengths[place % len(self.traffic.lengths)]
            done = int((place + 0.5) / count * answer)
            left = max(1, answer - done)
            found.append((Job(place, 0, prompt + done, left, left), prompt + done - 1))
        return found

    def _told(
        self, tried: Tried, rate: float, own: list[Ended], gaps: Gaps, replicas: Sequence[Replica], cut: tuple[str, ...]
    ) -> At:
        spec, candidate = self.spec, tried.candidate
        metrics = fleet_metrics(
            own, gaps, devices=candidate.devices, price_per_device_hour=spec.price(candidate.gpu), slo=spec.objectives
        )
        missed = [
            row["name"] for row in metrics["objectives"] if row["met"] is not True and not (cut and row["met"] is None)
        ]
        if metrics["failed"] or _grows(own, e2e=candidate.is_apart):
            missed.append("backlog")
        missed = list(dict.fromkeys([*missed, *cut]))
        served = [one for one in own if one.last_ns is not None]
        decoding = sum((one.last_ns or 0) - (one.first_ns or 0) for one in served) / NS
        running = rate * decoding / max(1, len(served)) / candidate.decode_replicas  # Little's law
        blocks = self.made(candidate).memory.num_blocks
        peak = max(replica.peak_used_blocks for replica in replicas) / blocks
        preemptions = sum(one.preemptions for one in own)
        return At(
            rate, metrics, tuple(missed), min(running, float(candidate.max_num_seqs)), peak, preemptions, len(own)
        )


class _Over:
    """Whether so many requests have missed an objective that no other can mend its percentile: then the rest of the
    run would tell nothing new."""

    def __init__(self, objectives: Sequence[Objective], requests: int) -> None:
        self._limits = [
            (one.name, one.latency, one.limit, (1 - SHARES[one.name.rsplit("_", 1)[1]]) * requests + 1)
            for one in objectives
            if one.latency in ("ttft", "tpot", "e2e") and one.name.rsplit("_", 1)[1] in SHARES
        ]
        self._counts = [0] * len(self._limits)

    def see(self, one: Ended) -> None:
        """Count a request that has ended."""
        if one.first_ns is None or one.last_ns is None:
            return
        after = one.output_tokens - one.first_tokens
        values = {
            "ttft": (one.first_ns - one.job.arrival_ns) / NS,
            "e2e": (one.last_ns - one.job.arrival_ns) / NS,
            "tpot": (one.last_ns - one.first_ns) / NS / after if after > 0 else 0.0,
        }
        for place, (_, latency, limit, _) in enumerate(self._limits):
            self._counts[place] += values[str(latency)] > limit

    @property
    def missed(self) -> tuple[str, ...]:
        """Names of the objectives that can't be met any more."""
        return tuple(
            name for (name, _, _, allowed), count in zip(self._limits, self._counts, strict=True) if count > allowed
        )


def simulate_spec(spec: PlanSpec, candidate: Candidate) -> SimulateSpec:
    """The candidate as `trilemma simulate` takes it; prompts are computed in full, so nothing is looked up."""
    return SimulateSpec.from_dict(
        {
            "model": spec.model, "gpu": candidate.gpu, "weights": candidate.weights, "kv_dtype": candidate.kv_dtype,
            "tp": candidate.tp, "pp": candidate.pp, "replicas": candidate.decode_replicas,
            "prefill_replicas": candidate.prefill_replicas,
            "settings": {
                "max_num_seqs": candidate.max_num_seqs, "max_num_batched_tokens": candidate.max_num_batched_tokens,
                "prefix_cache": "off",
            },
        }
    )  # fmt: skip


def _grows(own: Sequence[Ended], *, e2e: bool) -> bool:
    """Whether the wait grows over the run, so that a longer one would miss any objective (experiments/sweep/growth.py).

    e2e: also what follows the first token, which waits elsewhere when prompts and answers are computed apart.
    """
    served = sorted((one for one in own if one.first_ns is not None), key=lambda one: one.job.arrival_ns)
    times = [one.job.arrival_ns / NS for one in served]
    waits = [[((one.first_ns or 0) - one.job.arrival_ns) / NS for one in served]]
    if e2e:
        waits.append([((one.last_ns or 0) - one.job.arrival_ns) / NS for one in served])
    found = [slope_of(times, values) for values in waits]
    return any(slope is not None and low is not None and slope > MATERIAL and low > 0 for slope, low in found)
