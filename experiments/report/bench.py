"""The report of one run of a workload: latencies, rates, costs, where the time went, memory, every request."""

from __future__ import annotations

from experiments.report import parts
from experiments.report.definitions import OF_A_RUN
from experiments.report.document import Findings
from experiments.report.titles import Records, Result, label_of, title_of
from experiments.report.words import MISSING, Words, number, percent
from experiments.store import Run


def of_bench(run: Run, result: Result, records: Records, words: Words) -> Findings:
    """One run's metrics."""
    label, name = label_of(result), str(run.spec.get("workload", run.id))
    ttft, itl = ((result.get(latency) or {}).get("p95") for latency in ("ttft_s", "itl_s"))
    completed = result.get("completed") or 0
    told = words(
        "bench_verdict", tokens=number(result.get("output_tokens_per_s")), ttft=_seconds(ttft), itl=_seconds(itl),
        completed=completed, all=completed + (result.get("failed") or 0),
    )  # fmt: skip
    attained = result.get("slo_attainment")
    energy = parts.energy([(words("mean"), result)], words)
    drawn = [(words("events_arm", arm=one.arm), one) for one in records[:1]]
    caption = words("events_of", arm=records[0].arm, repeat=records[0].repeat) if records else ""
    sections = (
        parts.latencies(result, label, words),
        parts.figures(result, label, words),
        energy,
        parts.breakdown(result, label, words),
        parts.ledger([(name, result)], label, words),
        parts.timeline(drawn, caption, words),
        parts.other_terms(result, words),
    )
    return Findings(
        title_of(run, words), words("q_bench", workload=name), told, sections,
        more=() if attained is None else (words("bench_slo", share=percent(100 * attained)),),
        caveats=(words("c_one_run"), *parts.few_samples([result], words)),
        defined=OF_A_RUN if energy is None else (*OF_A_RUN, "energy"),
    )  # fmt: skip


def _seconds(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"{number(value)} s" if value >= 1 else f"{number(value * 1000)} ms"
