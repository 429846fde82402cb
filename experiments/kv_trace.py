"""Who held which KV block when, and KV by kind over time, as figures to draw. Used by the page.

Owns the replay of a record's kv_events and the sampling that keeps a picture small, however long the run: at most
`columns` moments and `rows` groups of blocks. Knows no charts.

Between two steps the state stays, except that what requests released meanwhile is cached or free.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

import numpy as np

from experiments.metrics.events import NS_PER_S, Record, Request
from experiments.metrics.journal import Event, journal
from experiments.metrics.kv import EXTERNAL, KINDS, bytes_per_token, has_kv, kinds_by_step
from experiments.metrics.slots import Running

COLUMNS, ROWS, POINTS = 160, 96, 240
MOST_IN_GROUP = 32
FREE, CACHED = -2, -1  # cell codes; a request's is 2 x its number, and 1 more once it only holds its slot
NOBODY = -1
NEVER = 2**63 - 1  # ns


def has_blocks(record: Record) -> bool:
    """Whether the run was recorded with the journal of its blocks; older runs were not."""
    return has_kv(record) and all("kv_events" in step for step in record["steps"])


def by_arrival(record: Record) -> list[Request]:
    """The requests in order of arrival: a request's number on the page is its place here."""
    return sorted(record["requests"], key=lambda request: request["arrival_ns"])


@dataclass
class BlockState:
    """Who holds each block. owner[block] is the number of the first holder, NOBODY without one."""

    num_blocks: int
    numbers: dict[str, int]
    owner: np.ndarray = field(init=False)
    published: np.ndarray = field(init=False)
    tables: dict[int, list[int]] = field(default_factory=dict)
    _holders: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.owner = np.full(self.num_blocks, NOBODY, dtype=np.int32)
        self.published = np.zeros(self.num_blocks, dtype=bool)

    def apply(self, events: Iterable[Event]) -> None:
        """Take in events in their order; ones of requests that the record leaves out are passed over."""
        for what, request_id, blocks in events:
            if what in ("publish", "evict"):
                self.published[blocks] = what == "publish"
                continue
            number = self.numbers.get(request_id)
            if number is None:
                continue
            if what == "drop":
                self._drop(number, blocks)
            else:
                self._take(number, blocks)

    def _take(self, number: int, blocks: Sequence[int]) -> None:
        self.tables.setdefault(number, []).extend(blocks)
        for block in blocks:
            self._holders.setdefault(block, []).append(number)
            if self.owner[block] == NOBODY:
                self.owner[block] = number

    def _drop(self, number: int, blocks: Sequence[int]) -> None:
        gone = set(blocks)
        left = [block for block in self.tables.get(number, []) if block not in gone]
        if left:
            self.tables[number] = left
        else:
            self.tables.pop(number, None)
        for block in blocks:
            holders = self._holders.get(block, [])
            if number in holders:
                holders.remove(number)
            self.owner[block] = holders[0] if holders else NOBODY


@dataclass(frozen=True)
class Pool:
    """The size of a run's KV pool, and its time axis in s."""

    num_blocks: int
    block_size: int
    bytes_per_token: float
    end_s: float


