"""Readings of memory: of this process from the system, of a CUDA device from torch's allocator and NVML.

None stands for what the system does not say; nothing here is guessed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from core_engine.nvml import NoNvml, opened


def process_rss_bytes() -> int | None:
    """Resident memory of this process."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except (OSError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def process_peak_bytes() -> int | None:
    """Largest resident memory of this process since `restart_peak`, or since it began where that is refused."""
    try:
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration, ValueError):
        return None


def restart_peak() -> None:
    """Count `process_peak_bytes` from now on (Linux: 5 into clear_refs, see proc(5)); nothing where it is refused."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", "ascii")


def return_freed_memory() -> None:
    """Give freed pages of the C library's heap back to the system; nothing where the library has no malloc_trim."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def prefer_huge_pages(tensor: torch.Tensor) -> None:
    """Ask for huge pages for a CPU tensor not yet written to: who walks through all of it looks up fewer addresses.

    Linux where its setting is `madvise`; nothing elsewhere.
    """
    page, advice = 2 << 20, getattr(mmap, "MADV_HUGEPAGE", None)
    first = -(-tensor.data_ptr() // page) * page
    last = (tensor.data_ptr() + tensor.untyped_storage().nbytes()) // page * page
    if tensor.device.type == "cpu" and advice is not None and last > first:
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), ctypes.c_int(advice))


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes on a CUDA device. allocated and reserved are torch's in this process, the others NVML's."""

    allocated: int
    reserved: int
    process: int | None
    device_used: int | None
    device_total: int | None

    @property
    def context(self) -> int | None:
        """What this process holds beside torch's allocator: CUDA context, kernels, libraries' workspaces.

        Where NVML does not tell processes apart (as in many containers) the device's whole use stands for it, so that
        other processes on the device are in it.
        """
        held = self.device_used if self.process is None else self.process
        return None if held is None else held - self.reserved


def device_memory(device: torch.device) -> DeviceMemory | None:
    """The readings of a CUDA device; None for any other. NVML's are None where it can't be asked."""
    if device.type != "cuda":
        return None
    process = used = total = None
    with suppress(NoNvml), opened(device) as (nvml, card), suppress(nvml.NVMLError):
        memory = nvml.nvmlDeviceGetMemoryInfo(card)
        used, total = int(memory.used), int(memory.total)
        own = [p.usedGpuMemory for p in nvml.nvmlDeviceGetComputeRunningProcesses(card) if p.pid == os.getpid()]
        process = own[0] if own else None
    return DeviceMemory(torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device), process, used, total)
