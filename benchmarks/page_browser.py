"""What the measurements of the page share: its server with a store of its own, a browser, and clocks in the page."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import jobs
from experiments.store import Store

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM = "/usr/bin/chromium"
READY_S = 60
# Drawn: the script has run to its end, every chart has its picture, and the browser has painted them.
DRAWN = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  if (!app || app.dataset.testScriptState !== 'notRunning') return false;
  if (!document.querySelector('[data-testid=stMain] h1')) return false;
  const charts = [...document.querySelectorAll('[data-testid=stVegaLiteChart]')];
  return charts.every(chart => chart.querySelector('canvas, svg'));
}"""
# Starts a clock at the next press or key in the page, `pressed`; `answer` is the time from there until the script that
# it started has ended and its result is painted.
CLOCK = """() => {
  const app = document.querySelector('[data-testid=stApp]');
  window.answer = new Promise(resolve => {
    let start = null, ran = false;
    const begin = () => { start = window.pressed = performance.now(); };
    document.addEventListener('pointerdown', begin, {capture: true, once: true});
    document.addEventListener('keydown', begin, {capture: true, once: true});
    const watch = new MutationObserver(() => {
      const state = app.dataset.testScriptState;
      if (start !== null && state !== 'notRunning') ran = true;
      if (!ran || state !== 'notRunning') return;
      watch.disconnect();
      requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - start), 0));
    });
    watch.observe(app, {attributes: true});
  });
}"""

ANSWERED = f"""Promise.race([window.answer, new Promise((_, fail) =>
  setTimeout(() => fail(new Error('no answer in {READY_S} s')), {READY_S * 1000}))])"""


@dataclass(frozen=True)
class Served:
    """A page's server: its address, its process, and the s from the command to when it told its address."""

    url: str
    pid: int
    told_s: float


@contextmanager
def server(home: Path) -> Iterator[Served]:
    """`trilemma ui` with a store of its own on a free port. Python may keep what it has compiled, as an installed
    program's does, whatever the shell that measures has set."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "experiments.cli", "ui", "--port", str(port), "--json"]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = {**kept, "TRILEMMA_HOME": str(home), "PYTHONPATH": str(ROOT)}
    began = time.perf_counter()
    started = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert started.stdout is not None
        told = json.loads("".join(iter(started.stdout.readline, "}\n")) + "}")
        yield Served(told["url"], told["pid"], time.perf_counter() - began)
    finally:
        started.terminate()
        started.wait(timeout=60)


@contextmanager
def browser() -> Iterator[Any]:
    """Headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield running
        running.close()


def new_page(running: Any) -> Any:
    """A page of a visitor who was never here: nothing is cached."""
    page = running.new_context(viewport={"width": 1440, "height": 1400}).new_page()
    page.set_default_timeout(READY_S * 1000)
    return page


def wait_until_drawn(page: Any) -> None:
    """Look 20 times a second whether the page is drawn; asked at every frame, the browser would paint them all."""
    page.wait_for_function(DRAWN, polling=50)


def wait_until_it_measures(store: Store, run_id: str) -> int:
    """The pid of the worker of a run, once it computes."""
    until = time.monotonic() + READY_S
    while (jobs.live(run_id, store) or {}).get("phase") != "running":
        if time.monotonic() > until:
            raise TimeoutError(f"run {run_id} did not begin: {store.get_run(run_id).state}")
        time.sleep(0.5)
    pid = store.get_run(run_id).pid
    assert pid is not None
    return pid


def end(store: Store, run_id: str) -> None:
    """Cancel a run and wait until its worker is gone."""
    jobs.cancel(run_id, store)
    while store.get_run(run_id).state in jobs.ACTIVE:
        time.sleep(0.5)
