"""A side as the driver sees it: its process started, talked to, watched, and started again when it is lost."""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from core_engine.disaggregation.messages import Close, Closed, Load, Loaded, Open, Opened
from core_engine.disaggregation.wire import Wire
from core_engine.parallel.child import Process, end_children, how_it_ended, start_child
from core_engine.parallel.messages import Failed
from core_engine.parallel.processes import STANDING_STILL_S, STARTING_S
from core_engine.parallel.progress import Progress
from ledger.errors import CannotRunError

MODULE = "core_engine.disaggregation.worker"
PREFILL, DECODE = 0, 1
NAMES = ("prefill", "decode")


class _Parts:
    """What has to be let go of when nobody uses a side any more; what is in it changes with a restart."""

    def __init__(self) -> None:
        self.process: Process | None = None
        self.wire: Wire | None = None
        self.lifeline: int | None = None

    @property
    def ended(self) -> bool:
        """Whether the other end of the wire is closed."""
        return self.wire is None or self.wire.ended

    def end(self) -> None:
        if self.wire is not None and self.process is not None:
            end_children([self.process], [self.wire], self.lifeline)
        self.process = self.wire = self.lifeline = None


class Side:
    """One process. `ready` when its engine is open. memory, progress: descriptors that all share."""

    def __init__(
        self,
        number: int,
        load: Load,
        cpus: tuple[int, ...],
        memory: int,
        progress: int,
        standing_still_s: float = STANDING_STILL_S,
    ) -> None:
        self.number, self.name = number, NAMES[number]
        self.loaded: Loaded | None = None
        self.opened: Opened | None = None
        self.restarts = 0
        self.standing_still_s = standing_still_s
        self._load, self._cpus, self._memory, self._descriptor = load, cpus, memory, progress
        self._progress = Progress(progress, len(NAMES))
        self._open: Open | None = None
        self._failed: Failed | None = None
        self._count = 0
        self._waited_from_s: float | None = None  # since when nothing was seen of it, though it has something to do
        self._parts = _Parts()
        weakref.finalize(self, self._parts.end)
        self.start()

    def start(self) -> None:
        """Start the process and have it load its model, and open the engine that was open."""
        self.loaded = self.opened = self._failed = None
        self._closing = False
        lifeline, self._parts.lifeline = os.pipe()
        try:
            options = {
                "side": self.number,
                "lifeline": lifeline,
                "progress": self._descriptor,
                "memory": self._memory,
                "cpus": ",".join(map(str, self._cpus)),
            }
            shared = (lifeline, self._descriptor, self._memory)
            self._parts.process, control = start_child(MODULE, options, self._load.threads, shared)
        except OSError as error:
            os.close(self._parts.lifeline)
            self._parts.lifeline = None
            raise CannotRunError(
                f"disaggregation=on: the {self.name} process can't be started: {error.strerror or error}"
            ) from None
        finally:
            os.close(lifeline)
        self._parts.wire = Wire(control)
        self._waited_from_s = None
        self.send(self._load)
        if self._open is not None:
            self.send(self._open)

    def restart(self) -> None:
        """End what is left of the process and start another."""
        if self._parts.process is not None:
            self._parts.process.kill()
        self._parts.end()
        self.restarts += 1
        self.start()

    def renew(self) -> None:
        """Let go of the engine; `vacant` when that is done.

        Of a process that has ended, failed, or is on its way to an engine that nobody wants any more, begin another.
        """
        if self.vacant:
            return
        if self.alive and self.ready and not self._parts.ended:
            self.opened = self._open = None
            self._closing = True
            self.send(Close())
            return
        self._open = None
        if self.alive:
            self.restart()
        else:
            self.start()

    def close(self) -> None:
        """End the process; `start` would begin another."""
        self.loaded = self.opened = None
        self._parts.end()

    @property
    def vacant(self) -> bool:
        """Whether its model is loaded and it has no engine, nor will have one unless it is asked."""
        return self.loaded is not None and self._open is None and not self._closing and not self._parts.ended

    @property
    def alive(self) -> bool:
        """Whether a process was started and not ended."""
        return self._parts.process is not None

    @property
    def ready(self) -> bool:
        """Whether requests can be given to it."""
        return self.opened is not None

    @property
    def pid(self) -> int:
        """Of the process that runs now."""
        assert self._parts.process is not None
        return self._parts.process.pid

    def fileno(self) -> int:
        """For select."""
        assert self._parts.wire is not None
        return self._parts.wire.fileno()

    def open(self, message: Open) -> None:
        """Have it make a new engine; `ready` once it says so."""
        self._open, self.opened = message, None
        self.send(message)

    def send(self, message: Any) -> None:
        """Send a message, or as much of it as there is room for."""
        assert self._parts.wire is not None
        self._parts.wire.send(message)

    def receive(self) -> Iterator[Any]:
        """What came, without what is about the side itself, which it keeps."""
        assert self._parts.wire is not None
        self._parts.wire.flush()
        found = self._parts.wire.receive()
        if found:
            self._waited_from_s = None
        for message in found:
            if isinstance(message, Loaded):
                self.loaded = message
            elif isinstance(message, Opened):
                if self._open is not None and message.number == self._open.number:
                    self.opened = message
            elif isinstance(message, Closed):
                self._closing = False
            elif isinstance(message, Failed):
                self._failed = message
            else:
                yield message

    @property
    def failed(self) -> Failed | None:
        """What it said before it ended itself."""
        return self._failed

    def lost(self, busy: bool) -> str | None:
        """Why it can't go on, in words; None while it can. busy: it has something to do and should be seen doing it."""
        assert self._parts.wire is not None and self._parts.process is not None
        if self._parts.wire.ended:
            return f"the {self.name} process {self._ending()}"
        if not busy and self.ready:
            self._waited_from_s = None
            return None
        now_s, count = time.monotonic(), self._progress.counts()[self.number]
        # However long nobody asked: waiting begins with the first look at a side that has something to do.
        if self._waited_from_s is None or count != self._count:
            self._count, self._waited_from_s = count, now_s
        patience_s = self.standing_still_s if self.ready or self._closing else STARTING_S
        if now_s - self._waited_from_s > patience_s:
            return f"the {self.name} process stood still for {patience_s:g} s"
        return None

    def _ending(self) -> str:
        if self._failed is not None:
            print(self._failed.traceback, file=sys.stderr, flush=True)
            return f"failed: {self._failed.kind}: {self._failed.text}"
        assert self._parts.process is not None
        with suppress(Exception):
            self._parts.process.wait(1.0)
        code = self._parts.process.poll()
        return "closed its connection" if code is None else how_it_ended(code)
