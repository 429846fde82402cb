"""The report of a calibration: the ceilings of this machine, or how well the simulator fits the engine on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.calibration_job import CEILINGS, SIMULATOR
from experiments.report.document import Cell, Findings, Section, section, table
from experiments.report.parts import count
from experiments.report.titles import Records, Result, label_of, title_of
from experiments.report.words import Words, number
from experiments.store import Run

GIGA = 1e9
ERRORS = ("fitted_error_pct", "cross_validated_error_pct")
OF_ERRORS = ("mean", "p95", "max")


def of_calibration(run: Run, result: Result, records: Records, words: Words) -> Findings:
    """What was measured, by device, or the error of the fitted step times."""
    found, label = result["found"], label_of(result)
    what = CEILINGS if "devices" in found else SIMULATOR
    if what == CEILINGS:
        sections = tuple(_ceilings(device, label, words) for device in found["devices"])
        first = found["devices"][0]
        answer = words("calibrated_ceilings", name=first["name"], bandwidth=number(_bandwidth(first) / GIGA))
    else:
        sections = (_errors(found["fit"], label, words),)
        error = found["fit"]["cross_validated_error_pct"]["mean"]
        answer = words("calibrated_simulator", model=found["model"], error=number(error))
    return Findings(title_of(run, words), words(f"q_calibrate_{what}"), answer, sections,
                    caveats=(words("c_calibrate"),))  # fmt: skip


def _bandwidth(device: Mapping[str, Any]) -> float:
    return float(max(item["median"] for item in device["bandwidth"].values()))


def _ceilings(device: Mapping[str, Any], label: str, words: Words) -> Section:
    rows = [(words(f"calibrated_{what}"), item, "GB/s") for what, item in device["bandwidth"].items()]
    rows += [(words("calibrated_gemm", dtype=dtype), item, "GFLOP/s") for dtype, item in device["gemm"].items()]
    shown = [[what, *(_giga(item[end]) for end in ("median", "low", "high")), unit, count(item["repeats"])]
             for what, item, unit in rows]  # fmt: skip
    names = ("what", "median", "low", "high", "unit", "repeats")
    header = [words(f"calibrated_{name}") for name in names]
    return section(device["name"], label, table(header, shown, (1, 2, 3, 5)))


def _errors(fit: Mapping[str, Any], label: str, words: Words) -> Section:
    rows = [
        [words(f"calibrated_{name}"), *(Cell(f"{fit[name][one]:.1f} %", fit[name][one]) for one in OF_ERRORS)]
        for name in ERRORS
    ]
    header = [words("calibrated_error"), words("mean"), "p95", words("calibrated_max")]
    return section(words("figures"), label, table(header, rows, (1, 2, 3)))


def _giga(value: float) -> Cell:
    return Cell(number(value / GIGA), value)
