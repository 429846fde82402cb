"""Memory that runs out as a model loads, when its KV cache is taken and in a step: one line, and the store lives."""

from __future__ import annotations

import errno

import pytest

from experiments.cli.output import CANNOT_RUN, FAULT, exit_code
from ledger.errors import OUT_OF_MEMORY, CannotRunError, is_out_of_memory


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
