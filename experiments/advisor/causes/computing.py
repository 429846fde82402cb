"""Causes in the steps themselves: what computing a prompt, or a token, waits for."""

from __future__ import annotations

from experiments.advisor.causes.base import (
    MOST,
    ONE_AT_A_TIME,
    UNSTATED,
    Answer,
    hurts,
    kv_is_tight,
    line,
    lines,
    missed_lines,
    misses_in_the_tail_alone,
    number,
    percent,
    seconds,
    told,
)
from experiments.advisor.causes.changes import lighter_kv, lighter_weights, more_ranks, offered, seats, stepped
from experiments.advisor.evidence import Evidence
from experiments.advisor.finding import ARCHITECTURE, Bound, Change, Finding, Line, Missing

# Of a ceiling, from here it is what a step waits for; the other ceiling must be further away than this one.
NEAR = 0.6
# A batch this large reads the weights for many tokens at once.
LARGE_BATCH = 16
# Of a step, from here host work or launches are what it waits for.
HOST, LAUNCH = 0.35, 0.3
# A gap beside somebody's prompt is so many times as long as others, from here; without that split, p99 over median.
JUMP, UNSTATED_JUMP, TAIL = 2.0, 3.0, 4.0
# Parameters below which a target is small: its steps are short, and a draft's are not much shorter (C18).
SMALL_TARGET = 2e9
LONG_PROMPT = 1024
# Without an objective tokens are slow from here: nobody reads more than 20 in a second.
READING_S = 0.05


def _is_fast(evidence: Evidence, latencies: tuple[str, ...]) -> bool:
    """Whether tokens come faster than anybody reads them and no objective asks for more."""
    typical = evidence.gap_s
    return evidence.missed(*latencies) is None and typical is not None and typical < READING_S


class PrefillBound:
    """The prompt takes the time."""

    name = "prefill-bound"
    means = "time to first token is mostly the computing of the prompt"
    explains: tuple[str, ...] = ()
    latencies = ("ttft",)

    def match(self, evidence: Evidence) -> Answer:
        share = evidence.prefill_share
        if share is None and self._nothing_else(evidence):
            share = 0.7  # what is left when nobody waits
        if share is None:
            return Missing(self.name, ("prefill_s", "ttft_mean_s"))
        if evidence.missed("ttft") is False or share < MOST or (evidence.queue_share or 0) > share:
            return None
        weight = hurts(evidence, self.latencies)
        if evidence.missed("ttft") is None and not self._rules_the_request(evidence):
            return None  # the first token always takes a prompt; only a long one is a limit
        if self._outlier(evidence):
            return None
        reached = evidence.prefill_flops_share
        found = lines(
            line(f"{percent(share)} of the time to first token is the computing of the prompt", "prefill_s")
            if evidence.prefill_s is not None
            else line("nobody waits, so what is late is the computing of the prompt", "waiting"),
            told(evidence, "prefill_s", "it takes {}"),
            None if reached is None else line(f"prefill steps reach {percent(reached)} of the arithmetic",
                                              "prefill_flops_share"),
            told(evidence, "prompt_tokens", "a prompt has {} tokens"),
        )  # fmt: skip
        return Finding(
            self.name,
            weight * share,
            found + missed_lines(evidence, self.latencies),
            self._changes(evidence),
            self._bounds,
        )

    def _nothing_else(self, evidence: Evidence) -> bool:
        """Without the time of the prompts: the first token is late, nobody waits, and prompts are long or compute."""
        waits = evidence.waiting is None or evidence.waiting >= 1 or (evidence.queue_share or 0) >= MOST
        long = evidence.prompt_tokens is not None and evidence.prompt_tokens >= LONG_PROMPT
        computes = evidence.prefill_flops_share is not None and evidence.prefill_flops_share >= NEAR
        return bool(evidence.missed("ttft")) and not waits and (long or computes)

    def _rules_the_request(self, evidence: Evidence) -> bool:
        """Without an objective: prefill is most of the whole request."""
        return (
            evidence.prefill_s is not None
            and bool(evidence.e2e_s)
            and evidence.prefill_s >= MOST * (evidence.e2e_s or 0)
        )

    def _outlier(self, evidence: Evidence) -> bool:
        """Whether the prompts' mean time is far below the missed objective, so that something else makes the tail."""
        limits = [one.limit for one in evidence.missed_objectives("ttft")]
        return bool(limits) and evidence.prefill_s is not None and evidence.prefill_s < 0.2 * min(limits)

    def _changes(self, evidence: Evidence) -> tuple[Change, ...]:
        before, after = stepped(evidence, "max_num_batched_tokens", 2)
        found: list[Change | None] = [
            Change(
                "max_num_batched_tokens", before, after,
                why="larger pieces of a prompt a step use the arithmetic better and take fewer steps",
                refuted_by="time to first token does not get shorter, or the gaps between tokens miss their objective",
            ),
            lighter_weights(
                evidence, "w8a8",
                why="integer products are up to twice as fast where the device has units for them",
                refuted_by="time to first token does not get shorter, or quality falls on your own items",
            ),
            more_ranks(
                evidence,
                why="a layer's products are shared by several devices",
                refuted_by="time to first token does not get shorter: the sums between devices take it back",
            ),
        ]  # fmt: skip
        if evidence.setting("attention") == "naive":
            found.insert(0, Change(
                "attention", "naive", "flash",
                why="long prompts never write their scores to memory",
                refuted_by="time to first token does not get shorter",
            ))  # fmt: skip
        return offered(*found)

    _bounds = (
        Bound("C29", "First tell prefill from queueing: they show as the same time to first token."),
        Bound("C32", "Long documents: flash attention and paging first, then a prompt cache and chunked prefill."),
        ONE_AT_A_TIME,
    )


