"""The ranks' processes as their driver sees them: started, asked, watched, ended.

A rank that ends, fails or stands still ends all of them, with one error that names it. Nothing of them outlives the
driver (parallel/guard.py), and nothing they share has a name that would have to be cleaned up.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from core_engine.parallel.child import end_children, how_it_ended, set_patience, start_child
from core_engine.parallel.messages import Failed, Stepped
from core_engine.parallel.progress import Progress, make_progress
from core_engine.parallel.rank import BROKEN
from ledger.errors import CannotRunError, InputError

POLL_S = 0.2
STANDING_STILL_S = 120.0  # without a layer computed by any rank
STARTING_S = 900.0  # the same until their first answer: on a busy machine imports alone take minutes
SETTLE_S = 1.0  # for the true cause of a failure to show, when another rank's complaint came first


class RankLost(CannotRunError):
    """A rank ended, failed or stood still; none of them runs any more."""


class RankProcesses:
    """So many processes that answer messages (parallel/messages.py). cpus: for each rank the CPUs it keeps to."""

    def __init__(
        self,
        ranks: int,
        cpus: Sequence[tuple[int, ...]],
        threads: int,
        *,
        name: str = "",
        standing_still_s: float = STANDING_STILL_S,
        module: str = "core_engine.parallel.rank",
    ) -> None:
        """name: the settings that asked for them, for errors; module: what a rank runs. CannotRunError where processes
        can't be started so."""
        if os.name != "posix":
            raise CannotRunError(f"{name}: ranks need a POSIX system, as Linux or macOS; use 1")
        self.ranks, self._name, self._standing_still_s, self._module = ranks, name, standing_still_s, module
        self._lost: RankLost | None = None
        self._begun = False
        progress = make_progress(ranks)
        lifeline, self._held = os.pipe()
        self._controls: list[Connection] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        # Registered first: what is started below must not stay when one of them can't be.
        self._finish = weakref.finalize(self, end_children, self._processes, self._controls, self._held)
        try:
            for rank in range(ranks):
                self._start(rank, cpus[rank], threads, lifeline, progress)
            self._progress = Progress(progress, ranks)
        except OSError as error:
            self.close()
            raise CannotRunError(f"{name}: a rank can't be started: {error.strerror or error}") from None
        finally:
            os.close(lifeline)
            os.close(progress)

    def _start(self, rank: int, cpus: tuple[int, ...], threads: int, lifeline: int, progress: int) -> None:
        options = {
            "rank": rank,
            "ranks": self.ranks,
            "lifeline": lifeline,
            "progress": progress,
            "cpus": ",".join(map(str, cpus)),
        }
        process, control = start_child(self._module, options, threads, (lifeline, progress))
        set_patience(control, self._standing_still_s)
        self._controls.append(control)
        self._processes.append(process)

    @property
    def pids(self) -> list[int]:
        """The ranks' process ids."""
        return [process.pid for process in self._processes]

    def ask(self, message: Any) -> list[Any]:
        """Give all ranks the same message and return their answers in the order of ranks.

        Behind a Stepped with logits its bytes follow: then the answer is a pair. InputError and MemoryError of a rank
        are passed on; RankLost when one is gone, and ever after.
        """
        if self._lost is not None:
            raise self._lost
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        answers: dict[int, Any] = {}
        try:
            for rank, control in enumerate(self._controls):
                try:
                    control.send_bytes(data)
                except BlockingIOError:  # it reads nothing, and the message is more than the socket holds
                    self._lose(self._stood_still(rank, self._standing_still_s))
                except (BrokenPipeError, ConnectionResetError):
                    pass  # its end is seen when its answer is awaited
            self._await(answers, self._standing_still_s if self._begun else STARTING_S)
            self._begun = True
        except BaseException:
            # An interrupt in the middle leaves answers unread: the next ones would be taken for others'.
            if len(answers) < self.ranks:
                self.close()
                self._lost = self._lost or RankLost(f"{self._name}: a step was interrupted and its ranks were ended")
            raise
        failed = [answer for answer in answers.values() if isinstance(answer, Failed)]
        if failed:
            raise error_of(failed[0], "a rank")
        return [answers[rank] for rank in range(self.ranks)]

    def _await(self, answers: dict[int, Any], patience_s: float) -> None:
        numbers = {control: rank for rank, control in enumerate(self._controls)}
        counts, moved_s = self._progress.counts(), time.monotonic()
        while len(answers) < self.ranks:
            waiting = [control for control, rank in numbers.items() if rank not in answers]
            ready = wait(waiting, POLL_S)
            for control in ready:
                assert isinstance(control, Connection)
                rank = numbers[control]
                try:
                    answers[rank] = answer = _answer(control)
                except BlockingIOError:  # it stopped in the middle of an answer
                    self._lose(self._stood_still(rank, self._standing_still_s))
                except (EOFError, OSError):
                    self._lose(self._who_ended(rank, answers))
                if isinstance(answer, Failed) and self._is_fatal(answer, rank):
                    self._lose(self._who_ended(rank, answers))
            now = self._progress.counts()
            if ready or now != counts:
                counts, moved_s = now, time.monotonic()
            elif time.monotonic() - moved_s > patience_s:
                slow = min((rank for rank in range(self.ranks) if rank not in answers), key=lambda rank: now[rank])
                self._lose(self._stood_still(slow, patience_s))

    def _stood_still(self, rank: int, patience_s: float) -> str:
        return f"rank {rank} of {self.ranks} stood still for {patience_s:g} s"

    def _is_fatal(self, answer: Failed, rank: int) -> bool:
        """Whether the rank ended itself behind this answer. A complaint about the user's input is told as such."""
        if answer.arguments or answer.kind == CannotRunError.__name__:
            return False
        with suppress(subprocess.TimeoutExpired):
            return self._processes[rank].wait(SETTLE_S) == BROKEN
        return False

    def _who_ended(self, first: int, answers: dict[int, Any]) -> str:
        """What happened, of the rank that began it: one that ended by itself before one that missed it."""
        until_s = time.monotonic() + SETTLE_S
        while time.monotonic() < until_s and not any(map(self._ended_unasked, range(self.ranks))):
            time.sleep(0.02)
        for rank in range(self.ranks):
            if self._ended_unasked(rank):
                return f"rank {rank} of {self.ranks} {how_it_ended(self._processes[rank].returncode)}"
        for control, rank in ((control, rank) for rank, control in enumerate(self._controls) if rank not in answers):
            with suppress(EOFError, OSError):
                if control.poll():
                    answers[rank] = _answer(control)
        failed = {rank: answer for rank, answer in answers.items() if isinstance(answer, Failed)}
        own = [rank for rank, answer in failed.items() if not answer.in_collective]
        rank = own[0] if own else first
        if rank not in failed:
            return f"rank {rank} of {self.ranks} closed its connection"
        print(failed[rank].traceback, file=sys.stderr, flush=True)
        return f"rank {rank} of {self.ranks} failed: {failed[rank].kind}: {failed[rank].text}"

    def _ended_unasked(self, rank: int) -> bool:
        return self._processes[rank].poll() not in (None, BROKEN)

    def _lose(self, what: str) -> None:
        self.close()
        self._lost = RankLost(f"{self._name}: {what}; all ranks were ended, start again")
        raise self._lost

    def close(self) -> None:
        """End all ranks; may be called again."""
        self._finish()


def _answer(control: Connection) -> Any:
    """A rank's next answer, with the bytes of logits that follow it. BlockingIOError when it stops in the middle."""
    answer = control.recv()
    if isinstance(answer, Stepped) and answer.logits_shape is not None:
        return answer, control.recv_bytes()
    return answer


def error_of(failed: Failed, who: str) -> Exception:
    """The error that a process reported, for this process to raise. who: the process, in words."""
    if failed.arguments:
        return InputError(*failed.arguments)
    if failed.kind == CannotRunError.__name__:
        return CannotRunError(failed.text)
    if failed.kind == MemoryError.__name__ or "memory" in failed.text.lower():
        return MemoryError(failed.text)
    return RuntimeError(f"{who} failed: {failed.kind}: {failed.text}")
