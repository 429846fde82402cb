"""What the page takes from the engine: decode steps with the page open in a browser against closed, in one run.

    python benchmarks/page_cost.py [--windows 6] [--seconds 20] [--json FILE]

Starts the page's server, opens it in headless Chromium (playwright), starts a comparison of two seeds from the page,
and shows the live page and an empty one in turn. Steps come from the run's own live file, 4 a second at most; processor
time from /proc. Ends its own run and processes.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from page_browser import browser, end, new_page, server, wait_until_it_measures

from experiments import jobs
from experiments.store import Store

EXPERIMENT = "variable=seed&values=0,1&requests=64&repeats=20"


def cpu_s(pids: list[int]) -> float:
    """Processor time that processes have used so far, s."""
    total = 0.0
    for pid in pids:
        try:
            times = psutil.Process(pid).cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def browser_pids() -> list[int]:
    """This process's descendants that are a browser's."""
    return [child.pid for child in psutil.Process().children(recursive=True) if "chrom" in child.name()]


def watch(store: Store, run_id: str, groups: dict[str, list[int]], seconds: float) -> dict[str, Any]:
    """Steps seen in a window, s, and the cores that each group of processes kept busy."""
    before, began, steps = {name: cpu_s(pids) for name, pids in groups.items()}, time.monotonic(), []
    while time.monotonic() - began < seconds:
        live = jobs.live(run_id, store)
        if live and live["phase"] == "running" and live["snapshot"] and live["snapshot"]["step_s"]:
            steps.append(live["snapshot"]["step_s"])
        time.sleep(0.25)
    took = time.monotonic() - began
    return {"steps": steps, "cores": {name: (cpu_s(pids) - before[name]) / took for name, pids in groups.items()}}


def measure(windows: int, seconds: float) -> dict[str, Any]:
    """All windows, open and closed in turn."""
    with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as served, browser() as running:
        page = new_page(running)
        page.goto(f"{served.url}/?{EXPERIMENT}")
        page.get_by_role("button", name=re.compile(r"^(play_arrow)?\s*Run( again)?(\s*Ctrl \+ Enter)?$")).click()
        page.wait_for_url(re.compile(r"[?&]run=[0-9a-f]{8}"))
        run_id = page.url.split("run=")[1][:8]
        store = Store(Path(folder) / "runs.sqlite3")
        worker = wait_until_it_measures(store, run_id)
        seen: dict[str, list[dict[str, Any]]] = {"open": [], "closed": []}
        for turn in range(windows):
            for state in ("open", "closed") if turn % 2 == 0 else ("closed", "open"):
                page.goto(f"{served.url}/?run={run_id}" if state == "open" else "about:blank")
                if state == "open":
                    page.get_by_role("button", name=re.compile("Cancel$")).wait_for()
                groups = {"page": [served.pid], "browser": browser_pids(), "worker": [worker]}
                seen[state].append(watch(store, run_id, groups, seconds))
        end(store, run_id)
    return summary(seen)


def summary(seen: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Median step and busy cores of each state, and how much longer a step takes with the page open."""
    result: dict[str, Any] = {}
    for state, watched in seen.items():
        result[state] = {
            "step_ms": 1e3 * median([step for window in watched for step in window["steps"]]),
            "cores": {name: median([window["cores"][name] for window in watched]) for name in watched[0]["cores"]},
            "windows": len(watched),
        }
    result["open_over_closed"] = result["open"]["step_ms"] / result["closed"]["step_ms"]
    return result


def main() -> None:
    """Print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result = measure(options.windows, options.seconds)
    text = json.dumps(result, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text)


if __name__ == "__main__":
    main()
