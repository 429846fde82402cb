"""Causes of waiting: for a seat, for a batch to fill, for one's turn among too many, for the sender."""

from __future__ import annotations

from experiments.advisor.causes.base import (
    MOST,
    ONE_AT_A_TIME,
    TAKEN,
    Answer,
    has_room,
    hurts,
    line,
    lines,
    memory_keeps_out,
    missed_lines,
    misses_in_the_tail_alone,
    near_lines,
    number,
    percent,
    seconds,
    told,
)
from experiments.advisor.causes.changes import lighter_weights, offered, seats
from experiments.advisor.evidence import Evidence
from experiments.advisor.finding import ARCHITECTURE, Bound, Change, Finding, Missing

# Requests that wait at the same time, from where somebody is always waiting.
SOMEBODY = 1.0
# Of a request's time to first token, from here waiting is worth a look though it is not most of it.
SOME = 0.25
# Share of the seats in use on average, from here they are what is short: a run begins and ends with few.
MOSTLY_TAKEN = 0.7
# Slot-steps that finished requests keep, from here.
IDLE = 0.15
# A step that computes fewer sequences than this is not full on any device.
SMALL_BATCH = 8
# Of the scheduled rate, below this the sender did not keep it; the same as the load generator's own warning.
KEPT = 0.95
# How late a sender may be (p99), and of the time to first token; how busy its processor.
LATE_S, LATE_SHARE, OUT_OF_BREATH = 0.02, 0.25, 0.9
# Of a step, from here host work or launches rule it, and not how many share it.
HOST_RULES = 0.35
# Of the device's bandwidth, from here one sequence's decode is as fast as it gets.
BUSY_READING = 0.6


class QueueBound:
    """All seats are taken and requests wait for one."""

    name = "queue-bound"
    means = "all seats are taken and requests wait for one"
    explains: tuple[str, ...] = ()
    latencies = ("ttft", "e2e")

    def match(self, evidence: Evidence) -> Answer:
        share, waiting = evidence.queue_share, evidence.waiting
        if share is None and waiting is None:
            return Missing(self.name, ("queue_s", "waiting"))
        weight = hurts(evidence, self.latencies)
        queued = share is not None and share >= MOST
        crowded = waiting is not None and waiting >= SOMEBODY
        if not weight and not evidence.growing:
            return None
        # Servers report the waiting of requests that have ended; those that still wait are not in it.
        if crowded and waiting is not None and waiting >= (evidence.running or 0):
            share = None if share is None else max(share, 0.8)
        if not (queued or crowded) or (share is not None and share < SOME) or waiting == 0:
            return None
        taken = evidence.seats_taken
        if memory_keeps_out(evidence) or has_room(evidence) or not self._seats_are_short(evidence):
            return None
        if waiting is None and not evidence.overloaded and evidence.missed(*self.latencies) is None:
            return None  # mostly waiting, of a time that nobody calls long
        found = lines(
            None
            if evidence.queue_share is None or not queued
            else line(f"{percent(evidence.queue_share)} of the time to first token is waiting", "queue_s"),
            None if not waiting else line(f"{number(waiting)} requests wait on average", "waiting"),
            None if taken is None else line(f"{percent(min(1.0, taken))} of the seats are taken", "running"),
            line("the queue was still growing at the end", "growing") if evidence.growing else None,
            told(evidence, "kv_used_share", "KV memory is not the reason: {} in use"),
        )
        score = max(weight, 0.3) * (share if share is not None else 0.8)
        found += missed_lines(evidence, self.latencies)
        found += near_lines(evidence, ("itl", "tpot"), "more seats lengthen it")
        return Finding(self.name, score, found, self._changes(evidence), self._bounds)

    def _seats_are_short(self, evidence: Evidence) -> bool:
        """Whether the seats are taken on average, or were all taken at a moment while somebody waited."""
        taken = evidence.seats_taken
        if taken is None or taken >= MOSTLY_TAKEN:
            return True
        peak, waits = evidence.running_peak, (evidence.waiting or 0) >= SOMEBODY
        return waits and peak is not None and evidence.seats is not None and peak >= evidence.seats

    def _changes(self, evidence: Evidence) -> tuple[Change, ...]:
        more = seats(
            evidence, 2,
            why="more requests share a step, so a seat comes free sooner",
            refuted_by="output tokens/s does not rise: steps got longer by as much as there are more seats",
        )  # fmt: skip
        replicas = Change(
            "replicas", None, None,
            why="more arrives than one instance serves; its limit is found by trilemma sweep --over rate",
            refuted_by="the queue stays as long when the rate per instance is lower",
            effort=ARCHITECTURE,
        )  # fmt: skip
        limited = None
        if evidence.overloaded and evidence.served_rps:
            limited = Change(
                "rate_limit_rps", evidence.setting("rate_limit_rps"), round(evidence.served_rps, 2),
                why="a request that is refused at once can go elsewhere; one that waits too long is lost as well",
                refuted_by="goodput does not rise",
            )  # fmt: skip
        weights = lighter_weights(
            evidence, "w8a8",
            why="shorter steps serve more requests in the same seats",
            refuted_by="output tokens/s does not rise, or quality falls on your own items",
        )  # fmt: skip
        # With a busy device more seats only move the waiting from the queue into the steps.
        busy = has_room(evidence) is False
        return offered(replicas, weights, limited) if busy else offered(more, weights, replicas, limited)

    _bounds = (
        Bound("C44", "More seats raise throughput and lengthen everybody's gaps between tokens: cap them where latency "
                     "matters more."),
        Bound("C33", "A queue that grows has no right setting: it takes more capacity, or less load."),
        ONE_AT_A_TIME,
    )  # fmt: skip


