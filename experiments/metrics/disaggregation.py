"""Prefill and decode apart: what was handed over, how long it took, and how busy each side was.

Of a run with disaggregation=on, from record["transfers"], the steps' `side` and record["disaggregation"] (see
core_engine/disaggregation/told.py).
"""

from __future__ import annotations

from typing import Any

from experiments.metrics.events import NS_PER_S, Record, summary, window_ns
from experiments.metrics.intervals import Intervals

SIDES = ("prefill", "decode")


def disaggregation(record: Record) -> dict[str, Any] | None:
    """None for a run in one process. Else, times in s:

    transfers, bytes_moved: prefixes that decode took, and the payload copied out of prefill's pool; bytes_imported is
    less where decode knew blocks by its prefix cache. transfer_s: from the end of a request's prefill until decode has
    its KV: copy_out_s + waiting_s (for decode's step to end, a slot, blocks) + copy_in_s, and what lies between.
    bytes_per_s: of the copying, both ways. prefill, decode: steps_s, copying_s and utilisation, the share of the run
    (first arrival to last token) in which the side computed a step or copied. Counts of losses, retried requests and
    restarts; paused_s: how long the head of the queue waited because decode, or the area, was full.
    """
    told = record.get("disaggregation")
    if told is None:
        return None
    moved = record["transfers"]
    copying = {
        "prefill": [(item["copy_start_ns"], item["copy_end_ns"]) for item in moved],
        "decode": [(item["import_start_ns"], item["import_end_ns"]) for item in moved],
    }
    copied_ns = sum(end - start for pairs in copying.values() for start, end in pairs)
    bytes_copied = sum(item["bytes"] + item["imported_bytes"] for item in moved)
    return {
        "transfers": len(moved),
        "bytes_moved": sum(item["bytes"] for item in moved),
        "bytes_imported": sum(item["imported_bytes"] for item in moved),
        "bytes_per_s": bytes_copied / copied_ns * NS_PER_S if copied_ns else None,
        "transfer_s": _times(record, "ready_ns", "import_end_ns"),
        "copy_out_s": _times(record, "copy_start_ns", "copy_end_ns"),
        "waiting_s": _times(record, "copy_end_ns", "import_start_ns"),
        "copy_in_s": _times(record, "import_start_ns", "import_end_ns"),
        **{side: _side(record, side, copying[side]) | _of_side(told[side]) for side in SIDES},
        "paused_s": {why: ns / NS_PER_S for why, ns in told["paused_ns"].items()},
        "losses": len(told["losses"]),
        "retried": len(told["retried"]),
    }


def _times(record: Record, start: str, end: str) -> dict[str, float | int | None]:
    return summary([(item[end] - item[start]) / NS_PER_S for item in record["transfers"]])


def _side(record: Record, side: str, copying: list[tuple[int, int]]) -> dict[str, float | None]:
    steps = [(s["plan_start_ns"], s["commit_end_ns"]) for s in record["steps"] if s.get("side") == side]
    window = window_ns(record)
    busy = Intervals([*steps, *copying])
    return {
        "steps_s": sum(end - start for start, end in steps) / NS_PER_S,
        "copying_s": sum(end - start for start, end in copying) / NS_PER_S,
        "utilisation": None if window is None else busy.within(*window) / (window[1] - window[0]),
    }


def _of_side(told: dict[str, Any]) -> dict[str, Any]:
    return {"threads": told["threads"], "cpus": told["cpus"], "restarts": told["restarts"]}
