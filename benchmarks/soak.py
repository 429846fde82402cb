"""Does anything grow, get lost or get stuck when the workbench is used for long: jobs, cancels, kills, reads, requests.

    python benchmarks/soak.py [--minutes 30] [--seed 0] [--model embedded] [--out soak.json]

One process stands for the page: it starts runs with random variables of the registry and random workloads (also some
that are wrong), cancels, kills (SIGKILL), resumes and deletes them, and reads the store as the pages do. A server runs
beside it all the time and gets requests, of which some are wrong and some are dropped by their client. What happens is
drawn from the seed; how many jobs that is depends on the machine, on which nothing else should make shared memory
meanwhile: all of it is counted. Resident memory, threads, descriptors, children, shared memory and the size of the
store are read throughout.

Exit code 0 when nothing grows beyond its limit a minute (behind a warm-up; soak_readings.py), every run ended with a
reason, everything stored can be read, no fault of ours was met and no process or segment is left; else 1.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
from soak_client import Requests
from soak_readings import Watch, growth, processes_of, segments

from core_engine.variables import VARIABLES
from experiments import jobs
from experiments.report import report_json
from experiments.store import Run, Store
from experiments.workloads import WORKLOADS
from ledger.errors import CannotRunError, InputError

ROOT = Path(__file__).resolve().parents[1]
MOST_ACTIVE, MOST_RUNS = 3, 40
PAUSE_S = (0.05, 0.6)
# Not drawn: what names files, devices and cores of this machine, or takes minutes to prepare.
FIXED = ("model", "device", "dtype", "threads", "draft_model", "router_small", "kv_memory_mib", "pin_threads")
LEFT_OUT = {"weights": ("w4a16-awq", "w4a16-gptq"), "device": ("cuda",), "kernels": ("triton",)}
MOST_OF = {"tensor_parallel": 2, "pipeline_parallel": 2, "micro_batches": 4}
# How often each is drawn. One is done every third of a second, and a job takes some ten: most must be left to end.
ACTIONS = {
    "bench": 4, "compare": 1, "sweep": 0.5, "wrong": 0.2, "cancel": 0.3, "kill": 0.15, "again": 0.3, "delete": 0.5,
    "read": 12, "request": 12,
}  # fmt: skip


class Soak:
    """The driver: every method that an action names draws from one random stream and does one thing."""

    def __init__(self, store: Store, model: str, seed: int, requests: Requests) -> None:
        self.store, self.model, self.requests = store, model, requests
        self.draw = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self._killed: set[str] = set()

    def step(self) -> None:
        """Do one thing. What the product refuses is counted by its reason, and so is a fault of ours."""
        action = self.draw.choices(list(ACTIONS), weights=list(ACTIONS.values()))[0]
        self.counts[action] += 1
        try:
            getattr(self, f"_{action}")()
        except (InputError, CannotRunError) as error:
            self.refused[_reason(str(error))] += 1
        except Exception as error:
            self.refused[f"a fault of ours in {action}: {type(error).__name__}: {_reason(str(error))}"] += 1

    def active(self) -> list[Run]:
        """Runs that have not ended, as they really are."""
        really = [jobs.status(run.id, self.store) for run in self._listed() if run.state in jobs.ACTIVE]
        return [run for run in really if run.state in jobs.ACTIVE]

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def _settings(self) -> dict[str, Any]:
        names = [name for name in VARIABLES if name not in FIXED]
        chosen = self.draw.sample(names, self.draw.randint(0, 3))
        return {
            "model": self.model, "device": "cpu", "threads": 1, "kv_memory_mib": 64,
            **{name: self._value(name) for name in chosen},
        }  # fmt: skip

    def _value(self, name: str) -> Any:
        entry = VARIABLES[name]
        if entry.kind in ("choice", "path"):
            return self.draw.choice([choice for choice in entry.choices if choice not in LEFT_OUT.get(name, ())])
        base = float(entry.default) or self.draw.choice((0.0, 1.0, 4.0))
        value = base * 2 ** self.draw.uniform(-2, 2)
        most = min(float(entry.maximum or math.inf), MOST_OF.get(name, math.inf))
        value = min(max(value, float(entry.minimum or 0)), most)
        return round(value) if entry.kind == "int" else round(value, 3)

    def _load(self) -> dict[str, Any]:
        return {
            "workload": self.draw.choice(sorted(WORKLOADS)), "num_requests": self.draw.randint(2, 8),
            "max_tokens_cap": self.draw.choice((4, 16, 48)), "max_prompt_tokens": self.draw.choice((64, 200)),
            "rate_rps": self.draw.choice((None, 4.0, 20.0)), "seed": self.draw.randrange(1000),
        }  # fmt: skip

    def _start(self, kind: str, spec: dict[str, Any]) -> None:
        if len(self.active()) < MOST_ACTIVE:
            jobs.start(kind, spec, self.store)

    def _bench(self) -> None:
        self._start("bench", {**self._load(), "settings": self._settings()})

    def _compare(self) -> None:
        name = self.draw.choice([name for name in VARIABLES if name not in FIXED])
        settings = self._settings()
        settings.pop(name, None)
        values = [self._value(name), self._value(name)]
        self._start("compare", {**self._load(), "variable": name, "values": values, "repeats": 2, "settings": settings})

    def _sweep(self) -> None:
        self._start(
            "sweep",
            {**self._load(), "over": "max_num_seqs", "values": [1, 4], "repeats": 1, "settings": self._settings()},
        )

    def _wrong(self) -> None:
        wrong = self.draw.choice(
            [{"workload": "none-such"}, {"settings": {"batching": "?"}}, {"settings": {"model": "/none/such"}}]
        )
        self._start("bench", {**self._load(), **wrong})

    def _cancel(self) -> None:
        if active := self.active():
            jobs.cancel(self.draw.choice(active).id, self.store)

    def _kill(self) -> None:
        if active := self.active():
            run = self.draw.choice(active)
            self._killed.add(run.id)
            jobs.kill(run.id, self.store)

    def _again(self) -> None:
        """Resume a run that stopped, as the same one or as a new one of its spec."""
        stopped = [run for run in self._listed() if run.state in ("cancelled", "failed")]
        if stopped and len(self.active()) < MOST_ACTIVE:
            run = self.draw.choice(stopped)
            if run.kind == "sweep":
                jobs.resume(run.id, self.store)
            else:
                jobs.restart(run.id, self.store)

    def _delete(self) -> None:
        """The oldest ones beyond MOST_RUNS, or any that has ended."""
        ended = [run for run in self._listed() if run.state not in jobs.ACTIVE]
        for run in ended[MOST_RUNS:] or ended[-1:]:
            self._count(run)
            jobs.delete(run.id, self.store)

    # -- reading and requests ------------------------------------------------------------------------------------------

    def _listed(self) -> list[Run]:
        return self.store.list_runs(4 * MOST_RUNS, results=False)

    def _read(self) -> None:
        """What a visit to the pages of runs reads."""
        listed = self.store.list_runs(25)
        self.store.count_runs(), self.store.workloads(), self.store.arms(limit=20)
        for run in listed[:3]:
            jobs.live(jobs.status(run.id, self.store).id, self.store)
        done = [run for run in listed if run.state == "done"]
        if done:
            run = self.draw.choice(done)
            report_json(run.id, self.store, self.draw.choice(("en", "zh")))
            for arm, repeat in self.store.record_keys(run.id)[:1]:
                self.store.record(run.id, arm, repeat)

    def _request(self) -> None:
        self.requests.send(
            self.draw.choice(("stream", "whole", "chat", "wrong", "dropped")), self.draw.randrange(10**6)
        )

    # -- the end -------------------------------------------------------------------------------------------------------

    def _count(self, run: Run) -> None:
        text = run.error or ""
        if run.id in self._killed and text.startswith(jobs.ENDED):
            text = "killed by the soak"
        self.ended[f"{run.kind} {run.state}" + (f": {_reason(text)}" if text else "")] += 1

    def finish(self) -> list[str]:
        """Cancel what runs, wait for it, and count how everything ended; runs that did not end, if any."""
        for run in self.active():
            jobs.cancel(run.id, self.store)
        deadline = time.monotonic() + 180
        while (left := self.active()) and time.monotonic() < deadline:
            time.sleep(0.5)
        for run in self._listed():
            self._count(self.store.get_run(run.id))
        return [run.id for run in left]


def _reason(text: str) -> str:
    """A reason without its numbers and places, so that equal ones are counted together."""
    return re.sub(r"/\S+", "PATH", re.sub(r"\d[\d,.]*", "N", " ".join(text.split())))[:140]


def start_server(model: str, home: Path) -> tuple[subprocess.Popen[str], str]:
    """`trilemma serve` on a free port with a short queue, and its address once it answers."""
    options = {"model": model, "device": "cpu", "threads": 1, "kv_memory_mib": 32, "max_num_seqs": 4, "max_queue": 6}
    command = [sys.executable, "-m", "experiments.cli", "serve", "--port", "0", "--json"]
    command += [part for name, value in options.items() for part in ("--set", f"{name}={value}")]
    log = (home / "server.log").open("w")
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT)
    assert server.stdout is not None
    text = ""
    while not text.rstrip().endswith("}"):
        line = server.stdout.readline()
        if not line:
            raise SystemExit(f"the server ended with {server.wait()} before it was ready; {home / 'server.log'}")
        text += line
    return server, json.loads(text)["url"]


def checked(store: Store) -> dict[str, Any]:
    """Whether all that is stored can be read: the database, every record, every file that a record names."""
    with closing(sqlite3.connect(store.path)) as db:
        integrity = db.execute("PRAGMA integrity_check").fetchone()[0]
    unreadable = []
    for run in store.list_runs(10_000, results=False):
        try:
            store.records(run.id)
        except (InputError, CannotRunError) as error:
            unreadable.append(str(error))
    return {"integrity": integrity, "unreadable": unreadable, "runs": store.count_runs()}


def drive(driver: Soak, watch: Watch, length_s: float, say: Any) -> list[dict[str, float]]:
    """One thing after another for so long; what was read meanwhile."""
    every_s = max(0.5, min(5.0, length_s / 60))
    readings: list[dict[str, float]] = []
    began, next_s, told_s = time.monotonic(), 0.0, 0.0
    while (t_s := time.monotonic() - began) < length_s:
        if t_s >= next_s:
            readings.append(watch.read(t_s, len(driver.active())))
            next_s = t_s + every_s
        if t_s >= told_s:
            say(f"{t_s / 60:.1f} min: {_line(readings[-1])}", flush=True)
            told_s = t_s + 60
        driver.step()
        time.sleep(driver.draw.uniform(*PAUSE_S))
    return readings


def _line(reading: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in reading.items() if name != "t_s")


def soak(minutes: float, seed: int, model: str, home: Path, say: Any = print) -> dict[str, Any]:
    """Drive everything for so many minutes and return what was seen, with a verdict."""
    store, before = Store(home / "runs.sqlite3"), segments()
    server, url = start_server(model, home)
    try:
        driver = Soak(store, model, seed, Requests(url))
        readings = drive(driver, Watch(psutil.Process(server.pid), home, before), 60 * minutes, say)
        stuck = driver.finish()
        driver.requests.close()
        server.send_signal(signal.SIGTERM)
        code = server.wait(60)
    finally:
        server.kill()
    time.sleep(1)  # a rank ends a moment after its driver
    found = {
        "minutes": minutes, "seed": seed, "model": model, "actions": dict(driver.counts),
        "refused": dict(driver.refused), "ended": dict(driver.ended), "requests": dict(driver.requests.counts),
        "growth": growth(readings), "stuck": stuck, "server_exit_code": code, "store": checked(store),
        "left": {
            "processes": [process.pid for process in processes_of(home)],
            "segments": sorted(segments() - before),
        },
        "readings": readings,
    }  # fmt: skip
    return {"verdict": verdict(found), **found}


def verdict(found: dict[str, Any]) -> dict[str, Any]:
    """Whether all is well, and each thing that is not, in a line."""
    wrong = [
        f"{name} grows by {row['per_minute']:g} a minute (limit {row['limit']:g})"
        for name, row in found["growth"]["rows"].items()
        if row["holds"] is False
    ]
    for where in ("ended", "refused", "requests"):
        wrong += [f"{count} x {line}" for line, count in found[where].items() if "fault of" in line or "lost" in line]
    wrong += [f"{count} requests: {line}" for line, count in found["requests"].items() if line.endswith(" 500")]
    unasked = [line for line in found["ended"] if jobs.ENDED in line]
    wrong += [f"{found['ended'][line]} x {line}, which nobody killed" for line in unasked]
    wrong += [f"run {run_id} did not end" for run_id in found["stuck"]]
    wrong += [f"process {pid} is left" for pid in found["left"]["processes"]]
    wrong += [f"shared memory {name} is left" for name in found["left"]["segments"]]
    wrong += [] if found["store"]["integrity"] == "ok" else [f"the database: {found['store']['integrity']}"]
    wrong += found["store"]["unreadable"]
    wrong += [] if found["server_exit_code"] == 0 else [f"the server ended with {found['server_exit_code']}"]
    return {"ok": not wrong, "wrong": wrong, "growth_judged": found["growth"]["judged"]}


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="embedded", help="embedded, a directory, or a .gguf file")
    parser.add_argument("--out", type=Path, help="where the readings and the verdict go, as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trilemma-soak-") as folder:
        os.environ["TRILEMMA_HOME"] = folder  # of the driver, and of all that it starts
        found = soak(options.minutes, options.seed, options.model, Path(folder))
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    for name, row in found["growth"]["rows"].items():
        held = {True: "holds", False: "GROWS", None: "too short to judge"}[row["holds"]]
        print(f"{name:>20} {row['per_minute']:9.3f} a minute, limit {row['limit']:g}: {held}")
    for title in ("ended", "refused", "requests"):
        for line, count in sorted(found[title].items()):
            print(f"{count:6} {title}: {line}")
    print("\n".join(found["verdict"]["wrong"]) or "nothing is wrong")
    return 0 if found["verdict"]["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