class UnderBatching:
    """The device has room, and too few sequences share a step."""

    name = "under-batching"
    means = "too few sequences share a step though the device has room for more"
    explains = ("queue-bound", "launch-bound", "decode-bandwidth-bound", "cost-bound")
    latencies = ("ttft", "e2e")

    def match(self, evidence: Evidence) -> Answer:
        policy = evidence.setting("batching")
        waits = self._somebody_waits(evidence)
        held = evidence.idle_slot_share is not None and evidence.idle_slot_share >= IDLE
        if memory_keeps_out(evidence) and not held:
            return None
        if waits is None and policy is None and not held:
            return Missing(self.name, ("waiting", "device_utilisation", "idle_slot_share"))
        if self._all_is_well(evidence):
            return None
        by_policy = policy in ("static", "dynamic") and (held or bool(waits))
        by_room = bool(waits) and self._room(evidence)
        if not (by_policy or held or by_room):
            return None
        batch = evidence.batch if evidence.batch is not None else evidence.running
        found = lines(
            line(f"batching is {policy}: a seat comes free only when its whole batch has ended") if by_policy else None,
            line(f"finished requests keep {percent(evidence.idle_slot_share or 0)} of all slots", "idle_slot_share")
            if held
            else None,
            None if batch is None else line(f"{number(batch)} sequences share a step on average",
                                            "running" if evidence.batch is None else "batch"),
            None if not evidence.waiting else line(f"{number(evidence.waiting)} requests wait meanwhile", "waiting"),
            told(evidence, "device_utilisation", "the device is {} utilised"),
            told(evidence, "flops_share", "decode steps reach {} of the arithmetic"),
        )  # fmt: skip
        strength = 1.0 if by_policy or (by_room and has_room(evidence)) else 0.8
        score = strength * max(hurts(evidence, self.latencies), 0.6)
        return Finding(
            self.name, score, found + missed_lines(evidence, self.latencies), self._changes(evidence), self._bounds
        )

    def _somebody_waits(self, evidence: Evidence) -> bool | None:
        known = (evidence.waiting, evidence.queue_share, evidence.overloaded)
        if all(value is None for value in known):
            return None
        waiting = evidence.waiting is not None and evidence.waiting >= SOMEBODY
        queued = evidence.queue_share is not None and evidence.queue_share >= SOME
        return waiting or queued or bool(evidence.overloaded)

    def _room(self, evidence: Evidence) -> bool:
        """Room in the device, or a step so small that more rows cost next to nothing."""
        batch = evidence.batch if evidence.batch is not None else evidence.running
        small = batch is not None and batch <= SMALL_BATCH
        reads_weights = evidence.kv_read_share is None or evidence.kv_read_share < MOST
        cheap = small and reads_weights and evidence.flops_share is not None and evidence.flops_share < SOME
        return bool(has_room(evidence)) or cheap

    def _all_is_well(self, evidence: Evidence) -> bool:
        return evidence.missed("ttft", "tpot", "itl", "e2e") is False and not evidence.overloaded

    def _changes(self, evidence: Evidence) -> tuple[Change, ...]:
        policy = evidence.setting("batching")
        found = []
        if policy in ("static", "dynamic"):
            found.append(Change(
                "batching", policy, "continuous",
                why="requests join and leave at every step, so no seat is kept idle",
                refuted_by="output tokens/s does not rise, as with answers of equal length that all come at once",
            ))  # fmt: skip
        found.append(seats(
            evidence, 2 if policy in ("static", "dynamic") else 4,
            why="a decode step reads the weights once for all its sequences, so more of them cost little",
            refuted_by="output tokens/s does not rise, or KV memory gets full (preemptions)",
        ))  # fmt: skip
        return offered(*found)

    _bounds = (
        Bound("C29", "Low utilisation calls for continuous batching and more concurrency, as long as KV memory holds."),
        Bound("C43", "First in the order of gain over effort: a setting, and often the largest gain."),
        Bound("C44", "Throughput is not the only end: more sequences a step lengthen the gaps between tokens."),
    )


