"""Fixtures shared by every test package."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from core_engine.environment import cpu_flags

# The normal suite says the same of the same tree, on every machine however busy; the slow property tests draw anew each
# time.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Kernels of a GPU run one operation at a time on the CPU. Compiling them takes a process without it.
os.environ.setdefault("TRITON_INTERPRET", "1")
# The tiny models have heads of 8, which vectors of 512 bits don't divide.
if "avx512f" in cpu_flags():
    os.environ.setdefault("TRILEMMA_VECTOR_BITS", "256")


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Folder beside the checkout with real configs, traces and evaluation sets; tests that need it skip without it."""
    path = Path(__file__).resolve().parents[2] / "shared"
    if not path.is_dir():
        pytest.skip("the folder ../shared with the reference data is not present")
    return path


@pytest.fixture(scope="session")
def compiled_kernels() -> None:
    """Skips, with the reason, where compiled kernels can't be had."""
    from core_engine.kernels.cpu.native import library

    try:
        library()
    except OSError as error:
        pytest.skip(str(error))
