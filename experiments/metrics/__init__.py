"""Metrics of one run, derived from its raw events (the run record). A missing value is None, never 0."""

from experiments.metrics.compute import compute_metrics
from experiments.metrics.objectives import Objective, parse_slo
from experiments.metrics.waterfall import PARTS, Waterfalls, waterfall, waterfalls

__all__ = [
    "PARTS",
    "Objective",
    "Waterfalls",
    "compute_metrics",
    "energy",
    "events",
    "host",
    "intervals",
    "journal",
    "kv",
    "latency",
    "objectives",
    "parse_slo",
    "slots",
    "table",
    "translation",
    "waterfall",
    "waterfalls",
]
