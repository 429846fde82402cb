"""What ties a rank's life to its driver's, set up before anything large is imported. Knows no torch.

Two ties, since each has a hole: the system's signal comes when the *thread* that started a rank ends, so it is asked
for only where that is the main thread; the pipe's end is seen by a thread, which needs the interpreter's lock.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading

ORPHANED = 70  # exit code of a rank whose driver is gone
PR_SET_PDEATHSIG = 1  # prctl(2)


def end_with(driver: int, lifeline: int, *, by_signal: bool) -> None:
    """End this process when process `driver` does. lifeline: the reading end of a pipe that only the driver writes to.

    by_signal: have the system send SIGKILL too (Linux).
    """
    if by_signal and sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != driver:  # it ended before the signal was asked for
            os._exit(ORPHANED)
    threading.Thread(target=_wait_for_end, args=(lifeline,), name="lifeline", daemon=True).start()


def _wait_for_end(lifeline: int) -> None:
    while os.read(lifeline, 1):
        pass
    os._exit(ORPHANED)


def take_cores(cpus: tuple[int, ...]) -> None:
    """Keep this process, with all threads that it will start, on these CPUs; nothing when there are none given.

    To be called again behind `import torch`, whose libraries give the importing thread all CPUs back.
    """
    if cpus and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cpus)
