"""Replays a trace file as a workload: which rows, when, how long, with which texts; everything left out is counted.

Order of what happens: rows are read in the file's order up to the limit; those that can't be sent are dropped; times
are sorted, counted from the first and scaled; lengths are scaled, then clipped; then texts are made or tokenized.

- A trace with times keeps them, unless a rate stretches them or a number of clients makes a closed loop of it.
- A trace without times is sent by one client, one request after another, unless a rate (Poisson) or clients are given.
- hash_ids stay shared prefixes: one id is one block of the same tokens in every prompt that has it.
- Conversations are sessions: a turn is sent when the answer before it has ended.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from experiments.workloads.arrivals import poisson_arrivals_ns
from experiments.workloads.draw import TOO_LONG, streams
from experiments.workloads.file import identity
from experiments.workloads.options import Limits, Options, at_rate
from experiments.workloads.prompts import chat_ids, next_turn_ids
from experiments.workloads.spec import MOST_REQUESTS
from experiments.workloads.text import TokenizerLike, block_of_text, cut, exact_prompt
from experiments.workloads.trace_formats import FORMATS, Row
from experiments.workloads.workload import Made, Workload, WorkloadRequest
from ledger.errors import CannotRunError, InputError

BLOCK_TOKENS = 512  # of a Mooncake hash
ANSWER_TOKENS = 256  # limit where the file has no answers and the user gives none


@dataclass
class _Rows:
    """What is used of a file."""

    used: list[Row] = field(default_factory=list)
    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)


def replay(path: Path, form: str, *, seed: int, tokenizer: TokenizerLike, options: Options) -> Workload:
    """The workload of a trace in the format `form`. InputError names the line that is wrong, or the option."""
    rows = _read(path, form, options.num_requests or MOST_REQUESTS)
    if not rows.used:
        raise InputError("workload", str(path), f"a trace with at least one request that can be sent ({form})")
    rngs = streams(seed, path.name)
    timed = rows.used[0].at_ns is not None
    if timed:
        rows.used.sort(key=lambda row: row.at_ns or 0)  # stable: rows of the same time keep their order
    limits = Limits(options)
    builder = _Builder(tokenizer, limits, rngs["text"], seed, path.name)
    requests = builder.requests(rows.used)
    clients = options.concurrency or (None if timed or options.rate_rps else 1)
    if clients is None:
        requests = _with_arrivals(requests, rows.used if timed else None, options, rngs["arrival"], path)
    if builder.dropped:
        rows.dropped[TOO_LONG] = builder.dropped
    return Workload(
        name=path.name,
        seed=seed,
        requests=tuple(requests),
        rate_rps=options.rate_rps,
        arrivals="closed" if clients else "trace" if timed else "poisson",
        ignore_eos=form != "questions",
        concurrency=clients,
        made=Made(
            clipped=limits.clipped,
            dropped=rows.dropped,
            time_scale=options.time_scale,
            length_scale=options.length_scale,
            trace={**_identity(path, form, rows, len(requests)), **builder.repeated()},
            notes=tuple(filter(None, [FORMATS[form].note])),
        ),
    )


def _read(path: Path, form: str, most: int) -> _Rows:
    """The first `most` rows that can be sent; what is behind them is not looked at."""
    rows = _Rows()
    broken: set[str] = set()
    for row in FORMATS[form].read(path):
        rows.read += 1
        reason = row.dropped or ("turns behind one that was dropped" if row.conversation in broken else None)
        if reason is None:
            rows.used.append(row)
        else:
            rows.dropped[reason] = rows.dropped.get(reason, 0) + 1
            if row.conversation is not None:
                broken.add(row.conversation)
        if len(rows.used) == most:
            break
    return rows


def _identity(path: Path, form: str, rows: _Rows, used: int) -> dict[str, Any]:
    """What makes the replay repeatable. rows_read counts what was looked at; more may stand behind it in the file."""
    return {
        "format": form,
        **identity(path),
        "rows": FORMATS[form].what,
        "rows_read": rows.read,
        "rows_used": used,
    }


def _with_arrivals(
    requests: Sequence[WorkloadRequest],
    timed: Sequence[Row] | None,
    options: Options,
    rng: np.random.Generator,
    path: Path,
) -> list[WorkloadRequest]:
    """The requests with their times; later turns get that of the first, which is the earliest they could come."""
    starts = [number for number, request in enumerate(requests) if request.parent is None]
    if timed is None:
        times = poisson_arrivals_ns(options.rate_rps or 0, len(starts), rng)
    else:
        times = [(row.at_ns or 0) - (timed[0].at_ns or 0) for row in timed]
        if options.rate_rps is None:
            times = options.scaled_ns(times)
        elif len(times) > 1 and times[-1] == times[0]:
            raise InputError("rate_rps", options.rate_rps, f"no rate: all requests taken of {path.name} come at once")
        elif len(times) > 1:
            times = at_rate(times, options.rate_rps)
    made: list[WorkloadRequest] = []
    left = iter(times)
    for request in requests:
        at_ns = next(left) if request.parent is None else made[request.parent].arrival_ns
        made.append(replace(request, arrival_ns=at_ns))
    return made


class _Builder:
    """Makes the requests of rows: lengths, texts, sessions. Times are put in later."""

    def __init__(
        self, tokenizer: TokenizerLike, limits: Limits, rng: np.random.Generator, seed: int, name: str
    ) -> None:
        self.dropped = 0
        self._tokenizer = tokenizer
        self._limits = limits
        self._rng = rng
        self._blocks = _Blocks(tokenizer, limits.options.scaled_tokens(BLOCK_TOKENS), seed, name)
        self._template = True
        self._last: dict[str, int | None] = {}  # conversation -> its last turn; None once a turn was dropped
        self._sessions: dict[str, int] = {}

    def requests(self, rows: Sequence[Row]) -> list[WorkloadRequest]:
        """The requests of rows, in their order; turns that outgrow the limit are left out."""
        made: list[WorkloadRequest] = []
        for row in rows:
            parent = None if row.conversation is None else self._last.get(row.conversation, -1)
            if row.conversation is not None and parent is None:
                self.dropped += 1
                continue
            before = made[parent] if parent is not None and parent >= 0 else None
            request = self._request(row, before, parent if before else None)
            if request is None:
                self.dropped += 1
                self._last[str(row.conversation)] = None
                continue
            made.append(request)
            if row.conversation is not None:
                self._last[row.conversation] = len(made) - 1
        return made

    def repeated(self) -> dict[str, float]:
        """repeated_prompt_share, of a trace with hashed blocks: the share of all prompt tokens that stand in leading
        blocks an earlier prompt had too, which is what a prefix cache that forgets nothing would find."""
        return {"repeated_prompt_share": self._blocks.repeated / self._blocks.sent} if self._blocks.sent else {}

    def _request(self, row: Row, before: WorkloadRequest | None, parent: int | None) -> WorkloadRequest | None:
        output = self._limits.output(self._answer_tokens(row))
        ids = self._prompt(row, later=before is not None)
        history = 0 if before is None else before.prompt_tokens + before.output_tokens
        most = self._limits.options.max_prompt_tokens
        if before is not None and most is not None and history + len(ids) > most:
            return None
        session = None
        if row.conversation is not None:
            session = self._sessions.setdefault(row.conversation, len(self._sessions))
        return WorkloadRequest(
            prompt_token_ids=ids,
            max_tokens=output,
            output_tokens=output,
            arrival_ns=0,
            session=session,
            parent=parent,
            history_tokens=history,
            prefix_group=row.hash_ids[0] if row.hash_ids else None,
        )

    def _answer_tokens(self, row: Row) -> int:
        if row.output_tokens is not None:
            return row.output_tokens
        if row.answer is not None:
            return max(1, len(self._tokenizer.encode(row.answer)))
        # A limit, not a length: the scale of lengths is not for it.
        return max(1, round(ANSWER_TOKENS / self._limits.options.length_scale))

    def _prompt(self, row: Row, *, later: bool) -> tuple[int, ...]:
        if row.prompt is not None:
            return self._told(row.prompt, later=later)
        length = self._limits.prompt(row.prompt_tokens or 1)
        if row.hash_ids:
            return self._blocks.prompt(row.hash_ids, length)
        return (block_of_text if later else exact_prompt)(self._tokenizer, length, self._rng)

    def _told(self, text: str, *, later: bool) -> tuple[int, ...]:
        """A real text through the chat template where the model has one. It is cut to its scaled and clipped length."""
        ids = self._tokenizer.encode(text)
        length = self._limits.prompt(max(1, len(ids)))
        if length < len(ids):
            text = self._tokenizer.decode(ids[:length])
        if self._template:
            try:
                if later:
                    return next_turn_ids(self._tokenizer, text)
                return chat_ids(self._tokenizer, [{"role": "user", "content": text}])
            except CannotRunError:  # no template
                self._template = False
        return tuple(self._tokenizer.encode(f"\n\n{text}\n\n" if later else f"{text}\n\n"))


class _Blocks:
    """Tokens of hashed prompt blocks: the same id gives the same tokens, whatever else is replayed."""

    def __init__(self, tokenizer: TokenizerLike, block_tokens: int, seed: int, name: str) -> None:
        self._tokenizer = tokenizer
        self._block_tokens = block_tokens
        self._root = [seed, zlib.crc32(name.encode())]
        self._made: dict[int, tuple[int, ...]] = {}
        self._seen: set[int] = set()
        self.sent = self.repeated = 0  # tokens of prompts, and those of them in leading blocks that were sent before

    def prompt(self, hash_ids: Sequence[int], num_tokens: int) -> tuple[int, ...]:
        """The blocks one after another, cut at `num_tokens`; without enough of them, text that is nobody else's."""
        self._count(hash_ids, num_tokens)
        full, rest = divmod(num_tokens, self._block_tokens)
        ids = [token for hash_id in islice(hash_ids, full) for token in self._block(hash_id)]
        missing = num_tokens - len(ids)
        if missing:
            last = hash_ids[full] if full < len(hash_ids) else None
            if last is not None and rest:
                ids += cut(self._tokenizer, list(self._block(last)), rest)
            else:
                ids += self._text(missing, [*hash_ids, num_tokens])
        return tuple(ids)

    def _count(self, hash_ids: Sequence[int], num_tokens: int) -> None:
        self.sent += num_tokens
        known = next((place for place, hash_id in enumerate(hash_ids) if hash_id not in self._seen), len(hash_ids))
        self.repeated += min(known * self._block_tokens, num_tokens)
        self._seen.update(hash_ids)

    def _block(self, hash_id: int) -> tuple[int, ...]:
        if hash_id not in self._made:
            self._made[hash_id] = self._text(self._block_tokens, [hash_id])
        return self._made[hash_id]

    def _text(self, num_tokens: int, key: Sequence[int]) -> tuple[int, ...]:
        rng = np.random.default_rng(np.random.SeedSequence([*self._root, *key]))
        return block_of_text(self._tokenizer, num_tokens, rng)
