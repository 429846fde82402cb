"""C19, C20, C21: operator fusion, the whole step as one call, and split KV, each off against on in steps of one kind.

Every row times one step of the executor in both arms by turns; the token ids are the same by test. On CUDA these are
the kernels and the graphs that the claims speak of; elsewhere each says what stands in for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED, Verdict
from experiments.claims.timed_row import timed_row
from experiments.statistics import CurveSamples, judge
from experiments.step_probe import PairedProbe, ProbedStep, probe_pair

REPEATS = 12  # pairs of one step
COUNTED = "decode:1x256"
GPU = "triton"
STANDS_IN = {
    "C19": "a CPU launches no kernels: operators called in a compiled step stand in for launches, and passes over the "
    "processor's caches and memory for round trips to a GPU's memory",
    "C20": "without CUDA there is no graph: the compiled step as one call (on) against a call an operator (off) stands "
    "in for replay against launches. A prefill is one call too, where a GPU would not capture it",
    "C21": "cores stand in for a GPU's multiprocessors: few of them, which far fewer sequences fill",
}

ProbePair = Callable[[Sequence[ProbedStep], Sequence[Mapping[str, Any]], int], PairedProbe]
Count = Callable[[str, tuple[str, str], Mapping[str, Any]], dict[str, Any]]


def launches(variable: str, values: tuple[str, str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a decode step calls in each arm: {"counts", "launches": [..], "host_calls": [..], "device"}.

    counts: what is counted, kernels of a GPU or operators of a CPU; host_calls: how often the host calls them.
    """
    from experiments.operators.run import run_profile

    found = run_profile(
        {"step": COUNTED, "vary": [variable, list(values)], "settings": settings, "repeats": 3}, None, ""
    )
    return {
        "counts": found["arms"][0]["counts"],
        "launches": [arm["launches"] for arm in found["arms"]],
        "host_calls": [arm["host_calls"] for arm in found["arms"]],
    }


def fusion(options: Mapping[str, Any], probe: ProbePair = probe_pair, count: Count = launches) -> dict[str, Any]:
    """C19: fused_ops off against on, in a prefill, a decode of one sequence and of eight; and what a step calls."""
    steps = (ProbedStep("decode", 1, 256), ProbedStep("decode", 8, 256), ProbedStep("prefill", 1, 256))
    rows = _rows("fused_ops", ("off", "on"), steps, options, probe)
    called = count("fused_ops", ("off", "on"), options.get("settings") or {})
    verdict, reason = judge_every(rows, "the fused step")
    return _found("C19", verdict, f"{reason}. {_called(called, 'launches', 'unfused', 'fused')}", rows, called)


def one_call(options: Mapping[str, Any], probe: ProbePair = probe_pair, count: Count = launches) -> dict[str, Any]:
    """C20: graph off against on, where a step is short and where it is long; and how often the host calls."""
    steps = (ProbedStep("decode", 1, 256), ProbedStep("decode", 8, 256), ProbedStep("prefill", 1, 512))
    rows = _rows("graph", ("off", "on"), steps, options, probe)
    called = count("graph", ("off", "on"), options.get("settings") or {})
    verdict, reason = judge_decode_most(rows)
    return _found("C20", verdict, f"{reason}. {_called(called, 'host_calls', 'off', 'on')}", rows, called)


def split_kv(options: Mapping[str, Any], probe: ProbePair = probe_pair) -> dict[str, Any]:
    """C21: one range of keys against more of them, over the context of a lone sequence, and in a batch of 32."""
    rows = []
    for splits, steps in (
        ("2", (ProbedStep("decode", 1, 512), ProbedStep("decode", 1, 4096))),
        ("8", (ProbedStep("decode", 1, 4096), ProbedStep("decode", 32, 512))),
    ):
        rows += _rows("kv_splits", ("1", splits), steps, options, probe)
    return _found("C21", *judge_lone(rows), rows)


def judge_every(rows: Sequence[Mapping[str, Any]], what: str) -> Verdict:
    """Holds when every step got shorter, with a limit when some did."""
    gains = [row["part"] for row in rows if row["verdict"] == "better"]
    open_rows = [row["part"] for row in rows if row["verdict"] == "inconclusive"]
    if len(gains) == len(rows):
        return HOLDS, f"{what} is shorter: {_changes(rows)}"
    if not gains:
        word = UNDECIDED if open_rows else FAILS
        return word, f"{what} is not shorter in any of them: {_changes(rows)}"
    return LIMITED, f"{what} is shorter in {', '.join(gains)} only: {_changes(rows)}"


def judge_decode_most(rows: Sequence[Mapping[str, Any]]) -> Verdict:
    """Holds when a decode of one sequence gains, and gains more than the long prefill, the last row."""
    decode, prefill = rows[0], rows[-1]
    if decode["verdict"] != "better":
        word = UNDECIDED if decode["verdict"] == "inconclusive" else FAILS
        return word, f"a decode step as one call is not shorter: {_changes(rows)}"
    if decode["change_pct"] < prefill["change_pct"]:
        return HOLDS, f"as one call a decode step gains most: {_changes(rows)}"
    return LIMITED, f"a decode step gains, but not the most: {_changes(rows)}"


def judge_lone(rows: Sequence[Mapping[str, Any]]) -> Verdict:
    """Holds with a limit when a lone long sequence gains and a batch that fills the cores does not."""
    *lone, batch = rows
    longest = [row for row in lone if row["seq_len"] == max(other["seq_len"] for other in lone)]
    if not any(row["verdict"] == "better" for row in longest):
        word = UNDECIDED if any(row["verdict"] == "inconclusive" for row in longest) else FAILS
        return word, f"a lone sequence's step is not shorter with split KV: {_changes(rows)}"
    if batch["verdict"] == "better":
        return HOLDS, f"split KV shortens the step, in a batch too: {_changes(rows)}"
    return LIMITED, f"split KV shortens a lone sequence's step; a batch fills the cores by itself: {_changes(rows)}"


def _rows(
    name: str, values: tuple[str, str], steps: Sequence[ProbedStep], options: Mapping[str, Any], probe: ProbePair
) -> list[dict[str, Any]]:
    given, repeats = options.get("settings") or {}, options.get("repeats")
    arms = [{**given, name: value} for value in values]
    found = probe(steps, arms, int(repeats) if repeats and repeats != "auto" else REPEATS)
    curves = [CurveSamples(str(index), "mean", "lower", *pairs) for index, pairs in enumerate(found.seconds)]
    return [
        timed_row(
            step, verdict, found, part=f"{step.phase}, batch {step.batch}, {step.seq_len} tokens, {name}={values[1]}",
            variable=name, values=list(values),
        )
        for step, verdict in zip(steps, judge(curves), strict=True)
    ]  # fmt: skip


def _changes(rows: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(f"{row['part']} {row['change_pct']:+.1f} % ({row['verdict']})" for row in rows)


def _called(called: Mapping[str, Any], key: str, first: str, second: str) -> str:
    before, after = called[key]
    what = called["counts"] if key == "launches" else "calls by the host"
    return f"A decode step of one sequence: {before:,} {what} {first}, {after:,} {second}"


def _found(
    claim: str, verdict: str, reason: str, rows: list[dict[str, Any]], called: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    found: dict[str, Any] = {"verdict": verdict, "reason": reason, "evidence": rows}
    if called is not None:
        found["called"] = dict(called)
    return found if rows[0]["kernels"] == GPU else {**found, "not_checked": STANDS_IN[claim]}
