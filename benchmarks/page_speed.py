"""How fast the page answers: the first page after start, a control beside an experiment, a run of 100,000 events.

    python benchmarks/page_speed.py [--tries 5] [--only first,control,events] [--json FILE]

Each figure is a median of `tries`, measured in headless Chromium (playwright) against a server with a store of its own.

first    from the command `trilemma ui` until the Workbench is drawn in a browser that was never here, and the part of
         it after the address is told. The server is started anew for every try.
control  from the press until what the press changed is drawn, while a comparison computes: two controls of the Ledger,
         one of the Roofline and one of the Workbench.
events   from the link until every chart is drawn, of a comparison whose drawn pair has 100,000 tokens: its trace and
         its verdict. It is simulated beforehand by the real scheduler and stored once a try, so that nothing is cached.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from page_browser import ANSWERED, CLOCK, browser, end, new_page, server, wait_until_drawn, wait_until_it_measures

from experiments import jobs
from experiments.compare import run_comparison
from experiments.levers.simulated import simulate_spec
from experiments.simulator.deployment import deployed
from experiments.spec import CompareSpec
from experiments.store import Store
from experiments.targets.simulator import SimulatorTarget

LIMITS_S = {"first": 2.0, "control": 0.3, "events": 1.5}
EVENTS = 100_000  # tokens of the drawn pair, at least
EXPERIMENT = {"variable": "seed", "values": [0, 1], "num_requests": 64, "repeats": 20}
LARGE = {"variable": "batching", "values": ["static", "continuous"], "num_requests": 720, "repeats": 2,
         "rate_rps": 400.0, "settings": {"max_num_seqs": 32, "kv_memory_mib": 512}}  # fmt: skip
CARD = "h100"


def first_page(tries: int) -> dict[str, list[float]]:
    """Seconds to the first page, from the command and from the address being told."""
    whole, page_s = [], []
    for _ in range(tries):
        with browser() as running, tempfile.TemporaryDirectory() as folder:
            page = new_page(running)
            with server(Path(folder)) as served:
                began = time.perf_counter()
                page.goto(served.url)
                wait_until_drawn(page)
                took = time.perf_counter() - began
            page_s.append(took)
            whole.append(served.told_s + took)
    return {"first": whole, "first_after_told": page_s}


def _pressed(page: Any, button: Any) -> float:
    """Seconds from pressing a button or an option until what it changed is painted."""
    page.evaluate(CLOCK)
    button.click()
    took = float(page.evaluate(ANSWERED)) / 1000
    wait_until_drawn(page)
    return took


def _chosen(page: Any, box: int, tries: int) -> list[float]:
    """Each try takes the next option of a select box, whose figures nobody has asked for yet."""
    field = page.locator("[data-testid=stMain] [data-testid=stSelectbox] input").nth(box)
    field.click()
    names = [name for name in page.get_by_role("option").all_inner_texts() if name != field.input_value()]
    page.keyboard.press("Escape")
    took = []
    for name in names[:tries]:
        field.click()
        took.append(_pressed(page, page.get_by_role("option", name=name, exact=True)))
    return took


def _language(page: Any, tries: int) -> list[float]:
    took = []
    for place in range(tries):
        name = ("中文", "English")[place % 2]
        took.append(_pressed(page, page.locator("[data-testid=stSidebar]").get_by_role("radio", name=name)))
    return took


def controls(tries: int) -> dict[str, list[float]]:
    """Seconds that controls take to answer while a comparison computes."""
    with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as served, browser() as running:
        store = Store(Path(folder) / "runs.sqlite3")
        run_id = jobs.start("compare", EXPERIMENT, store)
        try:
            wait_until_it_measures(store, run_id)
            page, took = new_page(running), {}
            for name, address, press in (
                ("ledger", "ledger", lambda: _chosen(page, 3, tries)),
                ("roofline", "roofline", lambda: _chosen(page, 2, tries)),
                ("running", f"?run={run_id}", lambda: _language(page, tries)),
                ("workbench", "?variable=batching", lambda: _chosen(page, 3, min(tries, 5))),
            ):
                page.goto(f"{served.url}/{address}")
                wait_until_drawn(page)
                took[f"control_{name}"] = press()
        finally:
            end(store, run_id)
    return {"control": max(took.values(), key=median), **took}


def stored_run(store: Store, copies: int) -> tuple[list[str], int]:
    """Ids of a comparison that was simulated once and stored so often, and how many tokens its drawn pair has."""
    spec = CompareSpec.from_dict(LARGE)
    made = [deployed(simulate_spec(arm, CARD)) for arm in spec.arms()]
    run_id = store.create_run("compare", spec.to_dict())
    result = run_comparison(spec, store, run_id, targets=[SimulatorTarget(one) for one in made])
    store.update_run(run_id, state="done", result=result)
    records, ids = store.records(run_id), [run_id]
    for _ in range(copies - 1):
        ids.append(store.create_run("compare", spec.to_dict()))
        for one in records:
            store.add_record(ids[-1], one.arm, one.repeat, one.record)
        store.update_run(ids[-1], state="done", result={**result, "run_id": ids[-1]})
    drawn = [one.record for one in records if one.repeat == 1]
    return ids, sum(tokens for record in drawn for request in record["requests"] for _, tokens in request["emissions"])


def events(tries: int) -> dict[str, Any]:
    """Seconds until a large run is drawn: its trace and its verdict, each by its link in the list of runs."""
    trace, verdict = [], []
    with tempfile.TemporaryDirectory() as folder, browser() as running:
        ids, tokens = stored_run(Store(Path(folder) / "runs.sqlite3"), 2 * tries)
        if tokens < EVENTS:
            raise ValueError(f"the drawn pair has {tokens} tokens; {EVENTS} are asked for: raise LARGE's num_requests")
        with server(Path(folder)) as served:
            page = new_page(running)
            for place, run_id in enumerate(ids):
                page.goto(f"{served.url}/runs?text={run_id}")
                wait_until_drawn(page)
                main = page.locator("[data-testid=stMain]")
                link = main.get_by_role("link", name=re.compile("Trace" if place % 2 else "Open"))
                page.evaluate(CLOCK)
                link.first.click()
                page.wait_for_function(f"location.search.includes('{run_id}') && !location.pathname.includes('runs')")
                wait_until_drawn(page)
                took = page.evaluate("performance.now() - window.pressed") / 1000
                (trace if place % 2 else verdict).append(took)
    return {"events": max(trace, verdict, key=median), "events_trace": trace, "events_verdict": verdict,
            "tokens": tokens}  # fmt: skip


MEASURES: dict[str, Callable[[int], dict[str, Any]]] = {"first": first_page, "control": controls, "events": events}


def measure(names: list[str], tries: int) -> dict[str, Any]:
    """The medians and all tries, s."""
    found: dict[str, Any] = {}
    for name in names:
        told = MEASURES[name](tries)
        print(name, json.dumps(told), file=sys.stderr, flush=True)
        found |= told
    tried = {name: values for name, values in found.items() if isinstance(values, list)}
    return {
        "median_s": {name: round(median(values), 4) for name, values in tried.items()},
        "limit_s": {name: LIMITS_S[name] for name in names},
        "tries_s": {name: [round(value, 4) for value in values] for name, values in tried.items()},
        **{name: value for name, value in found.items() if name not in tried},
    }


def table(result: dict[str, Any]) -> str:
    """A line a figure: its median, its limit where it has one, and the range of the tries."""
    lines = [f"{'figure':22}{'median s':>10}{'limit s':>10}{'least':>10}{'most':>10}"]
    for name, middle in result["median_s"].items():
        limit, tries = result["limit_s"].get(name), result["tries_s"][name]
        shown = "" if limit is None else f"{limit:g}"
        lines.append(f"{name:22}{middle:10.3f}{shown:>10}{min(tries):10.3f}{max(tries):10.3f}")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=5)
    parser.add_argument("--only", default=",".join(MEASURES), help="measures, joined by commas")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := [name for name in names if name not in MEASURES]:
        parser.error(f"--only {','.join(unknown)}: must be of {', '.join(MEASURES)}")
    result = measure(names, options.tries)
    print(table(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
