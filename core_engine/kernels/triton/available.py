"""Whether Triton can be had here. Imports none of it."""

from __future__ import annotations

import importlib.util
import os


def is_interpreted() -> bool:
    """Whether Triton runs its kernels one operation at a time on the CPU, which is for checking them."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def missing_here() -> str | None:
    """Why Triton can't be imported; None when it can."""
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    return None
