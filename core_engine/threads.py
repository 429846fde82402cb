"""Binding the compiled step's threads to cores: whether, and why not. Which cores there are is cores.py's business.

A bound thread can't be moved away from a core that something else wants, so it is done only where the pool takes every
core of this process anyway. Never an error: what can't be bound runs where the system puts it.
"""

from __future__ import annotations

import ctypes
import os

import numpy as np
import torch

from core_engine.cores import allowed_cpus, cpu_quota, physical_cores
from core_engine.kernels.cpu.native import library
from core_engine.model.compiled import CompiledDecoder
from ledger.counted import counted


def bind_threads(pin: str, decoder: object) -> str | None:
    """Bind torch's current number of threads, one a core, or let them go; returns why they are not bound, else None.

    pin is the variable pin_threads. To be called by the thread that will run the steps, which stays free itself: its
    children would inherit the binding.
    """
    if not isinstance(decoder, CompiledDecoder):
        return "torch's operators run where the system puts them"
    threads = torch.get_num_threads()
    cores = physical_cores(allowed_cpus())
    why = _why_not(pin, threads, len(cores))
    error = _bind(cores[:threads] if why is None else None, threads)
    return why or (f"the system refused: {os.strerror(error)}" if error else None)


def _why_not(pin: str, threads: int, cores: int) -> str | None:
    quota = cpu_quota()
    if pin == "off":
        return "pin_threads=off"
    if threads == 1:
        return "one thread alone runs in the process's own"
    if threads != cores:
        return f"{counted(threads, 'thread')} on {counted(cores, 'core')}: the system places them better"
    if quota is not None and quota < cores:
        return f"a control group leaves {quota:g} of {cores} cores, and the system chooses which"
    return None


def _bind(cores: tuple[int, ...] | None, threads: int) -> int:
    """errno, 0 for done."""
    numbers = None if cores is None else np.array(cores, dtype=np.int32)
    address = None if numbers is None else ctypes.c_void_p(numbers.ctypes.data)
    return int(library().trilemma_bind(address, ctypes.c_int64(threads)))
