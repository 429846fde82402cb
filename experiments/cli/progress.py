"""Following a job from the command line: progress on stderr, and a Ctrl-C that cancels the job with it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from experiments import jobs
from experiments.cli.output import CANCELLED, FAULT, Failed, note
from experiments.kinds import resumable
from experiments.store import Run, Store
from ledger.counted import counted

PHASES = {
    "loading": "loading the model",
    "drawing": "drawing the requests",
    "warmup": "warming up",
    "running": "measuring",
    "quality": "scoring quality",
    "items": "scoring items",
    "texts": "scoring texts",
    "speed": "timing steps",
}


def follow(run_id: str, store: Store, names: list[str]) -> Run:
    """Show a job's progress until it ends and return the run.

    `names` are the arms' names. The run ends with this process, also when that is killed. The first Ctrl-C (or SIGTERM)
    cancels and waits, the second ends the worker at once and is raised.
    """
    jobs.follow_only(run_id, store)
    with _interruptible(), _line(names) as line:
        show = _Decided(_Estimated(line))
        try:
            return jobs.wait(run_id, store, show)
        except KeyboardInterrupt:
            note("cancelling; what is finished is kept (Ctrl-C again ends it at once)")
            jobs.cancel(run_id, store)
        try:
            return jobs.wait(run_id, store, show)
        except KeyboardInterrupt:
            jobs.kill(run_id, store)
            jobs.wait(run_id, store)
            raise


def result_of(run: Run) -> dict[str, Any]:
    """The result of an ended run, partial after a cancel; Failed with the worker's own line and exit code otherwise."""
    if run.result is not None:
        return run.result
    if run.state == "cancelled":
        anew = "" if run.kind in resumable() else "; the same command begins anew"
        raise Failed(f"cancelled; run {run.id} has too few finished repeats for a result{anew}", CANCELLED)
    code = jobs.exit_code(run.id)
    # A worker that was killed has no exit code of ours (negative is the signal): the engine process ended.
    raise Failed(run.error or "the run has no result", code if code in (1, 2, 3) else FAULT)


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM acts like Ctrl-C meanwhile: an ended command line must not leave its job computing."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _line(names: list[str]) -> Iterator[Any]:
    """A function that shows a live object: a moving bar on a terminal, else a line whenever a new run begins."""
    if sys.stderr.isatty():
        with _bar(names) as show:
            yield show
    else:
        yield _Lines(names)


@contextmanager
def _bar(names: list[str]) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[left]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("waiting for the engine", total=1.0, left="")

        def show(live: dict[str, Any] | None) -> None:
            if live is not None:
                left = "" if live["eta_s"] is None else f"{live['eta_s']:.0f} s left"
                progress.update(task, completed=live["fraction"], description=_describe(live, names), left=left)

        yield show


class _Estimated:
    """Says once, before measuring starts, how long it will take; then shows what there is to show."""

    def __init__(self, show: Callable[[dict[str, Any] | None], None]) -> None:
        self._show = show
        self._told = False

    def __call__(self, live: dict[str, Any] | None) -> None:
        estimate = (live or {}).get("estimate")
        if estimate and not self._told:
            self._told = True
            note(estimate_line(estimate))
        self._show(live)


class _Decided:
    """Says what became of each step of a ladder as it is decided."""

    def __init__(self, show: Callable[[dict[str, Any] | None], None]) -> None:
        self._show = show
        self._told: list[list[str]] = []

    def __call__(self, live: dict[str, Any] | None) -> None:
        for verdict in (live or {}).get("verdicts") or []:
            if verdict not in self._told:
                self._told.append(verdict)
                note(": ".join(verdict))
        self._show(live)


def estimate_line(estimate: dict[str, Any]) -> str:
    """What the estimate of a live object says."""
    runs = estimate["repeats"] * len(estimate["run_s"])
    each = " and ".join(dict.fromkeys(duration(value) for value in estimate["run_s"]))
    more = ""
    if estimate["most_repeats"] > estimate["repeats"]:
        more = f"; up to {duration(estimate['most_s'])} if it takes {estimate['most_repeats']} repeats"
    total = duration(estimate["total_s"])
    return f"about {total} from now (estimated from the warm-up: {counted(runs, 'run')} of {each} each){more}"


def duration(seconds: float) -> str:
    """Seconds below two minutes, minutes below two hours, hours above."""
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class _Lines:
    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._last = ""

    def __call__(self, live: dict[str, Any] | None) -> None:
        text = "waiting for the engine" if live is None else _describe(live, self._names)
        if text != self._last and not (live and live["phase"] == "done"):
            self._last = text
            note(text)


def _describe(live: dict[str, Any], names: list[str]) -> str:
    text = PHASES.get(live["phase"], live["phase"])
    if live.get("claim"):
        step = f", step {live['experiment']} of {live['experiments']}" if (live.get("experiments") or 1) > 1 else ""
        return f"checking {live['claim']}, {live['repeat']} of {live['repeats']}{step}"
    if live.get("step"):
        text = f"{live['step']}: {text}"
    if live["phase"] == "searching":
        return f"{text}: {live['note']}"
    if live["phase"] == "running":
        of = f", repeat {live['repeat']} of {live['repeats']}" if len(names) > 1 else ""
        return f"{text} {_name(live['arm'], names)}{of}"
    return (
        f"{text} ({_name(live['arm'], names)})"
        if live["phase"] in ("warmup", "quality", "items", "texts", "speed") and len(names) > 1
        else text
    )


def _name(arm: int, names: list[str]) -> str:
    """A check measures as many arms as it likes: beyond the named ones they are told by number."""
    return names[arm] if arm < len(names) else f"arm {arm + 1}"
