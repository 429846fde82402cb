"""What a driver says to its ranks, and what they answer. Every rank gets the same message, with nothing of its own.

A step's rows come in the plan's order and are computed in it, so that no rank can order them otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core_engine.kernels.options import StepOptions
from core_engine.kv.format import KVFormat
from core_engine.plan import Row
from core_engine.variables import Value
from ledger.parallel import Traffic


@dataclass(frozen=True)
class Load:
    """Meet the other ranks at `store`, a file, and read the own part of the weights of a configuration."""

    settings: Mapping[str, Value]
    store: str
    backend: str
    threads: int


@dataclass(frozen=True)
class Loaded:
    """weights_bytes: of the tensors held; runtime_bytes: resident before they were read."""

    weights_bytes: int
    runtime_bytes: int | None
    threads: int
    cpus: tuple[int, ...]


@dataclass(frozen=True)
class Open:
    """A new, empty KV cache of so many blocks, instead of the one before."""

    form: KVFormat
    num_blocks: int
    block_size: int
    num_slots: int
    options: StepOptions


@dataclass(frozen=True)
class Opened:
    """Bytes of the cache: of the pool's blocks, of running requests' open ones, of the padding block."""

    pool_bytes: int
    tail_bytes: int
    padding_bytes: int


@dataclass(frozen=True)
class Step:
    """Compute rows in `micro_batches` parts. wanted: flat places of the tokens whose logits are wanted."""

    rows: tuple[Row, ...]
    wanted: tuple[int, ...]
    micro_batches: int


@dataclass(frozen=True)
class Stepped:
    """When a rank began and ended (ns of the machine's monotonic clock), what it waited for, and what it handed over.

    all_reduce_ns and send_ns are in collectives, waiting for slower ranks included; receive_ns is waiting for the stage
    before. logits_shape: of the float32 bytes that follow this answer; None when none do.
    """

    begin_ns: int
    end_ns: int
    all_reduce_ns: int
    send_ns: int
    receive_ns: int
    parts: int
    traffic: Traffic
    logits_shape: tuple[int, int] | None


@dataclass(frozen=True)
class Measure:
    """Compute dummy steps and say how many bytes of tensors lived together at most; the cache is emptied behind it."""

    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Failed:
    """A command that raised. `arguments` are those of an InputError; in_collective: another rank may be the cause."""

    kind: str
    text: str
    arguments: tuple[Any, ...]
    traceback: str
    in_collective: bool


def bare_rows(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """The rows with what a rank needs of them: no sampling, whose outcome is the driver's alone."""
    return tuple(
        Row("", row.start, row.tokens, row.blocks, row.is_prefill, slot=row.slot, num_drafts=row.num_drafts)
        for row in rows
    )
