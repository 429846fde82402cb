"""Where the times of a step's operators are from: the words that a record keeps. Loads nothing, so a page can ask."""

from __future__ import annotations

COMPILED, KERNELS, OPERATORS = "compiled operators", "CUDA kernels", "torch operators"