def pool_of(record: Record) -> Pool:
    """Needs `has_blocks`."""
    kv, size = record["steps"][0]["kv"], int(record["config"]["block_size"])
    tokens = sum(value for name, value in kv.items() if name != "largest_free_tokens")
    ends = [step["commit_end_ns"] for step in record["steps"]]
    return Pool(tokens // size, size, bytes_per_token(record), max(ends) / NS_PER_S)


@dataclass(frozen=True)
class Cell:
    """A rectangle of the block map: blocks [first, last], from start to end in s, all in one state.

    state is running, held or cached; request is the id of the owner, None for cached. Free blocks have no cell.
    """

    first: int
    last: int
    start_s: float
    end_s: float
    state: str
    request: str | None
    number: int


@dataclass(frozen=True)
class BlockGrid:
    """The block map over time: its cells, the blocks below `top` that it covers, and how many share a row."""

    cells: list[Cell]
    top: int
    group: int


def block_grid(record: Record, columns: int = COLUMNS, rows: int = ROWS) -> BlockGrid:
    """The block map over time. Neighbouring samples of one state are one cell.

    It ends at the highest block that was ever held. Of more than `rows` blocks, neighbours share a row, which shows the
    state most of them are in.
    """
    pool = pool_of(record)
    codes = np.stack(list(_codes_at(record, pool, _moments(pool.end_s, columns))), axis=1)  # [blocks, columns]
    touched = np.flatnonzero((codes != FREE).any(axis=1))
    top = int(touched[-1]) + 1 if len(touched) else pool.num_blocks
    group = -(-top // rows)
    grouped = np.stack([_grouped(codes[:top, place], rows) for place in range(columns)], axis=1)  # [rows, columns]
    ids = [request["id"] for request in by_arrival(record)]
    width_s = pool.end_s / columns
    cells = []
    for first, bottom, left, right, code in _rectangles(grouped):
        if code == FREE:
            continue
        number = NOBODY if code == CACHED else code // 2
        state = "cached" if code == CACHED else "held" if code % 2 else "running"
        last = min(top, bottom * group) - 1
        request = None if number == NOBODY else ids[number]
        cells.append(Cell(first * group, last, left * width_s, right * width_s, state, request, number))
    return BlockGrid(cells, top, group)


def _moments(end_s: float, columns: int) -> list[int]:
    """The middles of `columns` equal slices of [0, end_s], in ns."""
    return [round((place + 0.5) * end_s / columns * NS_PER_S) for place in range(columns)]


def _codes_at(record: Record, pool: Pool, moments: Sequence[int]) -> Iterable[np.ndarray]:
    """For each moment the code of every block."""
    ordered = by_arrival(record)
    state = BlockState(pool.num_blocks, {request["id"]: number for number, request in enumerate(ordered)})
    finish, release = _times(ordered, "finish_ns"), _times(ordered, "release_ns")
    timeline = _timeline(record)
    times, done = [time_ns for time_ns, _ in timeline], 0
    for moment in moments:
        upto = bisect_right(times, moment)
        for _, events in timeline[done:upto]:
            state.apply(events)
        done = upto
        # Blocks of a request that was aborted between two steps are journaled with the next one: its release says when.
        owned = (state.owner != NOBODY) & (release[state.owner] > moment)
        codes = np.where(owned, 2 * state.owner + (finish[state.owner] <= moment), FREE)
        codes[~owned & state.published] = CACHED
        yield codes


def _timeline(record: Record) -> list[tuple[int, list[Event]]]:
    """(time in ns, events of blocks): those of a step's plan when it began to execute, those of its commit after it."""
    timeline = []
    for step, (planned, committed) in zip(record["steps"], journal(record), strict=True):
        timeline += [(step["execute_start_ns"], planned), (step["execute_end_ns"], committed)]
    return timeline


def _times(ordered: Sequence[Request], key: str) -> np.ndarray:
    """Of each request, in ns; never for a missing one. One more entry at the end, which NOBODY points at."""
    return np.array([NEVER if request[key] is None else request[key] for request in ordered] + [NEVER])


def _grouped(codes: np.ndarray, rows: int) -> np.ndarray:
    """[num_blocks] -> [at most rows]: the most frequent code of each group of neighbours, of at most 32 of them."""
    group = -(-len(codes) // rows)
    if group == 1:
        return codes
    short = -len(codes) % group
    padded = np.concatenate([codes, np.full(short, codes[-1])]).reshape(-1, group)
    picked = padded[:, np.linspace(0, group - 1, min(group, MOST_IN_GROUP)).astype(int)]
    votes = (picked[:, :, None] == picked[:, None, :]).sum(axis=2)
    return picked[np.arange(len(picked)), votes.argmax(axis=1)]


def _rectangles(codes: np.ndarray) -> list[tuple[int, int, int, int, int]]:
    """(top, bottom, left, right, code) that tile the grid: runs along time, joined with equal runs of the next row."""
    open_runs: dict[tuple[int, int, int], int] = {}
    found = []
    for row in range(len(codes)):
        edges = [0, *(np.flatnonzero(np.diff(codes[row])) + 1).tolist(), codes.shape[1]]
        runs = {(left, right, int(codes[row, left])) for left, right in pairwise(edges)}
        for run in [run for run in open_runs if run not in runs]:
            found.append((open_runs.pop(run), row, *run))
        for run in runs:
            open_runs.setdefault(run, row)
    found += [(top, len(codes), *run) for run, top in open_runs.items()]
    return sorted(found)


def kinds_over_time(
    record: Record, points: int = POINTS, rows: Sequence[Mapping[str, int]] | None = None
) -> list[dict[str, float]]:
    """[{"t_s", each of KINDS and external in bytes}]: mean of the steps that began in each of `points` slices.

    A slice without one continues the state before; when nobody runs, only cached and free are left. rows:
    `kinds_by_step` where it was made before. Needs `has_blocks`.
    """
    pool, running = pool_of(record), Running(record)
    found = kinds_by_step(record) if rows is None else rows
    tokens = np.array([[row[kind] for kind in (*KINDS, EXTERNAL)] for row in found], dtype=float)
    starts = [step["execute_start_ns"] for step in record["steps"]]
    cached = _cached_after(record, pool)
    series = []
    for place, moment in enumerate(_moments(pool.end_s, points)):
        edges = (round(edge * pool.end_s / points * NS_PER_S) for edge in (place, place + 1))
        first, last = (bisect_left(starts, edge) for edge in edges)
        if last > first:
            values = tokens[first:last].mean(axis=0)
        elif first == 0 or running.at(moment) == 0:
            values = _empty(pool, cached[first - 1] if first else 0.0)
        else:
            values = tokens[first - 1]
        row = dict(zip((*KINDS, EXTERNAL), (values * pool.bytes_per_token).tolist(), strict=True))
        series.append({"t_s": moment / NS_PER_S, **row})
    return series


def _cached_after(record: Record, pool: Pool) -> list[float]:
    """For each step: tokens of the blocks that are cached once it has committed and all of its requests are gone."""
    published: set[int] = set()
    after = []
    for events in journal(record):
        for what, _, blocks in chain.from_iterable(events):
            if what == "publish":
                published.update(blocks)
            elif what == "evict":
                published.difference_update(blocks)
        after.append(float(len(published) * pool.block_size))
    return after


def _empty(pool: Pool, cached: float) -> np.ndarray:
    """Tokens by kind while nobody runs."""
    values = np.zeros(len(KINDS) + 1)
    values[KINDS.index("cached")] = cached
    values[KINDS.index("free")] = pool.num_blocks * pool.block_size - cached
    return values


def blocks_at(record: Record, place: int) -> dict[str, Any]:
    """The blocks while step `place` of the record executed, as the live block map takes them.

    {"total","used","free","cached","block_size","owners","fill","step"}: owners[block] is a request's number, or -1;
    fill[block] is its tokens with KV. ValueError for a step that is not there.
    """
    if not 0 <= place < len(record["steps"]):
        raise ValueError(f"step {place} of {len(record['steps'])}")
    pool, ordered = pool_of(record), by_arrival(record)
    numbers = {request["id"]: number for number, request in enumerate(ordered)}
    state = BlockState(pool.num_blocks, numbers)
    computed: dict[int, int] = {}
    released: list[Event] = []
    for step, (before, after) in zip(record["steps"][: place + 1], journal(record), strict=False):
        state.apply(released)
        state.apply(before)
        released = after
        for request_id, start, count, *_ in step["rows"]:
            if request_id in numbers:
                computed[numbers[request_id]] = start + count
    fill = [0] * pool.num_blocks
    for number, table in state.tables.items():
        for position, block in enumerate(table):
            tokens = computed.get(number, 0) - position * pool.block_size
            fill[block] = max(fill[block], min(pool.block_size, max(0, tokens)))
    used = int((state.owner != NOBODY).sum())
    cached = np.flatnonzero(state.published & (state.owner == NOBODY)).tolist()
    return {
        "total": pool.num_blocks,
        "used": used,
        "free": pool.num_blocks - used - len(cached),
        "cached": cached,
        "block_size": pool.block_size,
        "owners": state.owner.tolist(),
        "fill": fill,
        "step": record["steps"][place]["index"],
    }
