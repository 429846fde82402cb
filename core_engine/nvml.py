"""Opening NVML for a torch device. Knows no field of it: memory_readings.py and telemetry.py do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class NoNvml(Exception):
    """NVML can't be had for a device; the text says why."""


def device_uuid(device: torch.device) -> str:
    """The card's own name, which is the same in NVML whatever CUDA_VISIBLE_DEVICES hides."""
    import torch

    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


@contextmanager
def opened(device: torch.device) -> Iterator[tuple[Any, Any]]:
    """The module and its handle of a device for the length of a block; NoNvml where either can't be had.

    An error of NVML inside the block is the caller's.
    """
    if device.type != "cuda":
        raise NoNvml(f"no CUDA device: NVML knows nothing of a {device.type.upper()}")
    try:
        import pynvml
    except ImportError:
        raise NoNvml("nvidia-ml-py is not installed") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoNvml(f"NVML can't be opened: {error}") from None
    try:
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(device_uuid(device))
        except pynvml.NVMLError as error:
            raise NoNvml(f"NVML does not know this device: {error}") from None
        yield pynvml, handle
    finally:
        pynvml.nvmlShutdown()
