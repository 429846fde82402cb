"""The process of a side: `python -P -m core_engine.disaggregation.worker`, started by side.py alone.

An engine that is stepped as long as it has work. Between two steps it takes what the driver said, copies out the KV of
requests that got their next token under a lease, and copies in that of those it may resume, in the order they came.
"""

from __future__ import annotations

import argparse
import os
import pickle
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from core_engine.parallel.guard import end_with, take_cores

BROKEN = 71  # exit code behind a Failed: the driver starts the side again


class Worker:
    """The state of a side: its model, the engine that runs now, the area, and who is to be copied out or in."""

    def __init__(self, control: Connection, memory: int, cpus: tuple[int, ...], alive: Callable[[], None]) -> None:
        self._control, self._memory, self._cpus, self._alive = control, memory, cpus, alive
        self._loaded: Any = None
        self._engine: Any = None
        self._area: Any = None
        self._leases: dict[str, Any] = {}  # of requests that are handed over with their next token
        self._scoring: set[str] = set()
        self._arriving: deque[Any] = deque()  # Resume, first come first served

    def serve(self) -> int:
        """Go on until the driver closes its end; the exit code."""
        while True:
            try:
                while self._control.poll(0 if self._has_work() else None):
                    self._answer(pickle.loads(self._control.recv_bytes()))
            except EOFError:
                return 0
            self._alive()
            self._copy_in()
            if self._engine is not None and self._engine.has_unfinished():
                self._step()

    def _has_work(self) -> bool:
        return self._engine is not None and bool(self._arriving or self._engine.has_unfinished())

    def _answer(self, message: Any) -> None:
        from core_engine.disaggregation import messages

        answers: dict[type, Callable[[Any], Any]] = {
            messages.Load: self._load,
            messages.Open: self._open,
            messages.Close: self._close,
            messages.Compute: self._compute,
            messages.Resume: self._arriving.append,
            messages.Abort: self._abort,
            messages.Forget: lambda _: messages.Forgotten(self._engine.reset_prefix_cache()),
            messages.Tell: self._tell,
        }
        self._say(answers[type(message)](message))

    def _say(self, answer: Any) -> None:
        if answer is not None:
            self._control.send(answer)

    # -- model and engine ----------------------------------------------------------------------------------------

    def _load(self, message: Any) -> Any:
        import torch

        from core_engine.config import EngineConfig
        from core_engine.disaggregation.messages import Loaded
        from core_engine.model.loader import load_model

        take_cores(self._cpus)
        self._loaded = load_model(EngineConfig.from_settings(message.settings))
        torch.set_num_threads(message.threads)
        cpus = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()
        return Loaded(self._loaded.weights.num_bytes(), message.threads, cpus)

    def _open(self, message: Any) -> Any:
        from core_engine.clock import MonotonicClock
        from core_engine.config import EngineConfig
        from core_engine.disaggregation.area import KVArea
        from core_engine.disaggregation.messages import Opened
        from core_engine.engine import Engine

        self._engine = None
        config = EngineConfig.from_settings(message.settings)
        self._engine = Engine(config, self._loaded, clock=MonotonicClock(message.origin_ns))
        self._area = KVArea(self._memory, message.units, message.unit_bytes)
        return Opened(message.number, self._engine.derived(), self._engine.environment)

    def _close(self, _: Any) -> Any:
        from core_engine.disaggregation.messages import Closed

        self._engine = self._area = None
        self._leases.clear()
        self._scoring.clear()
        self._arriving.clear()
        return Closed()

    def _tell(self, _: Any) -> Any:
        from core_engine.disaggregation.messages import Told
        from core_engine.memory_readings import process_rss_bytes

        journal = () if self._engine is None else tuple(self._engine.scheduler.layout.journal)
        used = 0 if self._engine is None else self._engine.pool.num_used
        return Told(journal, used, process_rss_bytes())

    # -- requests ------------------------------------------------------------------------------------------------

    def _compute(self, message: Any) -> None:
        request = message.request
        if message.lease is not None:
            self._leases[request.id] = message.lease
        elif request.score_start is not None:
            self._scoring.add(request.id)
        self._engine.take_in(request)

    def _abort(self, message: Any) -> Any:
        from core_engine.disaggregation.messages import Dropped

        name = message.request_id
        self._arriving = deque(one for one in self._arriving if one.request.id != name)
        self._leases.pop(name, None)
        self._scoring.discard(name)
        if self._engine is not None and name in self._engine.sessions.live:
            self._engine.abort(name)
            self._engine.sessions.leave(name)
        return Dropped(name, message.sequence)

    def _step(self) -> None:
        from core_engine.disaggregation.messages import Stepped

        engine, before = self._engine, self._engine.trace.num_steps
        outputs = engine.step()
        if engine.trace.num_steps == before:
            return
        step = engine.trace.steps[-1]
        looked_up = tuple(self._looked_up(name) for name in step["admitted"])
        copied = tuple(self._copy_out(o.request_id) for o in outputs if not o.finished and o.request_id in self._leases)
        scored = tuple(self._scored())
        for output in outputs:
            if output.finished:
                self._leases.pop(output.request_id, None)
                engine.sessions.leave(output.request_id)
        engine.trace.steps.clear()  # the driver has it
        self._say(Stepped(step, tuple(outputs), looked_up, copied, scored))

    def _looked_up(self, name: str) -> tuple[str, int, int]:
        log = self._engine.sessions.of(name)[0].request.log
        return name, log.prefix_hit_tokens, log.prefix_asked_tokens

    def _scored(self) -> list[tuple[str, tuple[float, ...]]]:
        ended = [name for name in self._scoring if name in self._engine.sessions.ended]
        found = [(name, tuple(self._engine.sessions.of(name)[0].request.scores)) for name in ended]
        for name in ended:
            self._scoring.discard(name)
            self._engine.sessions.leave(name)
        return found

    # -- copying -------------------------------------------------------------------------------------------------

    def _copy_out(self, name: str) -> Any:
        """The KV of a request to its lease's units, then the request is let go of: the copy is the driver's now."""
        from core_engine.disaggregation.copying import copy_out
        from core_engine.disaggregation.messages import Copied

        engine, lease = self._engine, self._leases.pop(name)
        request = engine.sessions.of(name)[0].request
        blocks = request.blocks[: engine.pool.blocks_for(request.num_computed)]
        begin_ns = engine.clock.now_ns()
        num_bytes = copy_out(engine.executor, blocks, self._area, lease)
        end_ns = engine.clock.now_ns()
        engine.hand_over(request)
        engine.sessions.leave(name)
        return Copied(name, lease.sequence, request.num_computed, len(blocks), num_bytes, begin_ns, end_ns)

    def _copy_in(self) -> None:
        while self._arriving:
            answer = self._try(self._arriving[0])
            if answer is None:
                return
            self._arriving.popleft()
            self._say(answer)
            self._alive()

    def _try(self, message: Any) -> Any:
        """Resumed or Torn; None while there is no room."""
        from core_engine.disaggregation.area import TornTransfer
        from core_engine.disaggregation.copying import copy_in
        from core_engine.disaggregation.messages import Resumed, Torn

        engine, request, lease = self._engine, message.request, message.lease
        found = copied = begin_ns = 0

        def fill(first: int, blocks: tuple[int, ...]) -> None:
            nonlocal found, copied, begin_ns
            found, begin_ns = first, engine.clock.now_ns()
            copied = copy_in(engine.executor, blocks, self._area, lease, first)

        try:
            if not engine.resume(request, message.num_computed, fill):
                return None
        except TornTransfer as torn:
            return Torn(request.id, lease.sequence, str(torn))
        return Resumed(request.id, lease.sequence, begin_ns, engine.clock.now_ns(), copied, found)


def _failed(error: Exception) -> Any:
    from core_engine.parallel.messages import Failed
    from ledger.errors import InputError

    arguments = (error.field, error.value, error.accepted) if isinstance(error, InputError) else ()
    text = next(iter(str(error).splitlines()), "")
    return Failed(type(error).__name__, text, arguments, traceback.format_exc(), False)


def main() -> None:
    """Set up the guards, then serve."""
    parser = argparse.ArgumentParser(description="The prefill or the decode side of a disaggregated engine.")
    for name in ("side", "control", "lifeline", "progress", "memory", "driver", "by-signal"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--cpus", default="")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides what an interrupt ends
    end_with(options.driver, options.lifeline, by_signal=bool(options.by_signal))
    cpus = tuple(int(cpu) for cpu in options.cpus.split(",") if cpu)
    take_cores(cpus)
    from core_engine.parallel.progress import Progress

    progress = Progress(options.progress, 2)
    control = Connection(options.control)
    worker = Worker(control, options.memory, cpus, lambda: progress.step(options.side))
    try:
        code = worker.serve()
    except (BrokenPipeError, ConnectionResetError):  # the driver let go in the middle of an answer
        code = 0
    except Exception as error:
        code = BROKEN
        control.send(_failed(error))
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
