"""Memory that runs out as a model loads, when its KV cache is taken and in a step: one line, and the store lives."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments import jobs
from experiments.cli.output import CANNOT_RUN, FAULT, exit_code
from experiments.store import Store
from ledger.errors import OUT_OF_MEMORY, CannotRunError, is_out_of_memory
from tests.core_engine.conftest import make_llama
from tests.resilience.helpers import ROOT, until


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of the address space")
def test_memory_that_is_refused_is_one_line_wherever_it_happens(tmp_path: Path) -> None:
    # Wide, so that a step's activations (16 MiB each) are taken from the system and given back each time.
    make_llama(tmp_path / "model", intermediate_size=16_384, max_position_embeddings=4096)
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


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of 64 MiB (of either version); skips where this process may make none."""
    try:
        root = Path("/sys/fs/cgroup")
        old = (root / "memory").is_dir()
        made = root / ("memory" if old else "") / f"trilemma-{os.getpid()}"
        made.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        (made / ("memory.limit_in_bytes" if old else "memory.max")).write_text(str(64 * 2**20))
        yield made
    except OSError as error:
        pytest.skip(f"no limit can be set here: {error}")
    finally:
        until(lambda: not (made / "cgroup.procs").read_text())
        made.rmdir()


def test_a_worker_that_the_system_kills_for_want_of_memory_is_told(tmp_path: Path, group: Path) -> None:
    store = Store(tmp_path / "home" / "runs.sqlite3")
    run_id = jobs.start("bench", {"workload": "equal"}, store)
    (group / "cgroup.procs").write_text(str(jobs._children[run_id].pid))
    run = jobs.wait(run_id, store)
    assert (run.state, run.error) == ("failed", "the engine process ended (SIGKILL): the system ran out of memory")


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
