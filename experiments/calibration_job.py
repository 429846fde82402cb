"""Both calibrations as a job: the ceilings of this machine, and the simulator's fit to the engine on it.

The result: {"kind": "calibrate", "what", "found", "kept_in", "took_s", "provenance", "warnings", "run_id"}; found is
what calibrate.py or simulator/calibration.py measured and keeps. A cancelled calibration keeps nothing: the one from
before stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from core_engine.variables import Value
from experiments.asked_to_stop import go_on, stoppable
from experiments.spec import checked_settings, refuse_unknown, whole
from ledger.errors import InputError

CEILINGS, SIMULATOR = "ceilings", "simulator"
# About how long each takes, for the progress that is shown.
SECONDS = {CEILINGS: 20.0, SIMULATOR: 120.0}
MOST_THREADS = 4_096
ALMOST = 0.99  # of the work, where it takes longer than usual
TELL_EVERY_S = 0.5


@dataclass(frozen=True)
class CalibrationSpec:
    """what: "ceilings" or "simulator". settings: of the engine that the simulator is fitted to, where `threads`
    is one of them; threads: of the measurement of ceilings, 0 = as the engine uses."""

    what: str = CEILINGS
    threads: int = 0
    settings: dict[str, Value] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any]) -> CalibrationSpec:
        """Validate a spec; InputError names the first field that is wrong. Missing fields take their defaults."""
        refuse_unknown(cls, spec)
        what, settings = spec.get("what", CEILINGS), checked_settings(spec.get("settings"))
        if what not in SECONDS:
            raise InputError("what", what, " or ".join(SECONDS))
        if what == CEILINGS and settings:
            raise InputError("--set", next(iter(settings)), "--simulator beside it: ceilings depend on no setting")
        threads = whole("--threads", spec.get("threads", 0), 0, MOST_THREADS)
        if what == SIMULATOR and threads:
            return cls(what, settings={**settings, "threads": threads})
        return cls(what, threads, settings)

    def to_dict(self) -> dict[str, Any]:
        """The spec as JSON."""
        return asdict(self)


def run_calibration(
    spec: Mapping[str, Any],
    run_id: str,
    on_live: Callable[[dict[str, Any]], None] = lambda _: None,
    should_cancel: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Measure, keep what was found in place of an older calibration, and return the JSON above.

    Cancelled when it is told to stop; InputError and CannotRunError as the engine.
    """
    checked, began = CalibrationSpec.from_dict(spec), time.monotonic()
    with stoppable(_telling(began, SECONDS[checked.what], on_live, should_cancel)):
        go_on()
        found, kept_in = (_ceilings if checked.what == CEILINGS else _simulator)(checked)
    return {
        "kind": "calibrate",
        "what": checked.what,
        "found": found,
        "kept_in": kept_in,
        "took_s": time.monotonic() - began,
        "provenance": found["provenance"],
        "warnings": [],
        "run_id": run_id,
    }


def _telling(
    began: float, expected_s: float, on_live: Callable[[dict[str, Any]], None], should_cancel: Callable[[], bool]
) -> Callable[[], bool]:
    """Whether to stop, asked between two measurements; tells how far it is, by the clock."""
    last = -TELL_EVERY_S

    def asked() -> bool:
        nonlocal last
        took = time.monotonic() - began
        if took - last >= TELL_EVERY_S:
            last = took
            left = max(0.0, expected_s - took)
            on_live({"phase": "measuring", "fraction": min(ALMOST, took / expected_s), "eta_s": left or None})
        return should_cancel()

    return asked


def _ceilings(spec: CalibrationSpec) -> tuple[dict[str, Any], str]:
    from experiments import calibrate as measuring

    found = measuring.calibrate(spec.threads, on_progress=lambda _what, _share: go_on())
    return found, str(measuring.store(found))


def _simulator(spec: CalibrationSpec) -> tuple[dict[str, Any], str]:
    from experiments.simulator.calibration import calibrate_simulator, store

    found = calibrate_simulator(spec.settings, report=lambda _: go_on())
    return found, str(store(found))
