"""The page makes way for the engine: a lower priority for its threads, and worker processes that don't inherit it.

Owns the one thread that keeps the ordinary priority and starts the workers. A lowered priority can't be raised again
without a privilege, and a process begins with that of the thread that starts it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

NICENESS = 5  # a third of the share of an ordinary thread where both want the same core
TASKS = Path("/proc/self/task")
AUTOGROUP = Path("/proc/self/autogroup")


@cache
def _starter() -> ThreadPoolExecutor:
    """One thread, begun with the priority that this process had then."""
    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="starter")
    executor.submit(threading.get_native_id).result()
    return executor


def start_process(*arguments: Any, **settings: Any) -> subprocess.Popen[bytes]:
    """subprocess.Popen, at the priority that this process had before it made way."""
    started: subprocess.Popen[bytes] = _starter().submit(lambda: subprocess.Popen(*arguments, **settings)).result()
    return started


def make_way() -> None:
    """Lower the priority of every thread of this process and of those they start; `start_process` stays as it was.

    Linux only, where a thread has a priority of its own. What the system refuses is left as it is.
    """
    if not sys.platform.startswith("linux"):
        return
    starter = _starter().submit(threading.get_native_id).result()
    for task in _threads():
        if task != starter:
            with suppress(OSError):  # the thread has ended, or may not be changed
                os.setpriority(os.PRIO_PROCESS, task, max(NICENESS, os.getpriority(os.PRIO_PROCESS, task)))
    # Where the system shares a core between sessions first, a thread's own priority counts within its session only.
    if os.getsid(0) == os.getpid():
        with suppress(OSError):
            AUTOGROUP.write_text(str(NICENESS))


def _threads() -> list[int]:
    with suppress(OSError):
        return [int(task.name) for task in TASKS.iterdir()]
    return []
