"""Communicator: a rank's collectives, counted and timed, over a transport. gloo between CPUs, NCCL between GPUs.

Bytes are what is handed over, whatever a library makes of them on its links. Injected into the decoder's shard.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as dist

from ledger.parallel import RankPart, Traffic

# The driver watches the ranks and ends them; the library's own patience must not be the shorter one.
PATIENCE = timedelta(hours=12)


class CollectiveError(RuntimeError):
    """A collective failed, most often because another rank is gone."""


class Transport(Protocol):
    """Moves tensors between the ranks of a stage, and between peers of neighbouring stages."""

    def all_reduce(self, partial: torch.Tensor) -> None:
        """Make it the sum over the stage's ranks, in place, done when it returns."""
        ...

    def send(self, hidden: torch.Tensor) -> None:
        """Give it to the peer in the next stage; its memory is in use until `flush`."""
        ...

    def receive(self, hidden: torch.Tensor) -> None:
        """Fill it from the peer in the stage before, done when it returns."""
        ...

    def flush(self) -> None:
        """Wait until all that was sent has left."""
        ...


class TorchTransport:
    """torch.distributed's collectives. Every rank makes it at the same time, behind `join`."""

    def __init__(self, part: RankPart) -> None:
        rank = part.stage * part.tp + part.tp_rank
        self._before, self._after = rank - part.tp, rank + part.tp
        self._group = None
        if part.tp > 1:
            groups = [dist.new_group(list(range(s * part.tp, (s + 1) * part.tp))) for s in range(part.pp)]
            self._group = groups[part.stage]
        self._on_the_way: list[tuple[dist.Work, torch.Tensor]] = []

    def all_reduce(self, partial: torch.Tensor) -> None:
        """Make it the sum over the stage's ranks."""
        with _named("all-reduce"):
            dist.all_reduce(partial, group=self._group)
        _finish(partial)

    def send(self, hidden: torch.Tensor) -> None:
        """Give it to the next stage without waiting for it: a send ends when the other side has begun to receive."""
        with _named("send"):
            work = dist.isend(hidden, self._after)
        assert work is not None
        self._on_the_way.append((work, hidden))

    def receive(self, hidden: torch.Tensor) -> None:
        """Fill it from the stage before."""
        with _named("receive"):
            dist.recv(hidden, self._before)
        _finish(hidden)

    def flush(self) -> None:
        """Wait until all that was sent has left."""
        with _named("send"):
            for work, _ in self._on_the_way:
                work.wait()
        self._on_the_way.clear()


class Communicator:
    """A rank's way to the others: those of its stage share every layer, those around it hold other layers."""

    def __init__(self, part: RankPart, transport: Transport, alive: Callable[[], None] = lambda: None) -> None:
        """alive is called as collectives are passed."""
        self.part = part
        self._transport, self._alive = transport, alive
        self.restart()

    def restart(self) -> None:
        """Count and time from nothing."""
        self.traffic = Traffic()
        self.all_reduce_ns = self.send_ns = self.receive_ns = 0

    def all_reduce(self, partial: torch.Tensor) -> torch.Tensor:
        """The sum over the stage's ranks, in place; of a rank alone, what it is."""
        if self.part.tp == 1:
            return partial
        began = time.monotonic_ns()
        self._transport.all_reduce(partial)
        self.all_reduce_ns += time.monotonic_ns() - began
        self.traffic += Traffic(all_reduces=1, all_reduce_bytes=partial.nbytes)
        self._alive()
        return partial

    def send(self, hidden: torch.Tensor) -> None:
        """Give the next stage what it begins with; goes on while it is on its way."""
        began = time.monotonic_ns()
        self._transport.send(hidden)
        self.send_ns += time.monotonic_ns() - began
        self.traffic += Traffic(sends=1, send_bytes=hidden.nbytes)
        self._alive()

    def receive(self, hidden: torch.Tensor) -> torch.Tensor:
        """Wait for what the stage before gives, into `hidden`."""
        began = time.monotonic_ns()
        self._transport.receive(hidden)
        self.receive_ns += time.monotonic_ns() - began
        self._alive()
        return hidden

    def flush(self) -> None:
        """Wait until all that was sent has left."""
        began = time.monotonic_ns()
        self._transport.flush()
        self.send_ns += time.monotonic_ns() - began

    def hand_logits(self, logits: torch.Tensor) -> None:
        """Count the logits that go to who samples."""
        self.traffic += Traffic(logits_bytes=logits.nbytes)


def join(store: str, backend: str, rank: int, ranks: int) -> None:
    """Meet all other ranks through a file on this machine."""
    with _named("start"):
        dist.init_process_group(
            backend, store=dist.FileStore(store, ranks), rank=rank, world_size=ranks, timeout=PATIENCE
        )


@contextmanager
def _named(what: str) -> Iterator[None]:
    """The library's errors as CollectiveError."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise CollectiveError(f"{what}: {line}") from None


def _finish(tensor: torch.Tensor) -> None:
    """A device returns from collectives at once; their time is only known when it is done."""
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)
