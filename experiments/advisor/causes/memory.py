"""Causes in memory: KV that does not hold all, weights that leave little, prefixes that are computed again."""

from __future__ import annotations

from experiments.advisor.causes.base import (
    MOST,
    OFTEN,
    ONE_AT_A_TIME,
    PRESSED,
    ROI_ORDER,
    TAKEN,
    UNSTATED,
    Answer,
    hurts,
    kv_is_tight,
    line,
    lines,
    missed_lines,
    percent,
    some,
    told,
)
from experiments.advisor.causes.changes import lighter_kv, lighter_weights, more_ranks, offered, stepped
from experiments.advisor.evidence import Evidence
from experiments.advisor.finding import Bound, Change, Finding, Missing

# Of the device's memory: weights are most of it, and what is left for KV is little.
HEAVY, LITTLE = 0.65, 0.2
# Sequences that fit into KV memory, below which a batch can't use the device.
FEW_SEQUENCES = 4
# Of the prompts: enough repeats to be worth a cache; found share of it that counts as working.
REPEATS, WORKS = 0.2, 0.5
GB = 1e9


class KVMemoryBound:
    """KV memory is full."""

    name = "kv-memory-bound"
    means = "KV memory is full: requests wait for blocks or are preempted"
    explains = ("queue-bound", "under-batching", "over-admission", "interference-jitter")
    latencies = ("ttft", "itl", "tpot", "e2e")

    def match(self, evidence: Evidence) -> Answer:
        tight = kv_is_tight(evidence)
        if tight is None:
            return Missing(self.name, ("kv_used_share", "preemptions"))
        if not tight:
            return None
        thrown_out = self._preempts(evidence)
        kept_out = bool(evidence.admission_waits) or self._waits_beside_seats(evidence)
        if not (thrown_out or kept_out):
            return None  # full and nobody minds: a pool that is used well
        found = lines(
            told(evidence, "kv_used_share", "{} of the KV memory is in use"),
            told(evidence, "kv_peak_share", "at its fullest {}"),
            some(evidence, "preemptions", "{} preemptions"),
            some(evidence, "admission_waits", "{} times a request beside a free seat waited"),
            some(evidence, "waiting", "{} requests wait"),
            told(evidence, "max_sequences", "{} sequences of this length fit"),
        )  # fmt: skip
        weight = max(hurts(evidence, self.latencies), 0.3)
        score = weight * (1.0 if thrown_out else 0.9)
        return Finding(
            self.name, score, found + missed_lines(evidence, self.latencies), self._changes(evidence), self._bounds
        )

    def _preempts(self, evidence: Evidence) -> bool:
        often = evidence.preemptions_per_request
        return bool(evidence.preemptions) if often is None else often >= OFTEN

    def _waits_beside_seats(self, evidence: Evidence) -> bool:
        """Requests wait, memory is full, and the seats are not what is short (or nobody knows how many there are)."""
        waiting = evidence.waiting is not None and evidence.waiting >= 1
        queued = evidence.queue_share is not None and evidence.queue_share >= MOST
        taken = evidence.seats_taken
        return (waiting or queued) and (taken is None or taken < TAKEN)

    def _changes(self, evidence: Evidence) -> tuple[Change, ...]:
        found: list[Change | None] = []
        if evidence.setting("kv_layout") == "contiguous":
            found.append(Change(
                "kv_layout", "contiguous", "paged",
                why="blocks as tokens come, instead of room for the longest answer from the start",
                refuted_by="no more sequences run together",
            ))  # fmt: skip
        found.append(lighter_kv(
            evidence,
            why="about half the bytes a token, so nearly twice the tokens in the same memory",
            refuted_by="preemptions and waiting stay, or quality falls on your own items",
        ))  # fmt: skip
        before, after = stepped(evidence, "kv_memory_mib", 2, self._pool_mib(evidence))
        found.append(Change(
            "kv_memory_mib", before, after,
            why="more of the device's memory for KV, where it has some left",
            refuted_by="preemptions and waiting stay",
        ))  # fmt: skip
        if self._preempts(evidence):
            found.append(Change(
                "max_num_seqs", evidence.setting("max_num_seqs"),
                None if evidence.running is None else max(1, round(evidence.running)),
                why="requests that would be thrown out again are not let in: nothing is computed twice",
                refuted_by="output tokens/s falls by more than preemption cost",
            ))  # fmt: skip
        return offered(*found)

    def _pool_mib(self, evidence: Evidence) -> float | None:
        return None if evidence.kv_pool_bytes is None else evidence.kv_pool_bytes / 2**20

    _bounds = (
        Bound("C28", "KV quantization is for long contexts and full pools; INT8 costs almost no quality, INT4 keys "
                     "need a scale per channel."),
        Bound("C29", "Full of KV: quantize KV and page it. Only the KV part of memory scales with it."),
        Bound("C33", "Memory is a capacity to be planned: context times concurrency has a limit."),
        ROI_ORDER,
    )  # fmt: skip


