"""The ladder on three workloads: one where its steps are known to pay or not, short chat, and long documents.

    python benchmarks/ladder_workload.py [--case NAME|all] [--store DIR] [--slice-s 540] [--out FILE]

`tight`: requests of very different lengths, all at once, in KV memory that holds few of them whole. Continuous batching
with paging and INT8 KV have to be adopted; speculation (drafts of a trained head for many sequences at once), a planted
loss of quality (two-bit KV, keys per token) and a planted slow step (two seats) must not be; goodput at the end is at
least 1.3 times that of the start. `chat` and `documents` have to end at least as good in every guarded curve as they
began, or within the objective that allows more; `chat-strict` has no objective.

On one core `tight` took 42 minutes, `chat` 10. With --slice-s it stops after so many seconds with exit code 75; the
same command goes on where it was. Exit code 0 when every condition holds, 1 when one does not; each is printed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from experiments.cli.ladder import print_ladder
from experiments.kinds import kind_of
from experiments.playbook.decide import GUARDED
from experiments.playbook.run import LadderCancelled, run_ladder
from experiments.store import Store

NOT_FINISHED = 75
LEAST_GOODPUT = 1.3
LOSS, SLOW = "planted quality loss", "planted slow step"
LADDER = ("continuous-paged", "kv-int8", "speculation")
# A greedy model of this size repeats itself, so that look-up finds drafts even where no prompt repeats anything.
TIGHT = ("continuous-paged", "kv-int8", "draft")
WORKLOAD = """name = "tight"
description = "Answers of very different lengths, all at once; each states a limit of 192 tokens."
requests = 28
prompt_tokens = { kind = "log-uniform", low = 64, high = 256 }
output_tokens = { kind = "log-uniform", low = 16, high = 192 }
max_tokens = 192
"""
Spec = dict[str, Any]
Check = Callable[[Mapping[str, Any]], list[tuple[str, bool]]]


def tight(folder: Path) -> Spec:
    """64 MiB are some 1,450 tokens of 32-bit KV: four whole reservations, about seven requests as they grow."""
    path = folder / "tight.toml"
    path.write_text(WORKLOAD, "utf-8")
    return {
        "workload": str(path),
        "slo": "ttft_p95=8,itl_p95=1",  # gaps allow a full batch of 32-bit steps on one slow core
        "settings": {"dtype": "fp32", "kv_memory_mib": 64, "max_num_seqs": 16, "draft_control": "fixed"},
        "steps": TIGHT,
        "own": [[LOSS, {"kv_dtype": "int2", "kv_key_axis": "token"}], [SLOW, {"max_num_seqs": 2}]],
    }


def chat(_: Path) -> Spec:
    """The built-in short chats, at their own pace."""
    return {"workload": "chat", "steps": LADDER, "slo": "ttft_p95=2,itl_p95=0.3"}


def chat_strict(_: Path) -> Spec:
    """The same without objectives: no step may lengthen the gaps between tokens, whatever it gains."""
    return {"workload": "chat", "steps": LADDER}


def documents(_: Path) -> Spec:
    """Five long documents."""
    return {"recipe": "long-documents", "num_requests": 5, "rate_rps": 0.4, "settings": {"kv_memory_mib": 512}}


def as_built(result: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Exactly what pays is adopted, what was planted is refused for what was planted, and goodput rises."""
    adopted = [row["name"] for row in result["steps"] if row["outcome"] == "adopted"]
    planted = {row["name"]: row for row in result["steps"] if row["name"] in (LOSS, SLOW)}
    codes = {name: [reason["code"] for reason in row["reasons"]] for name, row in planted.items()}
    times = goodput_times(result)
    return [
        (f"adopted exactly continuous + paging and KV INT8: {adopted}", adopted == ["continuous-paged", "kv-int8"]),
        (f"the quality loss is refused as one: {codes[LOSS]}", "quality_lost" in codes[LOSS]),
        (f"the slow step is refused as worse: {codes[SLOW]}", "worse" in codes[SLOW]),
        (f"goodput, end over start: {times}", times is not None and times >= LEAST_GOODPUT),
    ]


