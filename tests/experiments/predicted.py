"""Stored comparisons and a calibration of this machine, made up: evidence for predictions without a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_engine.config import EngineConfig
from experiments.advisor.prediction_estimate import CURVES, LOWER_IS_BETTER
from experiments.simulator import calibration
from experiments.statistics import CurveSamples, judge
from experiments.store import Store
from experiments.store.identity import identity as identity_of

PAIRS = (1.0, 1.01, 0.99, 1.005, 0.995)  # a quiet machine's repeats


def comparison_result(spec: Mapping[str, Any], ratios: Mapping[str, float]) -> dict[str, Any]:
    """The JSON of a comparison that found these ratios (candidate / baseline); curves left out found none."""
    samples = [
        CurveSamples(
            name, "mean", "lower" if name in LOWER_IS_BETTER else "higher", PAIRS,
            tuple(value * ratios.get(name, 1.0) * wobble for value, wobble in zip(PAIRS, reversed(PAIRS), strict=True)),
        )
        for name in CURVES
    ]  # fmt: skip
    return {
        "variable": spec["variable"],
        "values": list(spec["values"]),
        "cancelled": False,
        "curves": [
            verdict.to_json(samples={"baseline": list(one.baseline), "candidate": list(one.candidate)})
            for verdict, one in zip(judge(samples), samples, strict=True)
        ],
    }


def stored_comparison(
    store: Store, spec: Mapping[str, Any], ratios: Mapping[str, float], *, identity: Mapping[str, Any] | None = None
) -> str:
    """A finished comparison with these ratios, measured on this machine unless `identity` says otherwise; its id."""
    run_id = store.create_run("compare", spec)
    known = identity_of(spec) if identity is None else identity
    store.update_run(run_id, state="done", result=comparison_result(spec, ratios), **known)
    return run_id


def calibrated_here(settings: Mapping[str, Any] | None = None, *, times: float = 1.0) -> None:
    """Keep a calibration of the embedded model for these settings, all of whose steps take `times` as long."""
    config = EngineConfig.from_settings(settings)
    share = {"compute": 0.5 / times, "memory": 0.5 / times, "slowdown": [[1.0, 1.0], [64.0, 1.0]]}
    card = {
        "name": "this", "label": "this machine", "vendor": "", "memory_bytes": 8 * 2**30, "memory_source": "system",
        "bandwidth_bytes_per_s": 20e9, "flops_per_s": {"fp32": 1e11, "int8": 1e11}, "link_bytes_per_s": None,
        "power_w": None, "sources": [], "provenance": "measured", "link_name": "", "aliases": [],
    }  # fmt: skip
    calibration.store(
        {
            "for": calibration.settings_of_a_step(config),
            "formats": calibration.formats_of(config, "fp32"),
            "date": "2026-01-01",
            "accelerator": card,
            "efficiencies": dict.fromkeys(_classes(), share),
            "host_step_s": 0.0005,
            "host_row_s": 0.00002,
            "fit": {"cross_validated_error_pct": {"mean": 5.0}},
        }
    )


def _classes() -> tuple[str, ...]:
    from ledger.device_profile import CLASSES

    return CLASSES
