"""C03: does what an engine really holds split into weights, KV cache, activations and buffers?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED, Verdict
from experiments.memory_view import AccountRow, account_rows

MIB = 2**20
EXACT = ("weights", "kv_pool", "padding_block")
PEAK_WITHIN = 0.10
WHOLE_WITHIN, WHOLE_WITHIN_BYTES = 0.03, 100_000_000
NAMED = (*EXACT, "activation_peak")  # the accounts that the statement speaks of

Bench = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def check(options: Mapping[str, Any], bench: Bench) -> dict[str, Any]:
    """One short run, its accounts predicted and measured."""
    given = {name: options[name] for name in ("settings", "seed") if name in options}
    spec = {"workload": "mixed", "num_requests": options.get("num_requests", 4), "max_tokens_cap": 8, **given}
    rows = account_rows(bench(spec)["memory"])
    verdict, reason = judge(rows)
    evidence = [
        {
            "account": row.name,
            "predicted_bytes": row.predicted_bytes,
            "measured_bytes": row.measured_bytes,
            "difference_bytes": row.difference_bytes,
            "provenance": row.measured_provenance or row.provenance,
            "predicted_provenance": row.provenance,
        }
        for row in rows
    ]
    return {"verdict": verdict, "reason": reason, "evidence": evidence}


def judge(rows: list[AccountRow]) -> Verdict:
    """Exact for what is allocated once, 10 % for the peak, 3 % or 100 MB for the whole; and what else there is."""
    by_name = {row.name: row for row in rows}
    if not {*NAMED, "total"} <= by_name.keys() or by_name["total"].measured_bytes is None:
        return UNDECIDED, "the memory of the process or the device can't be read here"
    wrong = [name for name in EXACT if by_name[name].difference_bytes != 0]
    if _off(by_name["activation_peak"]) > PEAK_WITHIN:
        wrong.append("activation_peak")
    total = by_name["total"]
    whole = total.measured_bytes or 0
    if abs(total.difference_bytes or 0) > max(WHOLE_WITHIN * whole, WHOLE_WITHIN_BYTES):
        wrong.append("total")
    named = sum(by_name[name].measured_bytes or 0 for name in NAMED)
    unexplained = by_name["unexplained"].measured_bytes or 0
    found = (
        f"the four accounts are {named / MIB:,.0f} of {whole / MIB:,.0f} MiB ({named / whole:.0%}), "
        f"{unexplained / MIB:,.0f} MiB are unexplained"
    )
    if wrong:
        return FAILS, f"not as predicted: {', '.join(wrong)}; {found}"
    if named < (1 - PEAK_WITHIN) * whole:
        return LIMITED, f"every account is as predicted, but {found}: interpreter, libraries and context are the rest"
    return HOLDS, f"every account is as predicted; {found}"


def _off(row: AccountRow) -> float:
    return abs(row.difference_bytes or 0) / row.predicted_bytes if row.predicted_bytes else float("inf")
