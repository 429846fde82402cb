"""The live ledger: predicted against measured in a process of its own, whose memory nobody else has touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from core_engine import accounts, memory_readings
from core_engine.memory_readings import DeviceMemory

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, sys
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.model.loader import load_model
from core_engine.request import SamplingParams
config = EngineConfig.from_settings(json.loads(sys.argv[1]))
engine = Engine(config, load_model(config))
engine.generate([[100 + i] * 40 for i in range(3)], SamplingParams(max_tokens=4, ignore_eos=True))
print(json.dumps(engine.record()["memory"]))
"""
SETTINGS = [
    {},
    {"kv_memory_mib": 64, "max_num_seqs": 1, "max_num_batched_tokens": 64},
    {"kv_memory_mib": 1024, "max_num_seqs": 32, "dtype": "bf16"},
    {"kv_layout": "contiguous", "prefix_cache": "off", "chunked_prefill": "off"},
    {"max_num_batched_tokens": 2048, "max_num_seqs": 32},
    {"kernels": "torch"},
    {"kernels": "torch", "attention": "naive", "fused_ops": "off"},
    {"attention": "naive", "fused_ops": "off", "dtype": "bf16"},
    {"kv_splits": "8", "max_num_seqs": 32},
]


def memory_of(**settings):
    """`memory` of a short run's record, from a fresh process."""
    given = {"dtype": "fp32", "device": "cpu", **settings}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", PROGRAM, json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return json.loads(done.stdout)


def check(memory):
    accounts = memory["accounts"]
    for name in ("weights", "kv_pool", "padding_block"):
        assert accounts[name]["predicted_bytes"] == accounts[name]["measured_bytes"] > 0, name
    peak = accounts["activation_peak"]
    assert peak["measured_bytes"] == pytest.approx(peak["predicted_bytes"], rel=0.1)
    assert abs(memory["total_bytes"] - memory["predicted_bytes"]) <= max(0.03 * memory["total_bytes"], 100_000_000)
    measured = sum(account["measured_bytes"] for account in accounts.values())
    assert memory["unexplained_bytes"] == memory["total_bytes"] - measured
    assert memory["process_peak_bytes"] >= memory["total_bytes"] - 64 * 1024  # the two are read one after the other


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
@pytest.mark.parametrize("kernels", ["auto", "torch"])
@pytest.mark.parametrize("attention", ["flash", "naive"])
def test_a_small_models_process_is_within_the_bounds(tiny, kernels, attention):
    check(memory_of(model=str(tiny[0]), kv_memory_mib=32, kernels=kernels, attention=attention))


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_embedded_models_process_is_within_the_bounds(embedded_dir, settings):
    check(memory_of(**settings))


def test_measuring_activations_loads_no_compiler(tiny):
    program = PROGRAM + "assert 'torch._dynamo' not in sys.modules and 'sympy' not in sys.modules"
    given = json.dumps({"model": str(tiny[0]), "dtype": "fp32", "device": "cpu", "kv_memory_mib": 1})
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program, given], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_history_counts_what_is_kept_and_samples_long_lists():
    step = {"rows": [["r00", 0, 300, "prefill", True]], "plan_start_ns": 10**12}
    engine = SimpleNamespace(trace=SimpleNamespace(steps=[step] * 100), sessions=SimpleNamespace(all_requests=list))
    many = accounts.history_bytes(engine)
    engine.trace.steps = [step]
    assert many == 100 * accounts.history_bytes(engine) > 0


def test_context_is_what_nvml_says_beyond_the_allocator():
    assert DeviceMemory(50, 80, 100, 900, 1000).context == 20
    assert DeviceMemory(50, 80, None, 900, 1000).context == 820
    assert DeviceMemory(50, 80, None, None, None).context is None


def test_a_cpu_has_no_device_memory():
    assert memory_readings.device_memory(torch.device("cpu")) is None


@pytest.mark.parametrize("process", [700, None])
def test_a_devices_ledger_reads_allocator_and_nvml(monkeypatch, tiny, process):
    from core_engine.config import EngineConfig
    from core_engine.engine import Engine
    from core_engine.model.loader import load_model

    config = EngineConfig.from_settings({"model": str(tiny[0]), "dtype": "fp32", "kv_memory_mib": 1})
    engine = Engine(config, load_model(config))
    monkeypatch.setattr(accounts, "device_memory", lambda _: DeviceMemory(500, 600, process, 900, 1000))
    found = accounts.memory_accounts(engine, engine.predicted)
    assert found["accounts"]["context"]["measured_bytes"] == (300 if process is None else 100)
    assert found["accounts"]["context"]["predicted_bytes"] is None
    assert found["total_bytes"] == (900 if process is None else 700)
    assert (found["allocated_bytes"], found["reserved_bytes"]) == (500, 600)
    assert "history" not in found["accounts"]