class DecodeBandwidthBound:
    """Tokens wait for memory."""

    name = "decode-bandwidth-bound"
    means = "each decode step reads weights and KV near the memory's bandwidth"
    explains: tuple[str, ...] = ()
    latencies = ("itl", "tpot", "e2e")

    def match(self, evidence: Evidence) -> Answer:
        reached, arithmetic = evidence.bandwidth_share, evidence.flops_share
        if evidence.missed(*self.latencies) is False or misses_in_the_tail_alone(evidence):
            return None
        if evidence.decode_share is not None and evidence.decode_share < 0.3:
            return None
        if reached is None:
            return Missing(self.name, ("bandwidth_share", "flops_share"))
        if reached < NEAR or (arithmetic is not None and arithmetic >= reached) or _is_fast(evidence, self.latencies):
            return None
        batch = evidence.batch if evidence.batch is not None else evidence.running
        found = lines(
            line(f"decode steps read at {percent(reached)} of the memory's bandwidth", "bandwidth_share"),
            None
            if arithmetic is None
            else line(f"and do {percent(arithmetic)} of the arithmetic that the device could", "flops_share"),
            None if batch is None else line(f"{number(batch)} sequences share a step", "batch"),
            told(evidence, "kv_read_share", "{} of what is read is KV"),
            None
            if evidence.decode_share is None
            else line(f"decode is {percent(evidence.decode_share)} of a request's time", "decode_s"),
        )
        crowd = 0.8 if batch is not None and batch >= 2 * LARGE_BATCH else 1.0
        score = hurts(evidence, self.latencies) * crowd * reached
        return Finding(
            self.name, score, found + missed_lines(evidence, self.latencies), self._changes(evidence), self._bounds
        )

    def _changes(self, evidence: Evidence) -> tuple[Change, ...]:
        kv = lighter_kv(
            evidence,
            why="half the bytes of KV are read at every step",
            refuted_by="the gaps do not get shorter, or quality falls on your own items",
        )  # fmt: skip
        weights = lighter_weights(
            evidence, "w8a8" if (evidence.batch or 0) > 1 else "w8a16",
            why="half the bytes of weights are read at every step",
            refuted_by="the gaps do not get shorter, or quality falls on your own items",
        )  # fmt: skip
        by_kv = evidence.kv_read_share is not None and evidence.kv_read_share >= MOST
        found = [kv, weights] if by_kv else [weights]
        small = evidence.parameters is not None and evidence.parameters < SMALL_TARGET
        if evidence.setting("speculation") in (None, "off") and not small:
            found.append(Change(
                "speculation", evidence.setting("speculation"), "draft",
                why="one reading of the weights verifies several tokens",
                refuted_by="acceptance is below the break-even of trilemma speculation, or output tokens/s falls",
            ))  # fmt: skip
        if not by_kv and evidence.kv_read_share is not None and evidence.kv_read_share > 0.2:
            found.append(kv)
        return offered(*found)

    _bounds = (
        Bound("C18", "Speculation pays for large targets and high acceptance only: measure alpha, v and c before."),
        Bound("C28", "W8A8 first, KV quantization for long contexts, W4 only when memory truly does not hold."),
        Bound("C29", "A device that reads at its bandwidth has room for more sequences a step, not for faster tokens."),
    )


