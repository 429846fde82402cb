"""Sampling NVML: a whole card, one that lacks readings, an NVML that fails in the middle, and none at all."""

from __future__ import annotations

import json
import threading
import time

import pytest
import torch

from core_engine import telemetry
from core_engine.clock import MonotonicClock
from core_engine.nvml import NoNvml, opened
from core_engine.telemetry import FIELDS, Telemetry, sampled, throttle_names
from tests.core_engine.nvml_fake import FakeNvml, NVMLError, NVMLError_GpuIsLost, NVMLError_NotSupported, install

CUDA = torch.device("cuda", 0)


def sample(for_s: float = 0.1, interval_s: float = 0.01) -> Telemetry:
    with sampled(CUDA, MonotonicClock(), interval_s) as found:
        time.sleep(for_s)
    return found


def test_every_field_is_sampled_in_its_unit_from_before_the_block_until_after(monkeypatch):
    fake, clock = install(monkeypatch, FakeNvml()), MonotonicClock()
    with sampled(CUDA, clock, 0.01) as found:
        start_ns = clock.now_ns()
        time.sleep(0.1)
        end_ns = clock.now_ns()
    record = json.loads(json.dumps(found.record(), allow_nan=False))
    times, samples = record["t_ns"], record["samples"]
    assert times[0] <= start_ns < end_ns <= times[-1] and times == sorted(times)
    assert len(times) >= 4 and all(len(values) == len(times) for values in samples.values())
    assert set(samples) == set(FIELDS) and record["source"] == "NVML" and record["device"] == "NVIDIA Made-up"
    last = {name: values[-1] for name, values in samples.items()}
    assert last | {"energy_j": 0} == {
        "energy_j": 0, "power_w": 300.0, "memory_used_bytes": 2**30, "gpu_utilisation_pct": 80,
        "memory_utilisation_pct": 40, "sm_clock_mhz": 1500, "memory_clock_mhz": 1500, "throttle_reasons": 0x44,
        "temperature_c": 55, "pcie_rx_bytes_per_s": 12_000, "pcie_tx_bytes_per_s": 12_000,
    }  # fmt: skip
    assert samples["energy_j"][:2] == [1000.0, 1030.0]
    assert record["missing"] == {} and record["ended"] is None and fake.open == 0


def test_about_ten_samples_a_second():
    assert telemetry.INTERVAL_S == 0.1


def test_a_card_without_power_readings_has_none_of_them_and_is_not_asked_again(monkeypatch):
    lacking = NVMLError_NotSupported("Not Supported")
    fake = install(monkeypatch, FakeNvml(nvmlDeviceGetPowerUsage=lacking, nvmlDeviceGetTotalEnergyConsumption=lacking))
    record = sample().record()
    assert record["samples"]["power_w"] is None and record["samples"]["energy_j"] is None
    assert record["missing"] == {"power_w": "Not Supported", "energy_j": "Not Supported"}
    assert fake.calls["nvmlDeviceGetPowerUsage"] == 0  # the number of the last call
    assert None not in record["samples"]["temperature_c"] and record["ended"] is None


def test_a_library_that_lacks_a_function_lacks_its_field(monkeypatch):
    fake = install(monkeypatch, FakeNvml())
    del fake._answers["nvmlDeviceGetCurrentClocksThrottleReasons"]
    record = sample(0.03).record()
    assert record["samples"]["throttle_reasons"] is None and "throttle_reasons" in record["missing"]


def test_a_reading_that_fails_once_is_none_once(monkeypatch):
    install(monkeypatch, FakeNvml(nvmlDeviceGetTemperature=lambda n: NVMLError("Unknown Error") if n == 1 else 55))
    values = sample().record()["samples"]["temperature_c"]
    assert values[0] == 55 and values[1] is None and values[2] == 55 and values.count(None) == 1


def test_an_nvml_that_is_lost_in_the_middle_ends_the_samples_and_not_the_run(monkeypatch):
    lost = {
        name: lambda n, value=value: value if n < 2 else NVMLError_GpuIsLost("GPU is lost")
        for name, value in FakeNvml()._answers.items()
        if name not in ("nvmlDeviceGetHandleByUUID", "nvmlDeviceGetName")
    }
    fake = install(monkeypatch, FakeNvml(**{**lost, "nvmlDeviceGetTotalEnergyConsumption": lost_energy}))
    found = sample()
    assert found.ended == "NVML: GPU is lost" and 1 <= len(found.t_ns) <= 2 and fake.open == 0
    assert all(len(values) == len(found.t_ns) for values in found.values.values())
    assert not any(thread.name == "telemetry" for thread in threading.enumerate())


def lost_energy(number: int) -> object:
    return 1_000_000 if number < 2 else NVMLError_GpuIsLost("GPU is lost")


def test_an_nvml_that_does_not_answer_any_more_holds_up_nobody(monkeypatch):
    monkeypatch.setattr(telemetry, "JOIN_S", 0.05)
    answered = threading.Event()
    install(monkeypatch, FakeNvml(nvmlDeviceGetTemperature=lambda n: 55 if n == 0 else answered.wait(10)))
    found = sample()
    assert found.ended == "NVML did not answer for 0.05 s" and len(found.t_ns) == 1
    answered.set()
    time.sleep(0.05)
    assert len(found.t_ns) == 1  # what comes too late is not kept


@pytest.mark.parametrize(
    ("fake", "why"),
    [
        (None, "nvidia-ml-py is not installed"),
        (FakeNvml(nvmlInit=NVMLError("Driver Not Loaded")), "NVML can't be opened: Driver Not Loaded"),
        (FakeNvml(nvmlDeviceGetHandleByUUID=NVMLError("Not Found")), "NVML does not know this device: Not Found"),
    ],
)
def test_without_nvml_there_is_one_line_and_no_sample(monkeypatch, fake, why):
    install(monkeypatch, fake)
    found = sample(0)
    assert found.record() == {"absent": why, "source": None, "t_ns": [], "samples": None}
    assert fake is None or fake.open == 0


def test_a_cpu_has_nothing_to_sample_and_no_thread():
    with sampled(torch.device("cpu"), MonotonicClock()) as found:
        assert not any(thread.name == "telemetry" for thread in threading.enumerate())
    assert found.record()["absent"] == "no CUDA device: NVML knows nothing of a CPU"


def test_an_error_of_the_run_passes_through_and_the_sampler_ends(monkeypatch):
    fake = install(monkeypatch, FakeNvml())
    with pytest.raises(ValueError, match="the run's own"), sampled(CUDA, MonotonicClock(), 0.01):
        raise ValueError("the run's own")
    assert fake.open == 0 and not any(thread.name == "telemetry" for thread in threading.enumerate())


def test_an_error_of_nvml_in_the_block_is_the_callers(monkeypatch):
    fake = install(monkeypatch, FakeNvml())
    with pytest.raises(NVMLError), opened(CUDA):
        raise NVMLError
    with pytest.raises(NoNvml), opened(torch.device("cpu")):
        pass
    assert fake.open == 0


def test_a_long_run_keeps_every_second_sample():
    found = Telemetry(t_ns=[0, 1, 2, 3], values={"power_w": [1.0, 2.0, 3.0, 4.0]})
    found.thin()
    assert found.t_ns == [0, 2] and found.values["power_w"] == [1.0, 3.0] and found.interval_s == 0.2


def test_throttle_reasons_have_names():
    assert throttle_names(0) == []
    assert throttle_names(0x1 | 0x4) == ["gpu_idle", "software_power_cap"]
    assert throttle_names(0x40 | 0x1000) == ["hardware_thermal_slowdown", "0x1000"]
