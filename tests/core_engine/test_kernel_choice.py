"""Which kernels run and why: refusals with all reasons at once, a machine without a compiler, what environment says."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.kernels.choice import COMPILED, TORCH, TRITON, choose_kernels, expected_here, expected_with_auto
from core_engine.kernels.cpu import native
from core_engine.model.compiled import CompiledDecoder
from core_engine.model.decoder import Decoder
from ledger.errors import CannotRunError, InputError
from tests.core_engine.conftest import load_fp32, make_tiny

ROOT = Path(__file__).resolve().parents[2]
CPU = torch.device("cpu")


@pytest.fixture
def no_compiler(monkeypatch, tmp_path):
    """This process as on a machine without one, and without a library that was built before."""
    from core_engine.kernels.cpu.native import library

    library.cache_clear()
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TRILEMMA_CACHE", str(tmp_path / "cache"))
    yield
    library.cache_clear()


def choose(dtype=torch.float32, head_dim=64, report=lambda _: None, device=CPU, **settings):
    return choose_kernels(EngineConfig.from_settings(settings), device, dtype, head_dim, report)


def test_every_setting_that_torch_kernels_lack_is_named_at_once():
    with pytest.raises(InputError) as caught:
        EngineConfig.from_settings({"kernels": "torch", "graph": "on", "kv_splits": "4"})
    said = str(caught.value)
    assert "kernels=torch" in said and "graph=on" in said and "kv_splits=4" in said and "\n" not in said


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"kernels": "compiled", "device": "cuda"}, ("device=cuda", "kernels=compiled")),
        (
            {"kernels": "torch", "graph": "on", "batching": "static", "max_queue": 2},
            ("graph=on", "max_queue=2", "max_num_seqs=8"),
        ),
        (
            {"kv_layout": "contiguous", "prefix_cache": "on", "kernels": "torch", "kv_splits": "1"},
            ("prefix_cache=off", "kv_layout=contiguous", "kv_splits=1"),
        ),
    ],
)
def test_conflicts_of_different_kinds_are_listed_together(settings, named):
    with pytest.raises(InputError) as caught:
        EngineConfig.from_settings(settings)
    assert all(text in str(caught.value) for text in named)


@pytest.mark.parametrize("settings", [{"graph": "off"}, {"attention": "naive"}, {"fused_ops": "off"}, {}], ids=str)
def test_torch_kernels_take_what_they_have(settings):
    assert choose(kernels="torch", **settings).kernels == TORCH


def test_a_missing_compiler_is_one_line_and_torch(no_compiler):
    said = []
    choice = choose(report=said.append)
    assert choice.kernels == TORCH and "no C++ compiler" in choice.kernels_reason
    assert len(said) == 1 and choice.kernels_reason in said[0] and "\n" not in said[0]
    assert expected_here() == choice


@pytest.mark.parametrize(
    "settings",
    [{"kernels": "compiled"}, {"graph": "on"}, {"kv_splits": "2", "graph": "on"}],
    ids=str,
)
def test_what_needs_a_compiler_cannot_run_without_and_says_all_of_it(no_compiler, settings):
    with pytest.raises(CannotRunError) as caught:
        choose(**settings)
    said = str(caught.value)
    assert "no C++ compiler" in said and all(f"{name}={value}" in said for name, value in settings.items())


def test_a_compiler_that_is_not_there_is_named(no_compiler, monkeypatch):
    monkeypatch.setenv("CXX", "/no/such/compiler")
    assert "/no/such/compiler" in choose().kernels_reason


def test_a_compiler_that_fails_is_a_reason(no_compiler, monkeypatch, tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho out of registers >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    assert expected_here().kernels_reason == "built at the first run"
    assert "out of registers" in choose().kernels_reason


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"dtype": torch.float16}, "float16"),
        ({"head_dim": 12 + 1}, "head size 13"),
    ],
)
def test_a_model_that_compiled_kernels_do_not_take_runs_with_torch(compiled_kernels, arguments, reason):
    choice = choose(**arguments)
    assert choice.kernels == TORCH and reason in choice.kernels_reason
    with pytest.raises(CannotRunError, match=reason):
        choose(**arguments, kernels="compiled")


def test_a_gpu_runs_triton_and_never_compiled_code():
    cuda = torch.device("cuda")
    assert choose(device=cuda).kernels == choose(device=cuda, kernels="triton").kernels == TRITON
    assert choose(device=cuda, kernels="torch").kernels == TORCH
    with pytest.raises(CannotRunError, match=r"kernels=compiled.*not for cuda"):
        choose(device=cuda, kernels="compiled")


@pytest.mark.parametrize(
    ("arguments", "reason"), [({"head_dim": 264}, "at most 256"), ({"head_dim": 40}, "multiple of 16")]
)
def test_heads_that_triton_kernels_do_not_take_run_with_torch_and_it_is_said(arguments, reason):
    said = []
    choice = choose(device=torch.device("cuda"), report=said.append, **arguments)
    assert choice.kernels == TORCH and reason in choice.kernels_reason and len(said) == 1
    with pytest.raises(CannotRunError, match=reason):
        choose(device=torch.device("cuda"), kernels="triton", **arguments)


def test_without_the_package_a_gpu_runs_torch(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    choice = choose(device=torch.device("cuda"))
    assert choice.kernels == TORCH and "triton is not installed" in choice.kernels_reason


def test_triton_on_a_cpu_is_refused_but_for_its_interpreter(monkeypatch):
    assert choose(kernels="triton").kernels_reason == "Triton's interpreter"
    with pytest.raises(CannotRunError, match="bf16"):
        choose(kernels="triton", dtype=torch.bfloat16)
    monkeypatch.delenv("TRITON_INTERPRET")
    with pytest.raises(CannotRunError, match="CUDA device"):
        choose(kernels="triton")


def test_the_environment_of_a_run_says_which_kernels_and_why(compiled_kernels, tmp_path):
    make_tiny("qwen3", tmp_path)  # heads of 16: every vector divides them
    engines = {
        name: Engine(
            EngineConfig.from_settings({"kernels": name, "kv_memory_mib": 4}), load_fp32(tmp_path, kernels=name)
        )
        for name in (COMPILED, TORCH)
    }
    compiled, torch_ = (engines[name].record()["environment"] for name in (COMPILED, TORCH))
    assert isinstance(engines[COMPILED].loaded.decoder, CompiledDecoder)
    assert isinstance(engines[TORCH].loaded.decoder, Decoder)
    assert (compiled["kernels"], torch_["kernels"]) == (COMPILED, TORCH)
    assert compiled["vector_bits"] in (128, 256, 512) and compiled["instructions"]
    assert (torch_["kernels_reason"], torch_["vector_bits"]) == ("kernels=torch", None)


def test_a_loaded_torch_model_is_not_taken_for_what_it_lacks(tiny_loaded):
    for settings in ({"graph": "on"}, {"kv_splits": "2"}, {"kernels": "compiled"}):
        with pytest.raises(CannotRunError, match="kernels=torch"):
            Engine(EngineConfig.from_settings(settings), tiny_loaded)


def test_generate_without_a_compiler_prints_one_line_and_answers(tiny, tmp_path):
    settings = {"model": tiny[0], "dtype": "fp32", "device": "cpu", "threads": 1, "kv_memory_mib": 4}
    sets = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    environment = {name: value for name, value in os.environ.items() if name != "CXX"} | {
        "PATH": str(tmp_path),
        "TRILEMMA_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "experiments.cli", "generate", "--prompt", "ab", "--max-tokens", "3", *sets]

    def run(*more):
        return subprocess.run([*command, *more], capture_output=True, text=True, env=environment, cwd=ROOT)

    done = run()
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "Kernels" in line]
    assert len(lines) == 1 and "no C++ compiler" in lines[0]
    refused = run("--set", "kernels=compiled")
    assert refused.returncode == 3 and "no C++ compiler" in refused.stderr and "Traceback" not in refused.stderr


def test_what_auto_comes_to_is_told_without_building(monkeypatch):
    assert expected_with_auto() == expected_here()
    monkeypatch.setattr("core_engine.kernels.choice.cuda_is_here", lambda: True)
    assert expected_with_auto().kernels == TRITON
    monkeypatch.setattr("core_engine.kernels.choice.missing_here", lambda: "the package triton is not installed")
    assert expected_with_auto().kernels == TORCH


@pytest.mark.parametrize(("bits", "width"), [("128", 4), ("512", 16)])
def test_vectors_can_be_of_another_width_than_the_processors(monkeypatch, bits, width):
    monkeypatch.setenv(native.VECTOR_BITS, bits)
    assert native.width_flags() == (f"-DTRILEMMA_WIDTH={width}",)
    monkeypatch.setenv(native.VECTOR_BITS, "")
    assert native.width_flags() == ()


def test_vectors_of_no_width_are_refused(monkeypatch):
    monkeypatch.setenv(native.VECTOR_BITS, "300")
    with pytest.raises(InputError, match=r"TRILEMMA_VECTOR_BITS: '300' .*128, 256 or 512"):
        native.width_flags()