def no_worse(result: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """No guarded curve of the end is worse than the start's, beyond what an objective on it allows."""
    if result["overall"] is None:
        return [("the end is the start", True)]
    allowed = {
        curve["name"]: " and within its objective"
        for reason in result["overall"]["reasons"] if reason["code"] == "allowed" for curve in reason["curves"]
    }  # fmt: skip
    curves = {one["name"]: one for one in result["overall"]["comparison"]["curves"] if one["name"] in GUARDED}
    return [
        (f"{name}: {one['verdict']}{allowed.get(name, '')}{_change(one)}", one["verdict"] != "worse" or name in allowed)
        for name, one in curves.items()
    ]


def _change(curve: Mapping[str, Any]) -> str:
    return "" if curve["change_pct"] is None else f" ({curve['change_pct']:+.1f} %)"


def goodput_times(result: Mapping[str, Any]) -> float | None:
    """Goodput of the end over that of the start, measured directly; infinite from nothing."""
    if result["overall"] is None:
        return None
    curve = next(one for one in result["overall"]["comparison"]["curves"] if one["name"] == "goodput_rps")
    if curve["change_pct"] is not None:
        return float(1 + curve["change_pct"] / 100)
    samples = curve["samples"]
    return float("inf") if any(samples["candidate"]) and not any(samples["baseline"]) else None


CASES: dict[str, tuple[Callable[[Path], Spec], Check]] = {
    "tight": (tight, as_built),
    "chat": (chat, no_worse),
    "chat-strict": (chat_strict, no_worse),
    "documents": (documents, no_worse),
}


def run_case(name: str, folder: Path, repeats: str, should_stop: Callable[[], bool]) -> dict[str, Any] | None:
    """The ladder of a case, gone on with where an earlier call stopped; None when this one was stopped too."""
    store = Store(folder / "runs.sqlite3")
    spec = kind_of("ladder").check({**CASES[name][0](folder), "repeats": repeats})
    known = [run for run in store.list_runs(kind="ladder") if run.spec == json.loads(json.dumps(spec))]
    if known and known[0].state == "done":
        return known[0].result
    run_id = known[0].id if known else store.create_run("ladder", spec)
    shown = ""

    def tell(live: dict[str, Any]) -> None:
        nonlocal shown
        text = f"{name}: {live['step']} {live['phase']} {live['repeat']}/{live['repeats']}"
        if text != shown:
            shown = text
            print(f"{live['fraction']:4.0%} {text}", file=sys.stderr, flush=True)

    try:
        result = run_ladder(spec, store, run_id, tell, should_stop)
    except LadderCancelled:
        return None
    store.update_run(run_id, state="done", result=result)
    return result


def main() -> int:
    """Run the cases, print each report and its conditions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=[*CASES, "all"], default="all")
    parser.add_argument("--store", type=Path, default=Path("ladder-runs"))
    parser.add_argument("--repeats", default="5")
    parser.add_argument("--slice-s", type=float, default=float("inf"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.store.mkdir(parents=True, exist_ok=True)
    end_s = time.monotonic() + options.slice_s
    found: dict[str, Any] = {}
    for name in CASES if options.case == "all" else (options.case,):
        result = run_case(name, options.store.resolve(), options.repeats, lambda: time.monotonic() > end_s)
        if result is None:
            print(f"{name}: stopped after {options.slice_s:g} s; the same command goes on", file=sys.stderr)
            return NOT_FINISHED
        print_ladder(result)
        checks = CASES[name][1](result)
        for text, holds in checks:
            print(f"{'holds' if holds else 'FAILS'}  {name}: {text}")
        found[name] = {"result": result, "checks": [list(one) for one in checks]}
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1), "utf-8")
    return int(not all(holds for case in found.values() for _, holds in case["checks"]))


if __name__ == "__main__":
    raise SystemExit(main())