class WeightsMemoryBound:
    """The weights leave little."""

    name = "weights-memory-bound"
    means = "the weights leave little memory for KV, or do not fit"
    explains = ("kv-memory-bound", "queue-bound", "under-batching")
    latencies = ("ttft", "itl", "tpot", "e2e")

    def match(self, evidence: Evidence) -> Answer:
        weights, capacity = evidence.weights_bytes, evidence.capacity_bytes
        if weights is None or not capacity:
            return Missing(self.name, ("weights_bytes", "capacity_bytes"))
        share = weights / capacity
        kv = None if evidence.kv_pool_bytes is None else evidence.kv_pool_bytes / capacity
        if share < HEAVY or (kv is not None and kv > LITTLE):
            return None
        few = evidence.max_sequences is not None and evidence.max_sequences < FEW_SEQUENCES
        if share < 0.97 and not few and not self._short(evidence):
            return None
        found = lines(
            line(f"weights take {weights / GB:.1f} of {capacity / GB:.1f} GB ({percent(share)})", "weights_bytes"),
            None if kv is None else line(f"KV gets {percent(kv)}", "kv_pool_bytes"),
            told(evidence, "max_sequences", "{} sequences of this length fit"),
            told(evidence, "kv_used_share", "{} of that is in use"),
        )
        score = 1.0 if share >= 0.97 else max(hurts(evidence, self.latencies), UNSTATED) * 0.95
        return Finding(
            self.name, score, found + missed_lines(evidence, self.latencies), self._changes(evidence), self._bounds
        )

    def _short(self, evidence: Evidence) -> bool:
        """Whether what is left is too little for this load."""
        if evidence.missed(*self.latencies) is False and not evidence.preemptions:
            return False
        full = max(evidence.kv_used_share or 0, evidence.kv_peak_share or 0) >= PRESSED
        return bool(kv_is_tight(evidence)) or full

    def _changes(self, evidence: Evidence) -> tuple[Change, ...]:
        return offered(
            lighter_weights(
                evidence, "w8a8",
                why="half the bytes of the linear layers, and faster products",
                refuted_by="KV gets no more memory, or quality falls on your own items",
            ),
            lighter_weights(
                evidence, "w4a16-awq",
                why="a quarter of the bytes of the linear layers; embedding and head stay as they are",
                refuted_by="quality falls on a slice of your own items: look at each, not at the mean",
            ),
            more_ranks(
                evidence,
                why="each device holds a half of the weights",
                refuted_by="the sums between devices take more time than the larger batch gives back",
            ),
        )  # fmt: skip

    _bounds = (
        Bound("C28", "W8A8 first; W4 only when memory truly does not hold, and never without an evaluation."),
        Bound("C32", "A single card or the edge: W4A16 first, KV quantization second."),
        ONE_AT_A_TIME,
    )


class CacheMiss:
    """Repeated prompts are computed again."""

    name = "cache-miss"
    means = "prompts repeat what came before, and the prefix cache finds little of it"
    explains = ("prefill-bound", "interference-jitter")
    latencies = ("ttft", "e2e")

    def match(self, evidence: Evidence) -> Answer:
        repeated = evidence.repeated_share
        if repeated is None:
            return Missing(self.name, ("repeated_share", "prefix_hit_rate"))
        off = evidence.setting("prefix_cache") == "off"
        hit = 0.0 if off else evidence.prefix_hit_rate
        if repeated < REPEATS or evidence.missed(*self.latencies) is False:
            return None
        if hit is None:
            return Missing(self.name, ("prefix_hit_rate",))
        if hit >= WORKS * repeated:
            return None
        found = lines(
            line(f"{percent(repeated)} of the prompt tokens repeat what came before", "repeated_share"),
            line("the prefix cache is off" if off else f"the cache finds {percent(hit)}", "prefix_hit_rate"),
            some(evidence, "evicted_share", "{} of its blocks are pushed out too soon"),
            None if evidence.prefill_share is None
            else line(f"{percent(evidence.prefill_share)} of the time to first token is prefill", "prefill_s"),
        )  # fmt: skip
        score = hurts(evidence, self.latencies) * min(1.0, 0.5 + repeated - hit)
        return Finding(
            self.name, score, found + missed_lines(evidence, self.latencies), self._changes(evidence, off), self._bounds
        )

    def _changes(self, evidence: Evidence, off: bool) -> tuple[Change, ...]:
        if off:
            return (Change(
                "prefix_cache", "off", "on",
                why="the KV of a repeated beginning is used again instead of computed",
                refuted_by="prefill tokens computed stay the same",
            ),)  # fmt: skip
        before, after = stepped(evidence, "kv_memory_mib", 2)
        block, smaller = stepped(evidence, "block_size", 0.5)
        return offered(
            Change(
                "kv_memory_mib", before, after,
                why="cached blocks are kept in what running requests leave; more memory keeps them longer",
                refuted_by="the hit rate does not rise: the prompts differ in their first block",
            ),
            Change(
                "block_size", block, smaller,
                why="only whole blocks are found again",
                refuted_by="the hit rate does not rise",
            ),
        )  # fmt: skip

    _bounds = (
        Bound("C32", "Long documents and fixed system prompts gain; texts that differ from their first token do not."),
        Bound("C43", "A setting, where the server has it."),
    )
