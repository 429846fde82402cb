"""What this machine offers: device, number format, threads, and the description stored with every run.

Imports torch, which takes a second, only where a function needs it: the page asks for the rest at its start.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core_engine.cores import threads_found
from ledger.errors import CannotRunError, InputError

if TYPE_CHECKING:
    import torch

# What a driver of a GPU leaves on a Linux system: NVIDIA's (also in a container), that of a Jetson, of WSL 2, AMD's.
DRIVERS = tuple(map(Path, ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/nvmap", "/dev/dxg", "/dev/kfd")))


def dtypes() -> dict[str, torch.dtype]:
    """The torch dtype of each name of a number format."""
    import torch

    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def cuda_is_here() -> bool:
    """Whether torch can use a CUDA device; it is asked only where there may be one."""
    if sys.platform == "linux" and not any(path.exists() for path in DRIVERS):
        return False
    import torch

    return torch.cuda.is_available()


def resolve_device(name: str) -> torch.device:
    """The torch device of a `device` setting; CannotRunError when CUDA is asked for and absent."""
    import torch

    available = cuda_is_here()
    if name == "cuda" and not available:
        raise CannotRunError("device: cuda was asked for and no CUDA device is usable here; use device=cpu")
    return torch.device("cuda" if name == "cuda" or (name == "auto" and available) else "cpu")


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """The torch dtype of a `dtype` setting on `device`."""
    if name == "auto":
        return dtypes()["bf16" if device.type == "cuda" or cpu_computes_bf16() else "fp32"]
    if name == "fp16" and device.type == "cpu":
        raise InputError("dtype", "fp16", "auto, fp32 or bf16 on a CPU: no fast fp16 kernel exists there")
    return dtypes()[name]


def dtype_name(dtype: torch.dtype) -> str:
    """Registry name of a torch dtype."""
    return next(name for name, value in dtypes().items() if value is dtype)


def cpu_flags() -> frozenset[str]:
    """Instruction set flags of the processor; empty where the system does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return frozenset()
    flags = next((line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))), "")
    return frozenset(flags.split())


def cpu_computes_bf16() -> bool:
    """Whether the processor multiplies bf16 itself (AVX512-BF16 or AMX); elsewhere bf16 is slower than fp32."""
    return bool(cpu_flags() & {"avx512_bf16", "amx_bf16"})


def resolve_threads(threads: int) -> int:
    """0 means one for each physical core that this process may use: core_engine/cores.py."""
    return threads or threads_found()


def cpu_name() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def describe(device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """The environment stored with a run."""
    import torch

    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "cpu": cpu_name(),
        "threads": torch.get_num_threads(),
        "dtype": dtype_name(dtype),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