class OverAdmission:
    """Nobody waits for a seat, but those who have one are too many."""

    name = "over-admission"
    means = "so many sequences run together that each misses its objective, and nobody waits for a seat"
    explains: tuple[str, ...] = ()
    latencies = ("itl", "tpot", "e2e")

    def match(self, evidence: Evidence) -> Answer:
        running = evidence.running if evidence.running is not None else evidence.batch
        stalled = self._stalled_share(evidence)
        if running is None:
            return Missing(self.name, ("running", "batch"))
        if running < 2:
            return None
        missed = evidence.missed(*self.latencies)
        late_start = evidence.missed("ttft") is True and stalled is not None and stalled >= SOME
        if evidence.setting("batching") in ("static", "dynamic"):
            return None  # who runs with whom is the policy's doing
        if missed is None and not late_start:
            return Missing(self.name, tuple(self._unjudged(evidence)))
        if not missed and not late_start:
            return None
        if evidence.waiting is not None and evidence.waiting >= max(SOMEBODY, 0.1 * running):
            return None
        if evidence.queue_share is not None and evidence.queue_share >= MOST:
            return None
        if evidence.preemptions or evidence.admission_waits:
            return None  # memory decides who runs
        if not late_start and misses_in_the_tail_alone(evidence):
            return None
        if has_room(evidence) or max(evidence.host_share or 0, evidence.launch_share or 0) >= HOST_RULES:
            return None  # the sequences are not what fills the steps
        crowd = self._crowd(evidence, running)
        if crowd is None:
            return None
        found = lines(
            line(f"{number(running)} sequences run together", "running"),
            told(evidence, "waiting", "{} wait"),
            None
            if not stalled or stalled < SOME
            else line(f"a request with a seat is passed over {percent(stalled)} of its time", "stalled_s"),
            None if evidence.gap_s is None else line(f"a token takes {seconds(evidence.gap_s)}", "itl_mean_s"),
        )
        return Finding(
            self.name,
            crowd,
            found + missed_lines(evidence, (*self.latencies, "ttft")),
            self._changes(evidence, running),
            self._bounds,
        )

    def _crowd(self, evidence: Evidence, running: float) -> float | None:
        """How sure it is that the number of sequences is what makes steps long; None where it is not."""
        if evidence.bandwidth_share is not None and evidence.bandwidth_share >= BUSY_READING and running <= SMALL_BATCH:
            return None  # the weights take that long for one sequence as well
        if running >= 2 * SMALL_BATCH:
            sure = 0.85
        elif running > SMALL_BATCH / 2 or (evidence.seats_taken or 0) >= TAKEN:
            sure = 0.65
        else:
            return None
        reading = evidence.bandwidth_share is not None and evidence.bandwidth_share >= BUSY_READING
        if reading and (evidence.flops_share or 0) < MOST:
            weights = evidence.kv_read_share is not None and evidence.kv_read_share < MOST
            sure *= 0.5 if weights else 0.8  # the weights are read once, however many share it
        return sure

    def _stalled_share(self, evidence: Evidence) -> float | None:
        """Of a request's time, or of the wait for its first token where that is known."""
        whole = evidence.ttft_s if evidence.missed("ttft") else evidence.e2e_s
        return None if evidence.stalled_s is None or not whole else min(1.0, evidence.stalled_s / whole)

    def _unjudged(self, evidence: Evidence) -> list[str]:
        """Fields that an objective is about and nobody measured; without an objective it is one that is missing."""
        about = [f"{one.name}_s" for one in evidence.objectives if one.latency in self.latencies]
        return [name for name in about if getattr(evidence, name) is None] or ["objectives"]

    def _changes(self, evidence: Evidence, running: float) -> tuple[Change, ...]:
        # Of those that run, so many that the worst missed objective would be met if a step took as long as they are.
        target = max(1, round(running * self._share_to_keep(evidence)))
        return offered(
            Change(
                "max_num_seqs", evidence.setting("max_num_seqs"), target,
                why="fewer sequences a step make steps shorter; the others wait in the queue instead",
                refuted_by="the gaps between tokens do not get shorter, or time to first token misses its objective",
            ),
            lighter_weights(
                evidence, "w8a8",
                why="shorter steps at the same number of sequences",
                refuted_by="gaps do not get shorter, or quality falls on your own items",
            ),
        )  # fmt: skip

    def _share_to_keep(self, evidence: Evidence) -> float:
        """By how much the worst missed objective is missed, at least half is kept."""
        overs = [one.limit / value for one in evidence.missed_objectives(*self.latencies)
                 if (value := evidence.value_of(one))]  # fmt: skip
        return max(0.5, min(overs, default=0.5))

    _bounds = (
        Bound("C44", "High throughput is not good experience: cap concurrency when latency matters; throughput falls."),
        Bound("C33", "The objective decides: without one, this many sequences may be right."),
        ONE_AT_A_TIME,
    )  # fmt: skip


