"""What NVML says of a CUDA device while a run goes on: memory, utilisation, power, clocks, throttling, PCIe, heat.

Owns the sampler's thread, which fields there are, and their units. Knows no metrics and no store. No error of NVML
reaches a run: what a card does not report is None, and what ends the samples is told beside them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from core_engine.clock import Clock
from core_engine.nvml import NoNvml, opened

if TYPE_CHECKING:
    import torch

INTERVAL_S = 0.1
# Beyond so many samples (half an hour) every second one is dropped and the interval doubles.
MOST_SAMPLES = 18_000
JOIN_S = 2.0  # a card that is lost may never answer; the run does not wait longer for it
KB = 1000  # NVML's "KB/s" of PCIe
# Bits of the clocks' event reasons (nvml.h); the first two say nothing is wrong.
THROTTLE_REASONS = {
    0x001: "gpu_idle",
    0x002: "application_clocks",
    0x004: "software_power_cap",
    0x008: "hardware_slowdown",
    0x010: "sync_boost",
    0x020: "software_thermal_slowdown",
    0x040: "hardware_thermal_slowdown",
    0x080: "hardware_power_brake",
    0x100: "display_clocks",
}


@dataclass(frozen=True)
class Reading:
    """One question to NVML: the fields that its answer fills, in order."""

    fields: tuple[str, ...]
    take: Callable[[Any, Any], Sequence[float | int]]


def _clock(kind: str) -> Callable[[Any, Any], Sequence[float]]:
    return lambda nvml, card: (nvml.nvmlDeviceGetClockInfo(card, getattr(nvml, kind)),)


def _pcie(way: str) -> Callable[[Any, Any], Sequence[float]]:
    return lambda nvml, card: (nvml.nvmlDeviceGetPcieThroughput(card, getattr(nvml, way)) * KB,)


def _utilisation(nvml: Any, card: Any) -> Sequence[float]:
    rates = nvml.nvmlDeviceGetUtilizationRates(card)
    return rates.gpu, rates.memory


READINGS = (
    # First, since it is the moment of the sample that energy is integrated by. Millijoules since the driver was loaded.
    Reading(("energy_j",), lambda nvml, card: (nvml.nvmlDeviceGetTotalEnergyConsumption(card) / 1000,)),
    Reading(("power_w",), lambda nvml, card: (nvml.nvmlDeviceGetPowerUsage(card) / 1000,)),
    Reading(("memory_used_bytes",), lambda nvml, card: (int(nvml.nvmlDeviceGetMemoryInfo(card).used),)),
    Reading(("gpu_utilisation_pct", "memory_utilisation_pct"), _utilisation),
    Reading(("sm_clock_mhz",), _clock("NVML_CLOCK_SM")),
    Reading(("memory_clock_mhz",), _clock("NVML_CLOCK_MEM")),
    Reading(("throttle_reasons",), lambda nvml, card: (nvml.nvmlDeviceGetCurrentClocksThrottleReasons(card),)),
    Reading(("temperature_c",), lambda nvml, card: (nvml.nvmlDeviceGetTemperature(card, nvml.NVML_TEMPERATURE_GPU),)),
    # Last: each counts bytes for 20 ms before it answers.
    Reading(("pcie_rx_bytes_per_s",), _pcie("NVML_PCIE_UTIL_RX_BYTES")),
    Reading(("pcie_tx_bytes_per_s",), _pcie("NVML_PCIE_UTIL_TX_BYTES")),
)
FIELDS: tuple[str, ...] = tuple(name for reading in READINGS for name in reading.fields)


def throttle_names(bits: int) -> list[str]:
    """The reasons of a reading of `throttle_reasons`; bits without a name as their number."""
    known = [name for bit, name in THROTTLE_REASONS.items() if bits & bit]
    rest = bits & ~sum(THROTTLE_REASONS)
    return known + ([hex(rest)] if rest else [])


@dataclass
class Telemetry:
    """The samples of one run. Read it when its sampler has stopped.

    absent: why there are none at all. missing: field -> why this card has no reading of it. ended: what ended them.
    """

    absent: str | None = None
    device: str | None = None
    interval_s: float = INTERVAL_S
    t_ns: list[int] = field(default_factory=list)
    values: dict[str, list[float | None]] = field(default_factory=lambda: {name: [] for name in FIELDS})
    missing: dict[str, str] = field(default_factory=dict)
    ended: str | None = None

    def record(self) -> dict[str, Any]:
        """As a run's record keeps it: {"absent", "source", "device", "interval_s", "t_ns", "samples", "missing",
        "ended"}; t_ns on the engine's clock, samples a list by field; a field that was never reported is null."""
        if self.absent is not None:
            return {"absent": self.absent, "source": None, "t_ns": [], "samples": None}
        told = {name: values if any(value is not None for value in values) else None
                for name, values in self.values.items()}  # fmt: skip
        return {
            "absent": None, "source": "NVML", "device": self.device, "interval_s": self.interval_s, "t_ns": self.t_ns,
            "samples": told, "missing": self.missing, "ended": self.ended,
        }  # fmt: skip

    def thin(self) -> None:
        """Drop every second sample."""
        del self.t_ns[1::2]
        for values in self.values.values():
            del values[1::2]
        self.interval_s *= 2


