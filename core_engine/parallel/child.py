"""A process that answers its driver over a socket and can't outlive it: how it is started, how it is ended.

What it runs has to call guard.end_with first. Nothing it shares with the driver has a name, so nothing is left behind.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[2]
LOOPBACK = {"linux": "lo", "darwin": "lo0"}
PATIENCE_S = 2.0  # for processes to end by themselves

Process = subprocess.Popen[bytes]


class Closing(Protocol):
    """The driver's end of a connection."""

    def close(self) -> None:
        """Let the other end see that nobody is there."""
        ...


def start_child(
    module: str, options: Mapping[str, object], threads: int, descriptors: Sequence[int]
) -> tuple[Process, Connection]:
    """`python -m module --control N --driver PID --by-signal 0|1 ...` with `options` as further ones, and the driver's
    end of its control. descriptors are open in it under the same numbers. OSError when it can't be started."""
    ours, theirs = socket.socketpair()
    with theirs:
        control = theirs.fileno()
        command = {
            **options,
            "control": control,
            "driver": os.getpid(),
            # The signal would come when the thread that started them ends.
            "by-signal": int(threading.current_thread() is threading.main_thread()),
        }
        given = [part for key, value in command.items() for part in (f"--{key}", str(value))]
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *given],
            pass_fds=(control, *descriptors),
            env=_environment(threads),
            stdin=subprocess.DEVNULL,
            stdout=2,  # a command's stdout is its result
        )
        return process, Connection(ours.detach())


def set_patience(control: Connection, seconds: float) -> None:
    """Let a read or a write that moves no byte for so long raise BlockingIOError, in the middle of a message too."""
    whole = int(seconds)
    value = struct.pack("ll", whole, int((seconds - whole) * 1e6))
    with socket.socket(fileno=os.dup(control.fileno())) as copy:  # options are the socket's, not the descriptor's
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            copy.setsockopt(socket.SOL_SOCKET, option, value)


def _environment(threads: int) -> dict[str, str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "passive",  # who waits for another process must leave it the core
    }
    if sys.platform in LOOPBACK:
        environment["GLOO_SOCKET_IFNAME"] = LOOPBACK[sys.platform]
    return environment


def how_it_ended(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


def end_children(processes: Sequence[Process], controls: Sequence[Closing], lifeline: int | None = None) -> None:
    """Let go of processes, which end by themselves when they see it, and kill those that don't within PATIENCE_S.

    lifeline: the writing end of the pipe that holds them, closed too.
    """
    for control in controls:
        with suppress(OSError):
            control.close()
    if lifeline is not None:
        with suppress(OSError):
            os.close(lifeline)
    until_s = time.monotonic() + PATIENCE_S
    for process in processes:
        try:
            process.wait(max(0.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
    for process in processes:
        process.wait()
