"""Memory that runs out as a model loads, when its KV cache is taken and in a step: one line, and the store lives."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.cli.output import CANNOT_RUN, FAULT, exit_code
from experiments.store import Store
from ledger.errors import OUT_OF_MEMORY, CannotRunError, is_out_of_memory
from tests.core_engine.conftest import make_llama
from tests.resilience.helpers import ROOT


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of the address space")
def test_memory_that_is_refused_is_one_line_wherever_it_happens(tmp_path: Path) -> None:
    # Wide, so that a step's activations (8 MiB each) are taken from the system and given back each time.
    make_llama(tmp_path / "model", intermediate_size=8192, max_position_embeddings=4096)
    kept = tmp_path / "home" / "runs.sqlite3"
    command = [sys.executable, "-m", "tests.resilience.short_of_memory", str(tmp_path / "model"), str(kept)]
    always_back = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(256 * 1024)}
    ended = subprocess.run(command, cwd=ROOT, env=always_back, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["before"] == found["after"] == {"code": 0, "state": "done", "error": None}
    for phase in ("load", "step"):
        assert found[phase] == {"code": 3, "state": "failed", "error": OUT_OF_MEMORY}, phase
    refused = "kv_memory_mib: 4000 MiB of KV cache can't be allocated here; use less"
    assert found["kv"] == {"code": 3, "state": "failed", "error": refused}
    states = [run.state for run in Store(kept).list_runs()]
    assert states == ["done", "failed", "failed", "failed", "done"]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"
        ),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        RuntimeError("std::bad_alloc"),
    ],
)
def test_every_allocators_refusal_is_known(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert is_out_of_memory(error)
    assert exit_code(error) == CANNOT_RUN
    assert capsys.readouterr().err == f"trilemma: {OUT_OF_MEMORY}\n"


@pytest.mark.parametrize(
    "error",
    [CannotRunError("CUDA out of memory"), OSError(errno.ENOSPC, "full"), RuntimeError("shape"), ValueError("memory")],
)
def test_other_errors_are_not_taken_for_it(error: Exception) -> None:
    assert not is_out_of_memory(error)
    assert exit_code(RuntimeError("shape")) == FAULT