class DecodeComputeBound:
    """Tokens wait for arithmetic."""

    name = "decode-compute-bound"
    means = "decode steps are near the ceiling of arithmetic, because the batch is large"
    explains = ("over-admission",)
    latencies = ("itl", "tpot", "e2e")

    def match(self, evidence: Evidence) -> Answer:
        reached, reading = evidence.flops_share, evidence.bandwidth_share
        if evidence.missed(*self.latencies) is False or misses_in_the_tail_alone(evidence):
            return None
        batch = evidence.batch if evidence.batch is not None else evidence.running
        if batch is not None and batch < LARGE_BATCH:
            return None
        if reached is None:
            return Missing(self.name, ("flops_share", "bandwidth_share"))
        if reached < NEAR or (reading is not None and reading >= reached) or _is_fast(evidence, self.latencies):
            return None
        found = lines(
            line(f"decode steps do {percent(reached)} of the arithmetic that the device could", "flops_share"),
            None
            if reading is None
            else line(f"and read at {percent(reading)} of the memory's bandwidth", "bandwidth_share"),
            None if batch is None else line(f"{number(batch)} sequences share a step", "batch"),
        )
        changes = offered(
            lighter_weights(
                evidence, "w8a8",
                why="integer products are up to twice as fast; W4A16 would not help, it computes in 16 bits",
                refuted_by="the gaps do not get shorter, or quality falls on your own items",
            ),
            seats(
                evidence, 0.5,
                why="fewer sequences a step make it shorter, nearly in proportion",
                refuted_by="the gaps do not get shorter",
            ),
            more_ranks(
                evidence,
                why="a layer's products are shared by several devices",
                refuted_by="the gaps do not get shorter: the sums between devices take it back",
            ),
        )  # fmt: skip
        if evidence.setting("speculation") not in (None, "off"):
            off = Change(
                "speculation", evidence.setting("speculation"), "off",
                why="verifying drafts costs arithmetic, which is what is short",
                refuted_by="output tokens/s falls",
            )  # fmt: skip
            changes = (off, *changes)
        score = hurts(evidence, self.latencies) * min(1.0, reached + 0.1)
        return Finding(self.name, score, found + missed_lines(evidence, self.latencies), changes, self._bounds)

    _bounds = (
        Bound("C18", "At such batches speculation does not pay: verifying takes what all its tokens would."),
        Bound("C44", "The batch is the price of throughput: a smaller one shortens steps and serves fewer."),
        ONE_AT_A_TIME,
    )


class LaunchBound:
    """The device waits for the host."""

    name = "launch-bound"
    means = "steps are mostly host work or kernel launches"
    explains = ("network-framework-bound",)
    latencies = ("itl", "tpot", "ttft", "e2e")

    def match(self, evidence: Evidence) -> Answer:
        host, launch = evidence.host_share, evidence.launch_share
        if evidence.missed(*self.latencies) is False:
            return None
        if host is None and launch is None:
            return Missing(self.name, ("host_share", "launch_share"))
        by_host, by_launch = host is not None and host >= HOST, launch is not None and launch >= LAUNCH
        reached = [share for share in (evidence.bandwidth_share, evidence.flops_share) if share is not None]
        if not (by_host or by_launch) or max(reached, default=0.0) >= NEAR:
            return None
        found = lines(
            line(f"{percent(host or 0)} of a step is host work", "host_share") if by_host else None,
            line(f"the device waits for launches for {percent(launch or 0)} of a step", "launch_share")
            if by_launch
            else None,
            *(
                line(f"decode steps reach {percent(share)} of the {what}", figure)
                for share, what, figure in (
                    (evidence.bandwidth_share, "bandwidth", "bandwidth_share"),
                    (evidence.flops_share, "arithmetic", "flops_share"),
                )
                if share is not None
            ),
        )
        score = hurts(evidence, self.latencies) * min(1.0, 0.35 + max(host or 0, launch or 0))
        return Finding(
            self.name, score, found + missed_lines(evidence, self.latencies), self._changes(evidence), self._bounds
        )

    def _changes(self, evidence: Evidence) -> tuple[Change, ...]:
        found = []
        for variable, off, on, why in (
            ("graph", ("off",), "on", "a whole step is one call, recorded once"),
            ("fused_ops", ("off",), "on", "fewer operators, so fewer launches and fewer trips to memory"),
            ("overlap", ("off",), "on", "the next step is prepared while the device computes this one"),
            ("kernels", ("torch",), "auto", "our own kernels compute a step in fewer calls"),
        ):
            if (now := evidence.setting(variable)) in off:
                found.append(Change(variable, now, on, why, "the gaps between tokens do not get shorter"))
        if not found and evidence.setting("graph") != "on":
            found.append(Change("graph", evidence.setting("graph"), "on", "a whole step is one call, recorded once",
                                "the gaps between tokens do not get shorter"))  # fmt: skip
        found.append(seats(
            evidence, 2,
            why="the host works once a step, whoever shares it",
            refuted_by="output tokens/s does not rise",
        ))  # fmt: skip
        return offered(*found)

    _bounds = (
        Bound("C29", "Typical of small models and batches; with larger ones the device has enough to do meanwhile."),
        Bound("C18", "Speculation with a small draft adds launches where launches are the limit."),
    )