class ClientBound:
    """The sender does not keep up."""

    name = "client-bound"
    means = "the sender is late or has no free connection while the server has room"
    explains = ("queue-bound", "under-batching", "network-framework-bound", "prefill-bound", "launch-bound")
    latencies = ("ttft", "e2e")

    def match(self, evidence: Evidence) -> Answer:
        known = (evidence.lateness_p99_s, evidence.in_flight_peak, evidence.client_cpu_share)
        short = self._short(evidence)
        if all(value is None for value in known) and short is None:
            return Missing(self.name, ("lateness_p99_s", "sent_rps", "connection_limit", "client_cpu_share"))
        late = self._late(evidence)
        limit = evidence.connection_limit
        peak = evidence.in_flight_peak
        full = limit is not None and peak is not None and peak >= limit
        busy = evidence.client_cpu_share is not None and evidence.client_cpu_share >= OUT_OF_BREATH
        if not (late or short or full or busy) or not self._server_has_room(evidence):
            return None
        if not short and self._fast_enough(evidence):
            return None
        found = lines(
            line(f"requests leave up to {seconds(evidence.lateness_p99_s)} late (p99)", "lateness_p99_s")
            if late
            else None,
            line(
                f"{number(evidence.sent_rps or 0)} of {number(evidence.offered_rps or 0)} requests/s were sent",
                "sent_rps",
            )
            if short
            else None,
            line(f"all {number(limit or 0)} connections are in use", "connection_limit") if full else None,
            line(f"the sender's processor is {percent(evidence.client_cpu_share or 0)} busy", "client_cpu_share")
            if busy
            else None,
            told(evidence, "waiting", "{} wait at the server"),
        )
        score = 0.95 if sum((bool(late), bool(short), full, busy)) > 1 else 0.85
        return Finding(self.name, score, found, self._changes(evidence), self._bounds)

    def _short(self, evidence: Evidence) -> bool | None:
        if evidence.sent_rps is None or not evidence.offered_rps:
            return None
        return evidence.sent_rps < KEPT * evidence.offered_rps

    def _late(self, evidence: Evidence) -> bool:
        late = evidence.lateness_p99_s
        return late is not None and late >= max(LATE_S, LATE_SHARE * (evidence.ttft_s or 0))

    def _server_has_room(self, evidence: Evidence) -> bool:
        if evidence.waiting is not None and evidence.waiting >= SOMEBODY:
            return False
        taken = evidence.seats_taken
        return (taken is None or taken < TAKEN) and has_room(evidence) is not False

    def _fast_enough(self, evidence: Evidence) -> bool:
        return evidence.missed("ttft", "e2e", "itl", "tpot") is False and not evidence.overloaded

    def _changes(self, evidence: Evidence) -> tuple[Change, ...]:
        limit = evidence.connection_limit
        return (
            Change(
                "client_connections", None if limit is None else int(limit), None if limit is None else int(4 * limit),
                why="the server has room; more connections, or more processes that send, reach it",
                refuted_by="lateness and the rate that is sent stay as they are",
            ),
        )  # fmt: skip

    _bounds = (
        Bound("C36", "Latency counts from the schedule, so a late sender shows as a slow server: no figure of this run "
                     "says what the server can do."),
        Bound("C33", "Load-test with a sender that keeps its schedule before anything is tuned."),
    )  # fmt: skip
