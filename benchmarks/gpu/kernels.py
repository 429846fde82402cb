"""Every kernel against torch on the device itself: the tests of kernels/triton, compiled instead of interpreted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TESTS = ("tests/core_engine/kernels/triton", "tests/core_engine/test_triton_engine.py")


def kernel_tests(limit_s: float) -> dict[str, Any]:
    """{"passed", "failed", "tail", ...} of a pytest process with TRILEMMA_TEST_DEVICE=cuda."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRILEMMA_TEST_DEVICE": "cuda", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        return {"failed": None, "error": f"not done after {limit_s:.0f} s", "tail": _tail(error.stdout or "")}
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error|skipped)", done.stdout)}
    return {"exit": done.returncode, **counts, "tail": _tail(done.stdout + done.stderr)}


def _tail(text: str | bytes) -> str:
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text
    return "\n".join(shown.splitlines()[-15:])