class InterferenceJitter:
    """Prompts hold up the answers."""

    name = "interference-jitter"
    means = "gaps between tokens jump whenever the step also computes somebody's prompt"
    explains: tuple[str, ...] = ()
    latencies = ("itl", "tpot")

    def match(self, evidence: Evidence) -> Answer:
        if evidence.missed("itl") is False and evidence.missed("tpot") is not True:
            return None
        beside, alone = evidence.itl_with_prefill_s, evidence.itl_without_prefill_s
        tail = self._tail(evidence)
        if beside is None or alone is None:
            if tail is None:
                return Missing(self.name, ("itl_with_prefill_s", "itl_without_prefill_s", "itl_p99_s"))
            return self._from_tail(evidence, tail)
        weight = hurts(evidence, self.latencies)
        jump = JUMP if weight == 1 else UNSTATED_JUMP
        if not alone or beside < jump * alone or (tail is not None and tail < jump):
            return None
        if weight == 1 and not misses_in_the_tail_alone(evidence):
            weight = UNSTATED / 2  # a gap without a prompt in it is too long as well
        found = lines(
            line(f"a gap beside a prompt is {seconds(beside)}, else {seconds(alone)}: {beside / alone:.1f} times",
                 "itl_with_prefill_s"),
            None if tail is None else line(f"p99 of the gaps is {tail:.1f} times their median", "itl_p99_s"),
        )  # fmt: skip
        score = weight * min(1.0, 0.6 + 0.1 * beside / alone)
        return self._finding(evidence, score, found)

    def _from_tail(self, evidence: Evidence, tail: float) -> Answer:
        """By the shape of the gaps alone: much else has a tail, so long prompts must be there and memory must not."""
        if tail < TAIL:
            return None
        if evidence.missed(*self.latencies) and not misses_in_the_tail_alone(evidence):
            return None
        if kv_is_tight(evidence) or (evidence.prompt_tokens is not None and evidence.prompt_tokens < LONG_PROMPT / 8):
            return None
        if evidence.prompt_tokens is None or kv_is_tight(evidence) is None:
            return Missing(self.name, ("itl_with_prefill_s", "itl_without_prefill_s", "prompt_tokens"))
        found = lines(
            line(f"p99 of the gaps is {tail:.1f} times their median", "itl_p99_s"),
            line(f"prompts have {number(evidence.prompt_tokens)} tokens", "prompt_tokens"),
        )
        return self._finding(evidence, hurts(evidence, self.latencies) * 0.7, found)

    def _finding(self, evidence: Evidence, score: float, found: tuple[Line, ...]) -> Finding:
        return Finding(
            self.name, score, found + missed_lines(evidence, self.latencies), self._changes(evidence), self._bounds
        )

    def _tail(self, evidence: Evidence) -> float | None:
        if not evidence.itl_p50_s or evidence.itl_p99_s is None:
            return None
        return evidence.itl_p99_s / evidence.itl_p50_s

    def _changes(self, evidence: Evidence) -> tuple[Change, ...]:
        found = []
        if evidence.setting("chunked_prefill") == "off":
            found.append(Change(
                "chunked_prefill", "off", "on",
                why="a prompt is computed in pieces beside the answers, so no step is as long as a whole prompt",
                refuted_by="ITL p99 does not fall",
            ))  # fmt: skip
        before, after = stepped(evidence, "max_num_batched_tokens", 0.5)
        found.append(Change(
            "max_num_batched_tokens", before, after,
            why="smaller pieces of a prompt lengthen each step less",
            refuted_by="ITL p99 does not fall, or time to first token misses its objective",
        ))  # fmt: skip
        if evidence.setting("disaggregation") in (None, "off"):
            found.append(Change(
                "disaggregation", evidence.setting("disaggregation"), "on",
                why="prompts are computed elsewhere, and answers are left alone",
                refuted_by="ITL p99 does not fall, or moving KV costs more time to first token than it is worth",
                effort=ARCHITECTURE,
            ))  # fmt: skip
        return offered(*found)

    _bounds = (
        Bound(
            "C29", "Jitter calls for prefill and decode apart; chunked prefill takes much of that gain in one place."
        ),
        Bound("C31", "Disaggregation is the last step of the ladder: it pays under load with long prompts."),
        Bound("C33", "Guard jitter as an objective on itl_p99; a mean does not show it."),
    )