@contextmanager
def sampled(device: torch.device, clock: Clock, interval_s: float = INTERVAL_S) -> Iterator[Telemetry]:
    """Sample a device from before the block until after it; without a CUDA device or NVML nothing but the reason."""
    telemetry = Telemetry(interval_s=interval_s)
    with ExitStack() as stack:
        try:
            nvml, card = stack.enter_context(opened(device))
        except NoNvml as reason:
            telemetry.absent = str(reason)
            yield telemetry
            return
        sampler = _Sampler(telemetry, nvml, card, clock)
        sampler.start()
        try:
            yield telemetry
        finally:
            sampler.stop()


class _Sampler:
    """Asks every reading again and again in a thread of its own; the engine's keeps the interpreter meanwhile, since
    NVML is called without its lock."""

    def __init__(self, telemetry: Telemetry, nvml: Any, card: Any, clock: Clock) -> None:
        self._telemetry, self._nvml, self._card, self._clock = telemetry, nvml, card, clock
        self._ask = list(READINGS)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def start(self) -> None:
        """The first sample is taken here, so that the samples begin before the run does."""
        self._telemetry.device = self._name()
        self._keep(*self._read())
        self._thread.start()

    def stop(self) -> None:
        """Ends with a sample after the run, unless NVML has stopped answering."""
        self._done.set()
        self._thread.join(JOIN_S)
        if self._thread.is_alive():
            self._telemetry.ended = f"NVML did not answer for {JOIN_S:g} s"
        elif self._telemetry.ended is None:
            self._keep(*self._read())

    def _name(self) -> str | None:
        try:
            return str(self._nvml.nvmlDeviceGetName(self._card))
        except self._nvml.NVMLError:
            return None

    def _run(self) -> None:
        due_s = time.monotonic()
        while self._telemetry.ended is None:
            due_s = max(due_s + self._telemetry.interval_s, time.monotonic())
            if self._done.wait(due_s - time.monotonic()):
                return
            found = self._read()
            if not self._done.is_set():  # else the run may have gone on without us
                self._keep(*found)

    def _read(self) -> tuple[int, dict[str, float | int], str]:
        """The moment, what could be read then, and the last error."""
        moment_ns, found, error = self._clock.now_ns(), dict[str, float | int](), ""
        for reading in list(self._ask):
            try:
                found |= zip(reading.fields, reading.take(self._nvml, self._card), strict=True)
            except Exception as failure:  # whatever a driver answers, it is not the run's fault
                error = str(failure) or type(failure).__name__
                if self._is_for_good(failure):
                    self._ask.remove(reading)
                    self._telemetry.missing |= dict.fromkeys(reading.fields, error)
        return moment_ns, found, error

    def _keep(self, moment_ns: int, found: dict[str, float | int], error: str) -> None:
        """Append a sample; when nothing at all could be read, the samples end with the reason."""
        if not found:
            self._telemetry.ended = f"NVML: {error or 'this card reports nothing'}"
            return
        self._telemetry.t_ns.append(moment_ns)
        for name, values in self._telemetry.values.items():
            values.append(found.get(name))
        if len(self._telemetry.t_ns) > MOST_SAMPLES:
            self._telemetry.thin()

    def _is_for_good(self, failure: Exception) -> bool:
        """Whether the card, its driver or our rights lack this reading, so that it is not asked again."""
        names = ("NVMLError_NotSupported", "NVMLError_FunctionNotFound", "NVMLError_NoPermission")
        lasting = tuple(found for name in names if (found := getattr(self._nvml, name, None)) is not None)
        return isinstance(failure, (*lasting, AttributeError))
