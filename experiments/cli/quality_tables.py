"""An evaluation as plain tables on stdout. Formatting only: every figure is read from the result."""

from __future__ import annotations

from typing import Any

from experiments.cli.tables import change, console, number, plain_table

MIB = 2**20


def print_evaluation(result: dict[str, Any]) -> None:
    """What each holds and how fast it is, then the baseline by slice, each candidate by slice and text, what the mean
    hides."""
    out = console()
    slices = result["baseline"]["slices"]
    _print_costs(out, result)
    if not result["candidates"]:
        _print_baseline(out, slices)
    for candidate in result["candidates"]:
        _print_candidate(out, candidate, {row["slice"]: row for row in slices})
    if result["baseline"]["texts"]:
        _print_texts(out, "baseline", result["baseline"]["texts"])
    if result["overlooked"] is not None:
        found = result["overlooked"]
        style = "bold red" if found["verdict"] == "found" else None
        out.print(f"what the mean hides: {found['sentence']}", style=style)
    out.print(f"items {result['items_hash']}; run {result['run_id']}; {result['provenance']}")


def _print_costs(out: Any, result: dict[str, Any]) -> None:
    """A row an arm: bytes held (measured), the KV cache's (computed), what calibrating took, and speed if timed."""
    arms = [("baseline", result["baseline"]), *((one["label"], one) for one in result["candidates"])]
    weighed = [(label, arm) for label, arm in arms if arm.get("held")]
    if not weighed:
        return
    kv = weighed[0][1]["held"]["kv"]
    out.print(f"sequences: of {kv['sequence_tokens']:,} tokens in {kv['memory_bytes'] / MIB:,.0f} MiB of KV memory")
    table = plain_table("", "weights MiB", "bits a weight", "not quantized", "KV B a token", "sequences", "calibration")
    for label, arm in weighed:
        weights, rest, cache = (arm["held"][part] for part in ("weights", "unquantized", "kv"))
        table.add_row(label, number(weights["bytes"] / MIB), number(weights["bits_per_weight"]),
                      _share(rest["share"]), f"{cache['bytes_per_token']:,.0f}", f"{cache['sequences']:,}",
                      _calibration(arm["held"]["calibration"]))  # fmt: skip
    out.print(table)
    timed = [(label, arm["speed"]["steps"]) for label, arm in weighed if arm.get("speed")]
    if timed:
        _print_speed(out, timed)


def _calibration(cost: dict[str, Any] | None) -> str:
    return "none" if cost is None else f"{number(cost['seconds'])} s, {cost['calibration_tokens']:,} tokens"


def _print_speed(out: Any, timed: list[tuple[str, list[dict[str, Any]]]]) -> None:
    """Tokens/s of every timed step, and how many times the baseline's that is."""
    names = [f"{step['phase']} {step['batch']} x {step['seq_len']}" for step in timed[0][1]]
    table = plain_table("tokens/s, median", *(text for name in names for text in (name, "x baseline")))
    for label, steps in timed:
        cells = []
        for step in steps:
            ends = step.get("speedup_ci95")
            times = "" if "speedup" not in step else number(step["speedup"])
            cells += [
                number(step["tokens_per_s"]),
                times + (f" [{number(ends[0])}, {number(ends[1])}]" if ends else ""),
            ]
        table.add_row(label, *cells)
    out.print(table)


def _print_baseline(out: Any, slices: list[dict[str, Any]]) -> None:
    table = plain_table("slice", "items", "accuracy", "95 %", "chance", "log-probability", "")
    for row in slices:
        table.add_row(row["slice"], str(row["items"]), _share(row["accuracy"]), _shares(row["ci95"]),
                      _share(row["chance"]), number(row["logprob"]), "" if row["signal"] else "no signal")  # fmt: skip
    if slices:
        out.print(table)


def _print_candidate(out: Any, candidate: dict[str, Any], base: dict[str, dict[str, Any]]) -> None:
    out.print(f"{candidate['label']} against the baseline")
    table = plain_table(
        "slice", "items", "baseline", "95 %", "candidate", "95 %", "points", "95 %", "p (Holm)", "verdict"
    )
    for row in candidate["slices"]:
        before = base[row["slice"]]
        signal = row["scored_by"] == "accuracy"
        moved = f"{row['change_points']:+.1f}" if signal else f"{row['logprob_change']:+.3f} nat"
        bounds = row["change_ci95"] if signal else row["logprob_ci95"]
        verdict = row["verdict"] if signal else f"no signal; by log-probability: {row['verdict']}"
        table.add_row(row["slice"], str(row["items"]), _share(before["accuracy"]), _shares(before["ci95"]),
                      _share(row["accuracy"]), _shares(row["ci95"]), moved, _bounds(bounds), f"{row['p_adjusted']:.2g}",
                      verdict)  # fmt: skip
    if candidate["slices"]:
        out.print(table)
    if candidate["texts"]:
        _print_texts(out, candidate["label"], candidate["texts"])
    elif candidate["texts_reason"]:
        out.print(f"texts: {candidate['texts_reason']}", style="red")


def _print_texts(out: Any, name: str, rows: list[dict[str, Any]]) -> None:
    table = plain_table("text", "tokens", "windows of", "baseline perplexity", name, "change", "95 %", "KL, nat/token",
                        "top-1 agreement")  # fmt: skip
    for row in rows:
        agreement = "–" if row["top1_agreement"] is None else _share(row["top1_agreement"])
        table.add_row(
            row["text"], f"{row['tokens']:,}", f"{row['window_tokens']:,}", number(row["baseline_perplexity"]),
            number(row["perplexity"]), change(row["change_pct"]), _bounds(row["change_ci95"]), number(row["kl_mean"]),
            agreement,
        )  # fmt: skip
    out.print(table)


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _shares(bounds: list[float]) -> str:
    return f"[{100 * bounds[0]:.1f}, {100 * bounds[1]:.1f}]"


def _bounds(bounds: list[float] | None) -> str:
    return "–" if bounds is None else f"[{bounds[0]:+.3g}, {bounds[1]:+.3g}]".replace("-", "−")
