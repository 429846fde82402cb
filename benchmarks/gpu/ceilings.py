"""What the device itself reaches: bytes a second of a copy, and operations a second of a square matrix product."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

COPY_BYTES = 2 * 2**30
SIDE = 8192
REPEATS = 15


def seconds_on_device(work: Callable[[], object], repeats: int = REPEATS, times: int = 1) -> float:
    """Median seconds between two CUDA events around `times` runs of `work`, divided by them; after one that does not
    count. On a CPU, where this is a dry run, wall time."""
    if not torch.cuda.is_available():
        from interleave import timed

        work()
        return statistics.median(timed(work) for _ in range(3))
    found = []
    work()
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        for _ in range(times):
            work()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / 1e3 / times)
    return statistics.median(found)


def copy_bytes_per_s(device: torch.device, num_bytes: int = COPY_BYTES) -> float:
    """Bytes read and written a second by a device's own copy of `num_bytes`."""
    source = torch.empty(num_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * num_bytes / seconds_on_device(lambda: target.copy_(source))


def product_flops_per_s(device: torch.device, dtype: torch.dtype, side: int = SIDE) -> float:
    """Operations a second of a product of two matrices of `side` x `side`: 2 side^3 of them."""
    a, b = (torch.randn(side, side, device=device, dtype=torch.float32).to(dtype) for _ in range(2))
    return 2 * side**3 / seconds_on_device(lambda: a @ b)
