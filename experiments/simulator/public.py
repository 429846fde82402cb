"""The device profiles against measurements that others published: what the simulator gives for each, and the error.

The measurements, their sources and the band of each row are in public_measurements.toml. Nothing is measured here.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from core_engine.simulation.job import Ended, Job
from experiments.simulator.deployment import SimulateSpec, deployed
from ledger.errors import InputError

ROUNDS, FEW_ROUNDS, MANY = 4, 2, 64  # of every client of a closed loop, so that the ends weigh little
NS = 1e9


@dataclass(frozen=True)
class Compared:
    """A published figure beside the simulated one; error_pct of the latter."""

    row: dict[str, Any]
    source: str
    simulated: float
    measured: float
    band_pct: float
    calibration: str

    @property
    def error_pct(self) -> float:
        """How far the simulated figure is off, in % of the measured one; above 0: faster or longer than measured."""
        return 100 * (self.simulated / self.measured - 1)

    def to_json(self) -> dict[str, Any]:
        """For tables."""
        shown = {key: value for key, value in self.row.items() if key not in ("source", "measured", "band_pct")}
        return {
            **shown,
            "source": self.source,
            "measured": self.measured,
            "simulated": self.simulated,
            "error_pct": self.error_pct,
            "band_pct": self.band_pct,
            "calibration": self.calibration,
            "provenance": "simulated",
            "measured_provenance": "published",
        }


@cache
def measurements() -> tuple[dict[str, Any], ...]:
    """The rows of the file."""
    return tuple(_file()["rows"])


def _file() -> dict[str, Any]:
    text = files("experiments.simulator").joinpath("public_measurements.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def compared(row: dict[str, Any]) -> Compared:
    """A row simulated: the requests of its load at once, with as many slots as clients, prefixes not cached."""
    many = row["requests"]
    spec = SimulateSpec.from_dict(
        {
            "model": row["model"],
            "gpu": row["gpu"],
            "weights": row.get("weights", "bf16"),
            "kv_dtype": row.get("kv_dtype", "auto"),
            "tp": row.get("tp", 1),
            "settings": {"max_num_seqs": many, "prefix_cache": "off"},
        }
    )
    made = deployed(spec)
    ended: list[Any] = []
    rounds = 1 if row["load"] == "batch" else ROUNDS if many <= MANY else FEW_ROUNDS
    replica = made.replica(0, ended.append)
    for number in range(rounds * many):
        replica.submit(Job(number, 0, row["input"], row["output"], row["output"]))
    replica.advance(None)
    figure = _figure(row["metric"], ended, replica.gaps.total_ns / max(1, replica.gaps.count))
    source = _file()["sources"][row["source"]]
    return Compared(row, source, figure, row["measured"], row["band_pct"], made.profile.calibration)


def _figure(metric: str, ended: list[Ended], mean_gap_ns: float) -> float:
    last_s = max(item.last_ns or 0 for item in ended) / NS
    if metric == "tokens_per_s":
        return sum(item.output_tokens for item in ended) / last_s
    if metric == "latency_s":
        return last_s
    if metric == "itl_s":
        return mean_gap_ns / NS
    if metric == "decode_tokens_per_s":
        return NS / mean_gap_ns
    if metric == "ttft_s":
        waits = [(item.first_ns or 0) - (item.admit_ns or 0) for item in ended]
        return sum(waits) / len(waits) / NS
    raise InputError("metric", metric, "tokens_per_s, decode_tokens_per_s, latency_s, ttft_s or itl_s")
