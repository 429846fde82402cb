"""An NVML that is scripted: what each question is answered with, call by call. Installed in place of pynvml."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from core_engine import nvml as opening


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):  # as pynvml calls it
    pass


class NVMLError_GpuIsLost(NVMLError):
    pass


Answer = Callable[[int], Any]


class FakeNvml(ModuleType):
    """`answers` replaces an answer by function name: a value, an error to raise, or a function of the call's number."""

    NVMLError, NVMLError_NotSupported, NVMLError_GpuIsLost = NVMLError, NVMLError_NotSupported, NVMLError_GpuIsLost
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1

    def __init__(self, **answers: Any) -> None:
        super().__init__("pynvml")
        self.open, self.calls = 0, dict[str, int]()
        self._answers: dict[str, Any] = {
            "nvmlDeviceGetHandleByUUID": "card",
            "nvmlDeviceGetName": "NVIDIA Made-up",
            "nvmlDeviceGetTotalEnergyConsumption": lambda n: 1_000_000 + 30_000 * n,
            "nvmlDeviceGetPowerUsage": 300_000,
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=2**30, total=2**36),
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=80, memory=40),
            "nvmlDeviceGetClockInfo": 1500,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4 | 0x40,
            "nvmlDeviceGetTemperature": 55,
            "nvmlDeviceGetPcieThroughput": 12,
            **answers,
        }

    def nvmlInit(self) -> None:
        self._answer("nvmlInit", lambda n: None)
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__") or name not in self._answers:
            raise AttributeError(name)
        return lambda *_: self._answer(name, None)

    def _answer(self, name: str, default: Any) -> Any:
        number = self.calls[name] = self.calls.get(name, -1) + 1
        answer = self._answers.get(name, default)
        found = answer(number) if callable(answer) and not isinstance(answer, type) else answer
        if isinstance(found, BaseException):
            raise found
        return found


def install(monkeypatch: pytest.MonkeyPatch, fake: Any) -> Any:
    """Make it the NVML of a CUDA device that torch need not have; None: no such module."""
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(opening, "device_uuid", lambda _: "GPU-1")
    return fake
