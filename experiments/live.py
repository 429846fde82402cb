"""What a running job tells while it runs: progress, the engine's snapshot and short series, as one small JSON object.

Owns the live object's shape and the limit of 4 a second. Knows nothing of files: `publish` takes the object.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from experiments.estimate import Estimate
from experiments.loadgen import Progress

INTERVAL_S = 0.25
MOST_POINTS = 240
SERIES = ("t_s", "output_tokens_per_s", "running", "waiting", "kv_used_blocks", "step_s")


class Series:
    """Samples of one run. Past 240 points every second one is dropped and the spacing doubles."""

    def __init__(self) -> None:
        self.points: dict[str, list[float | None]] = {name: [] for name in SERIES}
        self._spacing_s = 0.0
        self._last = (0.0, 0)  # time in s, output tokens

    def add(self, t_s: float, snapshot: dict[str, Any]) -> None:
        """Append a sample `t_s` after the start; the rate is that since the sample before it."""
        last_s, last_tokens = self._last
        if t_s <= last_s or t_s - last_s < self._spacing_s:
            return
        tokens = snapshot["output_tokens"]
        values = {
            "t_s": round(t_s, 3),
            "output_tokens_per_s": round((tokens - last_tokens) / (t_s - last_s), 3),
            "running": snapshot["running"],
            "waiting": snapshot["waiting"],
            "kv_used_blocks": snapshot["blocks"]["used"],
            "step_s": snapshot["step_s"],
        }
        self._last = (t_s, tokens)
        for name in SERIES:
            self.points[name].append(values[name])
        if len(self.points["t_s"]) > MOST_POINTS:
            for points in self.points.values():
                del points[::2]
            self._spacing_s = 2 * max(self._spacing_s, INTERVAL_S)


class LiveReport:
    """Publishes the live object of a job of `arms` arms, at most every 0.25 s.

    `repeats` is how many are planned so far; it grows with repeats "auto". `extra_units` is work after the runs, in
    units of one run (the quality pass), so that the fraction reaches 1 only at the end.
    """

    def __init__(
        self,
        publish: Callable[[dict[str, Any]], None],
        *,
        arms: int,
        repeats: int,
        extra_units: int = 0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._publish = publish
        self._now = now
        self._arms = arms
        self.repeats = repeats
        self._extra_units = extra_units
        self._units_done = 0.0
        self._unit_fraction = 0.0
        self._measuring_since: float | None = None
        self._published_at = float("-inf")
        self._estimate: Estimate | None = None
        self._state: dict[str, Any] = {"phase": "loading", "arm": 0, "repeat": 1}
        self._snapshot: dict[str, Any] | None = None
        self._series = Series()
        self._last_series: dict[int, dict[str, list[float | None]]] = {}
        self._so_far: list[dict[str, Any]] = []

    def phase(self, phase: str, *, arm: int = 0, repeat: int | None = None) -> None:
        """Enter a phase: loading (of a server, drawing), warmup, quality or done."""
        self._state = {"phase": phase, "arm": arm, "repeat": repeat or self._state["repeat"]}
        if phase == "done":
            self._units_done, self._unit_fraction = float(self._arms * self.repeats + self._extra_units), 0.0
        self._tell(force=phase == "done")

    def opening(self, *, server: bool) -> None:
        """Enter the first phase: a model is loaded; for a server, which has one already, only requests are drawn."""
        self.phase("drawing" if server else "loading")

    def expect(self, estimate: Estimate) -> None:
        """What the runs to come will take, before the first of them."""
        self._estimate = estimate
        self._tell(force=True)

    def begin_run(self, arm: int, repeat: int) -> None:
        """A measured run begins; repeat counts from 1."""
        self._measuring_since = self._measuring_since or self._now()
        self._state = {"phase": "running", "arm": arm, "repeat": repeat}
        self._series = Series()
        self._unit_fraction = 0.0
        self._tell()

    def tick(self, target: Any, progress: Progress) -> None:
        """Called after every step of a run of `target` (anything with `snapshot()`); cheap unless a report is due."""
        if self._due():
            found = target.snapshot()
            self._snapshot = found if "requests" in found else None  # a server shows nothing of its inside
            self._series.add(progress.elapsed_ns / 1e9, found)
            self._unit_fraction = progress.output_tokens / max(1, progress.expected_output_tokens)
            self._tell()

    def end_run(self, value: float | None) -> None:
        """The run has ended with `value` output tokens/s."""
        arm, repeat = self._state["arm"], self._state["repeat"]
        self._last_series[arm] = self._series.points
        if not self._so_far or self._so_far[-1]["repeat"] != repeat:
            self._so_far.append({"repeat": repeat, "values": [None] * self._arms})
        self._so_far[-1]["values"][arm] = value
        self.unit_done()

    def unit_part(self, fraction: float) -> None:
        """How far the unit that is going on is, 0 to 1."""
        self._unit_fraction = fraction
        self._tell()

    def unit_done(self) -> None:
        """A run or another unit of work is complete."""
        self._units_done += 1
        self._unit_fraction = 0.0
        self._tell()

    def _due(self) -> bool:
        return self._now() - self._published_at >= INTERVAL_S

    def _tell(self, *, force: bool = False) -> None:
        if force or self._due():
            self._published_at = self._now()
            self._publish(self._object())

    def _object(self) -> dict[str, Any]:
        arm = self._state["arm"]
        done = self._units_done + self._unit_fraction
        total = self._arms * self.repeats + self._extra_units
        return {
            **self._state,
            "repeats": self.repeats,
            "fraction": min(1.0, done / total),
            "eta_s": self._eta_s(done, total),
            "estimate": None if self._estimate is None else self._estimate.to_json(),
            "snapshot": self._snapshot,
            "series": self._series.points,
            "previous_series": self._last_series.get(1 - arm),
            "repeats_so_far": self._so_far,
        }

    def _eta_s(self, done: float, total: float) -> float | None:
        """Time left if the rest goes as fast as what is done; before a tenth of a run is, what was estimated."""
        if self._measuring_since is None or done < 0.1:
            return None if self._estimate is None else float(self._estimate.to_json()["total_s"])
        return round((self._now() - self._measuring_since) / done * max(0.0, total - done), 1)
