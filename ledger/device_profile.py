"""DeviceProfile: what a device really reaches of its roof, by class of operator, and what launches and the host cost.

Owns reading device_profiles.toml and the rule that a profile says where it comes from: measured (the calibration of an
engine on this device), public (estimated from published measurements, with their sources and an error band) or
uncalibrated (the defaults of its vendor's class, to be read as a guess).
"""

from __future__ import annotations

import math
import re
import tomllib
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from ledger.errors import InputError
from ledger.hardware import Accelerator, accelerator
from ledger.links import Link

CLASSES = ("linear", "attention_decode", "attention_prefill", "elementwise", "sampling")
Calibration = Literal["measured", "public", "uncalibrated"]
MICRO = 1e-6
UNCALIBRATED_BAND_PCT = 50.0
_GROUP = re.compile(r"-g\d+$")


@dataclass(frozen=True)
class Efficiency:
    """Shares of the roof that a class reaches: of the arithmetic rate and of the memory bandwidth.

    slowdown: (rows, times as long as that) to be put between, linear in the logarithm of the rows, constant outside.
    """

    compute: float = 1.0
    memory: float = 1.0
    slowdown: tuple[tuple[float, float], ...] = ()

    def times(self, rows: float) -> float:
        """How many times as long as the shares say an operator over so many rows takes."""
        if not self.slowdown:
            return 1.0
        return sum(share * self.slowdown[place][1] for place, share in self.parts(rows))

    def parts(self, rows: float) -> list[tuple[int, float]]:
        """(place in slowdown, share) of the one or two entries that `rows` lies between; the shares add up to 1."""
        known = self.slowdown
        place = bisect_right([at for at, _ in known], rows)
        if place in (0, len(known)):
            return [(max(0, place - 1), 1.0)]
        low, high = known[place - 1][0], known[place][0]
        share = (math.log(rows) - math.log(low)) / (math.log(high) - math.log(low))
        return [(place - 1, 1 - share), (place, share)]


@dataclass(frozen=True)
class DeviceProfile:
    """A device as the simulator knows it.

    efficiencies: by class, or "class:format" for one that differs with the format of weights or KV. host_step_s and
    host_row_s: host work of a step and of each of its rows that the device waits for. Of kernels_per_layer kernels each
    takes launch_s of the host when a step is not captured, and kernel_s beyond its operator's time to begin and end;
    graph_launch_s for a captured step. processors: 0 where
    attention always fills the device. error_band_pct: what a simulated step time may be off by, as far as is known.
    """

    name: str
    accelerator: Accelerator
    efficiencies: Mapping[str, Efficiency]
    host_step_s: float = 0.0
    host_row_s: float = 0.0
    launch_s: float = 0.0
    kernel_s: float = 0.0
    kernels_per_layer: int = 0
    graph_launch_s: float = 0.0
    processors: int = 0
    link: Link | None = None
    calibration: Calibration = "uncalibrated"
    error_band_pct: float = UNCALIBRATED_BAND_PCT
    sources: tuple[str, ...] = ()
    notes: str = field(default="", compare=False)

    @property
    def label(self) -> str:
        """The device's name, and whether its efficiencies are a guess."""
        return self.accelerator.label + (" (uncalibrated)" if self.calibration == "uncalibrated" else "")

    def efficiency(self, kind: str, fmt: str = "") -> Efficiency:
        """That of a class for a format, else for the format with other groups, else of the class; InputError for a
        class that it does not have."""
        names = (f"{kind}:{fmt}", f"{kind}:{_GROUP.sub('', fmt)}", kind)
        found = next((self.efficiencies[name] for name in names if name in self.efficiencies), None)
        if found is None:
            raise InputError("profile", self.name, f"one with the class {kind}, calibrated for {fmt or 'any format'}")
        return found

    def to_json(self) -> dict[str, Any]:
        """Where it comes from and how good it is, for records and tables."""
        return {
            "name": self.name,
            "label": self.label,
            "calibration": self.calibration,
            "error_band_pct": self.error_band_pct,
            "sources": list(self.sources),
            "notes": self.notes,
        }


def device_profile(name: str, *, link: str | None = None) -> DeviceProfile:
    """The profile of a card of the catalogue; one without figures of its own takes its class's and says so.

    link: another one of device_profiles.toml's [links] instead of the card's own. InputError for an unknown one.
    """
    card = accelerator(name)
    found = _shipped().get(card.name)
    table = found if found is not None else _classes()[card.vendor if card.vendor in _classes() else "default"]
    profile = _parse(card, table, "public" if found is not None else "uncalibrated")
    return profile if link is None else replace(profile, link=named_link(link))


def profiled_cards() -> tuple[str, ...]:
    """The cards with figures of their own."""
    return tuple(_shipped())


def link_names() -> tuple[str, ...]:
    """Links that can be put between devices by name."""
    return tuple(_file()["links"])


def named_link(name: str) -> Link:
    """A link by its name; InputError for one that is not known."""
    known = _file()["links"]
    if name not in known:
        raise InputError("link", name, ", ".join(known))
    table = known[name]
    return Link(table["latency_us"] * MICRO, table["bandwidth"] * table["share"] * 1e9, table["label"])


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads(files("ledger").joinpath("device_profiles.toml").read_text(encoding="utf-8"))


def _shipped() -> dict[str, Any]:
    return _file()["cards"]


def _classes() -> dict[str, Any]:
    return _file()["classes"]


def _parse(card: Accelerator, table: Mapping[str, Any], calibration: Calibration) -> DeviceProfile:
    base = {**_classes()["default"], **table}
    link = None
    if card.link_bytes_per_s is not None:
        latency_s, share = base["link_latency_us"] * MICRO, base["link_share"]
        link = Link(latency_s, card.link_bytes_per_s * share, card.link_name or "link")
    return DeviceProfile(
        name=card.name,
        accelerator=card,
        efficiencies={
            key: Efficiency(value.get("compute", 1.0), value.get("memory", 1.0))
            for key, value in {**_classes()["default"]["efficiency"], **base["efficiency"]}.items()
        },
        host_step_s=base["host_step_us"] * MICRO,
        host_row_s=base["host_row_us"] * MICRO,
        launch_s=base["launch_us"] * MICRO,
        kernel_s=base["kernel_us"] * MICRO,
        kernels_per_layer=base["kernels_per_layer"],
        graph_launch_s=base["graph_launch_us"] * MICRO,
        processors=base["processors"],
        link=link,
        calibration=calibration,
        error_band_pct=float(base["error_band_pct"]),
        sources=tuple(_file()["sources"][key] for key in base["sources"]),
        notes=base.get("notes", ""),
    )
