"""`trilemma jitter`: what keeps answers steady while long prompts arrive, side by side on one workload."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from experiments.cli import options
from experiments.cli.groups import grouped
from experiments.cli.measure import run_job
from experiments.cli.output import CANCELLED, DONE, print_json
from ledger.counted import counted


@grouped
def jitter(
    arms: Annotated[
        list[str] | None,
        typer.Option(
            "--arm",
            metavar="NAME:VAR=VALUE,...",
            help="An arm and its settings, once an arm; without any: whole prompts, chunked, max_queue, rate limit, "
            "disaggregated.",
        ),
    ] = None,
    load: options.Load = options.Load(workload="long-prompts"),
    repeats: Annotated[str, typer.Option("--repeats", metavar="N", help="Runs of each arm.")] = "3",
    as_json: options.Json = False,
) -> int:
    """Gaps between tokens, TTFT, throughput and refused requests of several settings on one workload."""
    from experiments.jitter.spec import JitterSpec, parse_arms

    chosen = {"arms": parse_arms(arms)} if arms else {}
    spec = JitterSpec.from_dict({**load.fields(), **chosen, "repeats": repeats})
    run, result = run_job("jitter", spec.to_dict(), list(spec.names()))
    if as_json:
        print_json(result)
    else:
        print_jitter(result)
    return CANCELLED if run.state == "cancelled" else DONE


def print_jitter(result: dict[str, Any]) -> None:
    """A row an arm: ITL p99 with and without a prompt beside it, TTFT p95, throughput, refused requests, hand-over."""
    from experiments.cli.tables import console, number, plain_table

    out = console()
    out.print(
        f"workload {result['workload']['name']}, {counted(result['repeats'], 'repeat')} of "
        f"{counted(len(result['arms']), 'arm')}"
    )
    table = plain_table(
        "arm", "ITL p99, ms", "beside a prompt", "alone", "first gap p95", "TTFT p95, s", "tokens/s", "refused",
        "hand-over p50, ms", "threads",
    )  # fmt: skip
    for arm in result["arms"]:
        figures, moved = arm["figures"], arm["transfers"]
        spans = (figures[name] for name in ("itl_p99_s", "beside_p99_s", "alone_p99_s", "first_gap_p95_s"))
        hand_over = None if moved is None else moved["transfer_s"]["p50"]
        table.add_row(
            arm["name"],
            *(_ms(span) for span in spans),
            _or_dash(figures["ttft_p95_s"], number),
            _or_dash(figures["output_tokens_per_s"], number),
            _or_dash(figures["refused"], number),
            _ms(hand_over),
            str(arm["threads"]),
        )
    out.print(table)
    out.print(f"all figures measured, medians over repeats; run {result['run_id']}")


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.1f}"


def _or_dash(value: Any, text: Any) -> str:
    return "-" if value is None else str(text(value))
