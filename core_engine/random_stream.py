"""The one counter-based random stream: a number is a pure function of (request seed, sample index, position, purpose).

Never one number for two purposes, and never dependent on who shares the batch, on chunking or on preemption. Knows no
torch: a simulated engine draws from it too.
"""

from __future__ import annotations

import numpy as np

PURPOSES = {"sample": 0, "draft": 1, "accept": 2, "residual": 3}


def uniform(seed: int, position: int, *, sample_index: int = 0, purpose: str = "sample") -> float:
    """A uniform number in [0, 1) from Philox keyed by the request and counted by position and purpose."""
    generator = np.random.Philox(key=[seed, sample_index], counter=[0, position, PURPOSES[purpose], 0])
    return float(np.random.Generator(generator).random())
