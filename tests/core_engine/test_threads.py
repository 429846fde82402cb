"""Binding of the pool's threads, read from /proc in processes of their own: no other test may inherit it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from core_engine import threads
from core_engine.cores import allowed_cpus, physical_cores
from core_engine.kernels.cpu.native import library
from core_engine.model.compiled import CompiledDecoder

START = """
import os, subprocess, sys, threading
import torch
from core_engine import threads
from core_engine.cores import allowed_cpus
from tests.core_engine.test_compiled import CONFIGS, empty_cache, models, row

def mask(path="/proc/self/task/{}/status".format(os.getpid())):
    return next(line.split()[1] for line in open(path) if line.startswith("Cpus_allowed_list"))

def masks():
    return sorted(mask(f"/proc/self/task/{task}/status") for task in os.listdir("/proc/self/task"))

decoder, compiled = models(CONFIGS["llama"], torch.float32)
cache, own = empty_cache(compiled.spec, torch.float32), mask()
torch.set_num_threads(THREADS)
def step():
    compiled.step([row(0, 0, 3)], [2], cache)
step()
"""


def compiled_here():
    try:
        return bool(library())
    except OSError:
        return False


@pytest.fixture
def in_a_process():
    if not sys.platform.startswith("linux") or len(physical_cores(allowed_cpus())) < 2 or not compiled_here():
        pytest.skip("needs Linux, two cores and the compiled library")

    def run(number, script):
        code = START.replace("THREADS", str(number)) + script
        root = Path(__file__).resolve().parents[2]
        done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=300)
        assert not done.returncode, done.stderr
        return done.stdout.split()

    return run


def test_pool_threads_are_bound_and_nothing_else_is(in_a_process):
    cores = physical_cores(allowed_cpus())
    script = """
print(threads.bind_threads("auto", compiled))
bound = [text for text in masks() if text != own]
seen = []
thread = threading.Thread(target=lambda: seen.append(mask(f"/proc/self/task/{threading.get_native_id()}/status")))
thread.start(), thread.join()
child = subprocess.run(["grep", "Cpus_allowed_list", "/proc/self/status"], capture_output=True, text=True).stdout
print(",".join(bound), mask() == own, seen == [own], child.split()[1] == own)
print(threads.bind_threads("off", compiled), set(masks()) == {own})
"""
    said = in_a_process(len(cores), script)
    assert said == ["None", ",".join(sorted(map(str, cores[1:]))), *["True"] * 3, "pin_threads=off", "True"]


def test_threads_that_the_runtime_starts_anew_are_bound_when_they_next_compute(in_a_process):
    """A region of fewer threads makes libgomp end the others."""
    script = """
threads.physical_cores = lambda allowed: (allowed * 4)[:4]
threads.bind_threads("auto", compiled)
before = set(os.listdir("/proc/self/task"))
torch.set_num_threads(2)
torch.ones(2**24).sum()
torch.set_num_threads(4)
step()
print(set(os.listdir("/proc/self/task")) != before, len([text for text in masks() if text != own]))
"""
    assert in_a_process(4, script) == ["True", "3"]


def decoder():
    return object.__new__(CompiledDecoder)


@pytest.mark.parametrize(
    ("pin", "count", "cores", "quota", "why"),
    [
        ("off", 4, 4, None, "pin_threads=off"),
        ("auto", 1, 4, None, "one thread"),
        ("auto", 3, 4, None, "3 threads on 4 cores"),
        ("auto", 8, 4, None, "8 threads on 4 cores"),
        ("auto", 4, 4, 3.5, "3.5 of 4 cores"),
        ("auto", 4, 4, None, None),
        ("auto", 4, 4, 4.0, None),
    ],
)
def test_when_threads_are_bound(monkeypatch, pin, count, cores, quota, why):
    asked = []
    monkeypatch.setattr(threads, "physical_cores", lambda allowed: tuple(range(cores)))
    monkeypatch.setattr(threads, "cpu_quota", lambda: quota)
    monkeypatch.setattr(torch, "get_num_threads", lambda: count)
    monkeypatch.setattr(threads, "_bind", lambda numbers, number: asked.append((numbers, number)) or 0)
    said = threads.bind_threads(pin, decoder())
    assert (why in said) if why else said is None
    assert asked == [(None if why else tuple(range(cores)), count)]


def test_a_system_that_refuses_is_a_reason_and_no_error(monkeypatch):
    monkeypatch.setattr(threads, "physical_cores", lambda allowed: (0, 1))
    monkeypatch.setattr(threads, "cpu_quota", lambda: None)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(threads, "_bind", lambda numbers, number: 1)
    assert threads.bind_threads("auto", decoder()) == f"the system refused: {os.strerror(1)}"


def test_torchs_own_pool_is_left_alone(monkeypatch):
    monkeypatch.setattr(threads, "_bind", None)
    assert "torch" in threads.bind_threads("auto", object())
