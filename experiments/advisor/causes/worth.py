"""Causes in what an optimisation gives and takes: drafts that cost more than they save, quality, money."""

from __future__ import annotations

from experiments.advisor.causes.base import (
    ONE_AT_A_TIME,
    TAKEN,
    Answer,
    has_room,
    line,
    lines,
    number,
    percent,
    told,
)
from experiments.advisor.causes.changes import lighter_weights, offered, seats
from experiments.advisor.evidence import Evidence
from experiments.advisor.finding import CODE, Bound, Change, Finding, Line, Missing
from experiments.advisor.speculation import BETTER, REFUSES, WORSE, advise
from ledger.speculation import MOST_DRAFTS, Costs, accepted_per_draft, break_even_cost

# A speed-up measured as a whole is decided beyond this; between, it says nothing.
DECIDED = 0.02
# Below this alpha no draft that is a model of its own has been seen to pay (C37: alpha 0.3, 15 % slower).
POOR = 0.4
# A loss of quality that counts where no objective says one: of the whole, of a slice.
DROP, SLICE_DROP = 0.01, 0.03
QUANTIZED_KV = ("fp8", "int8", "int4", "int2")
_HALVINGS = 40


class SpeculationBackfire:
    """Drafts cost more than they save."""

    name = "speculation-backfire"
    means = "drafted tokens cost more than they save"
    explains = ("decode-compute-bound", "over-admission", "launch-bound", "decode-bandwidth-bound")
    latencies = ("itl", "tpot", "e2e")

    def match(self, evidence: Evidence) -> Answer:
        form = evidence.setting("speculation")
        drafting = form not in (None, "off") or (form is None and self._told(evidence))
        if not drafting:
            return None
        alpha = self._alpha(evidence)
        k = self._k(evidence)
        measured = self._measured(evidence)
        costs = self._costs(evidence)
        if measured == BETTER:
            return None
        if alpha is not None and k is not None and costs is not None:
            advice = advise(alpha, k, costs, measured)
            if advice.verdict == REFUSES:
                times = advice.predicted
                return self._finding(evidence, alpha, k, None if times is None else f"{times:.2f} times as fast", 0.95)
            return None
        if measured == WORSE:
            return self._finding(evidence, alpha, k, None, 0.95)
        if (gained := self._gained(evidence, k, costs)) is not None and gained <= 1:
            return self._finding(evidence, alpha, k, f"{gained:.2f} times as fast", 0.85)
        if alpha is None or k is None:
            return Missing(self.name, ("alpha", "draft_k", "draft_c", "verify_v", "speculation_speedup"))
        if alpha < POOR and form not in ("ngram", "medusa"):
            allowed = break_even_cost(alpha, k)
            return self._finding(evidence, alpha, k, f"at most even if a draft takes {allowed:.2f} of a pass", 0.75)
        return Missing(self.name, ("draft_c", "verify_v", "speculation_speedup"))

    def _gained(self, evidence: Evidence, k: int | None, costs: Costs | None) -> float | None:
        """Tokens of a cycle as measured over the passes that it takes: one at least."""
        tokens = evidence.tokens_per_pass
        if tokens is None:
            return None
        if costs is None or k is None:
            return tokens if tokens <= 1 else None
        return tokens / costs.cycle(k)

    def _told(self, evidence: Evidence) -> bool:
        known = (evidence.alpha, evidence.acceptance_rate, evidence.draft_k, evidence.speculation_speedup)
        return any(value is not None for value in known)

    def _k(self, evidence: Evidence) -> int | None:
        k = evidence.draft_k if evidence.draft_k is not None else evidence.setting("num_draft_tokens")
        return int(k) if isinstance(k, int | float) and 1 <= k <= MOST_DRAFTS else None

    def _alpha(self, evidence: Evidence) -> float | None:
        """alpha as measured, or the one that makes the measured share of accepted drafts."""
        if evidence.alpha is not None or evidence.acceptance_rate is None:
            return evidence.alpha
        k = self._k(evidence)
        if k is None:
            return None
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):  # accepted_per_draft rises with alpha
            middle = (low + high) / 2
            low, high = (middle, high) if accepted_per_draft(middle, k) < evidence.acceptance_rate else (low, middle)
        return (low + high) / 2

    def _costs(self, evidence: Evidence) -> Costs | None:
        v, c = evidence.verify_v, evidence.draft_c
        return None if c is None or not v else Costs(v, c, bool(evidence.parallel_drafts))

    def _measured(self, evidence: Evidence) -> str | None:
        times = evidence.speculation_speedup
        if times is None or abs(times - 1) <= DECIDED:
            return None
        return BETTER if times > 1 else WORSE

    def _finding(
        self, evidence: Evidence, alpha: float | None, k: int | None, predicted: str | None, score: float
    ) -> Finding:
        times = evidence.speculation_speedup
        batch = evidence.batch if evidence.batch is not None else evidence.running
        found = lines(
            None
            if alpha is None
            else line(f"alpha is {alpha:.2f}" + (f" with {k} drafts at a time" if k else ""), "alpha"),
            None if evidence.draft_c is None else line(f"a draft takes {evidence.draft_c:.2f} of a pass", "draft_c"),
            None if evidence.verify_v is None else line(f"verifying takes {evidence.verify_v:.2f} passes", "verify_v"),
            None if predicted is None else line(f"by the model: {predicted}"),
            None if times is None else line(f"measured: {times:.2f} times as fast as without", "speculation_speedup"),
            None if batch is None else line(f"{number(batch)} sequences share a step", "batch"),
        )
        form = evidence.setting("speculation")
        changes = [
            Change(
                "speculation", form, "off",
                why="every cycle takes longer than the passes that it saves",
                refuted_by="output tokens/s falls, or the gaps between tokens get longer",
            )
        ]  # fmt: skip
        if k is not None and k > 1:
            changes.append(Change(
                "num_draft_tokens", k, max(1, k // 2),
                why="the later drafts are seldom accepted",
                refuted_by="output tokens/s does not rise",
            ))  # fmt: skip
        return Finding(self.name, score, found, tuple(changes), self._bounds)

    _bounds = (
        Bound("C18", "Speculation does not pay for small fast targets or low acceptance; at large batches verifying is "
                     "computing."),
        Bound("C30", "Try it alone: with another change beside it neither can be judged."),
    )  # fmt: skip


class QualityRisk:
    """The answers got worse, or nobody looked."""

    name = "quality-risk"
    means = "a setting that changes the answers lost quality, or was never evaluated"
    explains: tuple[str, ...] = ()
    latencies: tuple[str, ...] = ()

    def match(self, evidence: Evidence) -> Answer:
        few_bits = self._few_bits(evidence)
        drop, slices = evidence.quality_drop, evidence.quality_slices
        limit = evidence.limit("quality_drop")
        if drop is None and not slices:
            if not few_bits or evidence.quality_evaluated:
                return None
            if evidence.quality_evaluated is None:
                return Missing(self.name, ("quality_drop", "quality_evaluated"))
            return self._finding(evidence, 0.5, lines(line(f"{few_bits} was never evaluated", "quality_evaluated")))
        allowed = DROP if limit is None else limit
        worst = max(slices, key=lambda name: slices[name], default=None)
        whole = drop is not None and drop > allowed
        hidden = worst is not None and slices[worst] > max(SLICE_DROP, allowed)
        if not (whole or hidden):
            return None
        found = lines(
            None if drop is None else line(f"quality fell by {percent(drop)} on the whole", "quality_drop"),
            None if worst is None else line(f"worst slice, {worst}: by {percent(max(0.0, slices[worst]))}"),
            None if limit is None else line(f"the objective allows {percent(limit)}"),
            None if not few_bits else line(f"what changes the answers: {few_bits}"),
        )
        return self._finding(evidence, 0.98 if limit is not None and whole else 0.9, found)

    def _few_bits(self, evidence: Evidence) -> str:
        """The settings that round weights or KV, in words."""
        weights, kv = evidence.setting("weights"), evidence.setting("kv_dtype")
        named = []
        if weights not in (None, "none", "as-stored"):
            named.append(f"weights={weights}")
        if kv in QUANTIZED_KV or (isinstance(kv, str) and kv.startswith("fp8")):
            named.append(f"kv_dtype={kv}")
        return ", ".join(named)

    def _finding(self, evidence: Evidence, score: float, found: tuple[Line, ...]) -> Finding:
        weights, kv = evidence.setting("weights"), evidence.setting("kv_dtype")
        changes = []
        if isinstance(weights, str) and weights.startswith("w4"):
            changes.append(Change(
                "weights", weights, "w8a8",
                why="8 bits lose next to nothing where 4 lose a slice",
                refuted_by="the slice stays as bad: then it is not the weights",
            ))  # fmt: skip
        elif weights not in (None, "none", "as-stored"):
            changes.append(Change(
                "weights", weights, "none",
                why="full precision shows whether the weights' format is the reason",
                refuted_by="the slice stays as bad: then it is not the weights",
            ))  # fmt: skip
        if kv in ("int4", "int2"):
            changes.append(Change(
                "kv_dtype", kv, "int8",
                why="8 bits of KV lose almost nothing",
                refuted_by="the slice stays as bad: then it is not the KV",
            ))  # fmt: skip
        return Finding(self.name, score, found, tuple(changes), self._bounds)

    _bounds = (
        Bound("C28", "W8A8 before W4; W4 only when memory truly does not hold, and never without an evaluation."),
        Bound("C31", "A step of the ladder that loses quality is rolled back, whatever it gains."),
        Bound("C30", "Look at each slice: the mean hides a tail that lost ten points."),
    )


class CostBound:
    """It is fast enough and too dear."""

    name = "cost-bound"
    means = "latency objectives are met, but a request costs more than its budget"
    explains: tuple[str, ...] = ()
    latencies: tuple[str, ...] = ()

    def match(self, evidence: Evidence) -> Answer:
        budget, cost = evidence.limit("cost_per_request"), evidence.cost_per_request
        if budget is None:
            return None  # nobody said what it may cost
        if cost is None:
            return Missing(self.name, ("cost_per_request", "price_per_device_hour"))
        if cost <= budget or evidence.missed("ttft", "tpot", "itl", "e2e"):
            return None
        found = lines(
            line(f"a request costs {number(cost)}, its budget is {number(budget)}", "cost_per_request"),
            told(evidence, "device_utilisation", "the device is {} utilised"),
            line(f"{percent(min(1.0, evidence.seats_taken))} of the seats are taken", "running")
            if evidence.seats_taken is not None
            else None,
        )
        over = cost / budget - 1 if budget else 1.0  # nothing is cheap enough for a budget of 0
        return Finding(self.name, min(0.95, 0.5 + 0.5 * over), found, self._changes(evidence), self._bounds)

    def _changes(self, evidence: Evidence) -> tuple[Change, ...]:
        found: list[Change | None] = [
            lighter_weights(
                evidence, "w8a8",
                why="more tokens a device-hour, from half the bytes and faster products",
                refuted_by="cost per request does not fall, or quality falls on your own items",
            )
        ]  # fmt: skip
        taken = evidence.seats_taken
        if has_room(evidence) is not False and (taken is None or taken >= TAKEN):
            found.insert(0, seats(
                evidence, 2,
                why="latency has room: more sequences share what a device-hour costs",
                refuted_by="cost per request does not fall, or a latency objective is missed",
            ))  # fmt: skip
        if evidence.setting("prefix_cache") == "off":
            found.append(Change(
                "prefix_cache", "off", "on",
                why="what is not computed again costs nothing",
                refuted_by="prefill tokens computed stay the same",
            ))  # fmt: skip
        found.append(Change(
            "replicas", None, None,
            why="fewer instances, each at the rate where its objectives just hold (trilemma sweep, trilemma plan)",
            refuted_by="a latency objective is missed",
            effort=CODE,
        ))  # fmt: skip
        return offered(*found)

    _bounds = (
        Bound("C33", "Cost is a budget, and what is left of the latency objectives is what may be spent on it."),
        Bound("C29", "High cost: W8A8 first, W4 on a single card or at the edge."),
        Bound("C43", "Settings come first; measured gain over effort may order them otherwise."),
        ONE_AT_A_TIME,
    )
