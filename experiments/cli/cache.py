"""`trilemma cache`: what answer caches find and what they find wrongly, and what they save on one traffic."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from experiments.cli import options
from experiments.cli.groups import grouped
from experiments.cli.measure import run_job
from experiments.cli.output import CANCELLED, DONE, print_json
from ledger.counted import counted


@grouped
def cache(
    languages: Annotated[
        list[str] | None, typer.Option("--language", metavar="en|zh", help="Of the pairs; may be given twice.")
    ] = None,
    half: Annotated[
        str, typer.Option("--half", metavar="held|tune", help="Of the pairs: held apart, or those of the tuning.")
    ] = "held",
    traffic: Annotated[bool, typer.Option("--traffic/--no-traffic", help="Run the workload as well.")] = True,
    load: options.Load = options.Load(workload="repetitive"),
    repeats: Annotated[str, typer.Option("--repeats", metavar="N", help="Runs of each arm.")] = "3",
    as_json: options.Json = False,
) -> int:
    """Hits and wrong hits of the semantic cache over its threshold, staleness, and one workload with caches."""
    from experiments.caching.spec import CacheSpec

    chosen = {"languages": languages} if languages else {}
    spec = CacheSpec.from_dict({**load.fields(), **chosen, "half": half, "traffic": traffic, "repeats": repeats})
    run, result = run_job("cache", spec.to_dict(), spec.names())
    if as_json:
        print_json(result)
    else:
        print_cache(result)
    return CANCELLED if run.state == "cancelled" else DONE


def print_cache(result: dict[str, Any]) -> None:
    """A table of the pairs by language, one of what makes an answer old, one of the arms."""
    from experiments.cli.tables import console, number, plain_table

    out = console()
    out.print(f"pairs of the half {result['half']}, threshold {result['threshold']:g}, {result['encoder']}")
    table = plain_table("language", "paraphrases hit", "near misses hit", "without the gate", "strangers hit")
    for one in result["pairs"]:
        at = one["chosen"]
        cells = (_share(at[name]) for name in ("hit", "wrong", "wrong_ungated", "stranger_wrong"))
        table.add_row(one["language"], *cells)
    out.print(table)
    stale = [row["change"] for row in result["staleness"] if not row["must_hit"] and (row["exact"] or row["semantic"])]
    out.print(f"old answers given after a change of: {', '.join(stale) or 'nothing'}")
    if result["traffic"] is None:
        return
    traffic = result["traffic"]
    out.print(f"workload {traffic['workload']['name']}, {counted(traffic['repeats'], 'repeat')}")
    table = plain_table("arm", "hits", "wrong", "work saved", "TTFT p50, ms", "of hits", "tokens/s")
    for arm in traffic["arms"]:
        found, metrics = arm["cache"], arm["metrics"]
        hits = "-" if found is None else str(sum(found["hits"].values()))
        wrong = "-" if found is None else f"{found['wrong']} of {found['judged']}"
        saved = "-" if found is None else f"{100 * (found['saved_share'] or 0):.0f} %"
        of_hits = None if found is None else found["ttft_hit_s"]["p50"]
        table.add_row(
            arm["name"], hits, wrong, saved, _ms(metrics["ttft_s"]["p50"]), _ms(of_hits),
            number(metrics["output_tokens_per_s"]),
        )  # fmt: skip
    out.print(table)
    out.print(f"all figures measured; run {result['run_id']}")


def _share(found: dict[str, Any]) -> str:
    low, high = 100 * found["low"], 100 * found["high"]
    return f"{found['count']} of {found['total']} ({100 * found['rate']:.1f} %, {low:.1f} to {high:.1f})"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.1f}"
