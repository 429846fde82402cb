"""Multiple choice by log-likelihood through the engine's own KV path: every choice of many items at once.

Owns how an item becomes scoring requests. The first choice of an item goes ahead; the others follow when it is
computed, so that they find its prompt in the prefix cache. So does an item whose prompt begins as one that is being
computed: questions about one passage. A choice of one token needs no request of its own: it is read from the
distribution that the first choice's request saw at that place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol

from experiments.quality.items import Item
from ledger.errors import InputError

ALIKE = 64  # tokens of a common beginning that are worth a wait
LOOK_AHEAD = 4  # times as many items as run together may be passed over for that


class Encodes(Protocol):
    """What is needed of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""


@dataclass(frozen=True)
class EncodedItem:
    """Token ids of prompt + choice, a list for each choice; those from `start` on are scored.

    `start` is where the encodings of prompt and choices begin to differ: where a choice changes how the prompt's end
    is cut into tokens, that end is scored with it, so that every choice's probability is of the same text.
    """

    ids: tuple[tuple[int, ...], ...]
    start: int


@dataclass(frozen=True)
class ItemScore:
    """Natural log-probability of each choice, summed over its tokens."""

    logprobs: tuple[float, ...]
    answer: int

    @property
    def correct(self) -> bool:
        """Whether the right choice is likelier than every other; a tie is not."""
        right = self.logprobs[self.answer]
        return all(right > other for place, other in enumerate(self.logprobs) if place != self.answer)

    @property
    def logprob(self) -> float:
        """Of the right choice."""
        return self.logprobs[self.answer]


def encode_item(item: Item, tokenizer: Encodes) -> EncodedItem:
    """The requests of an item; InputError when two choices are the same tokens or the prompt has none."""
    prompt = tokenizer.encode(item.prompt)
    ids = [tuple(tokenizer.encode(item.prompt + choice)) for choice in item.choices]
    start = min(common_length(prompt, whole) for whole in ids)
    if start < 1 or any(len(whole) <= start for whole in ids):
        raise InputError(f"item {item.id}", item.prompt[:40], "a prompt and choices of at least one token each")
    return EncodedItem(tuple(ids), start)


def as_computed(item: Item, engine: Any) -> Item:
    """The item with the prompt that the engine makes of its own: a shorter one with prompt_compression=on."""
    ids = engine.tokenizer.encode(item.prompt)
    asked = engine.prompt_of(ids)
    return item if len(asked) == len(ids) else replace(item, prompt=engine.tokenizer.decode(asked))


def common_length(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Elements in which two sequences begin alike."""
    return next(
        (place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )


@dataclass(eq=False)
class _Job:
    """An item on its way: which choices still wait, and what is known of the others."""

    item: Item
    encoded: EncodedItem
    found: dict[int, float] = field(default_factory=dict)
    pending: set[int] = field(default_factory=set)

    def see_first(self, place: int, rows: Any) -> None:
        """Read one-token choices from the distribution at `start`."""
        if place == self.encoded.start:
            for choice, ids in enumerate(self.encoded.ids):
                if len(ids) == place + 1:
                    self.found[choice] = float(rows[0, ids[place]])


def score_items(engine: Any, items: Sequence[Item], check: Callable[[], None] = lambda: None) -> list[ItemScore]:
    """Scores of all items, in their order. `check` is called between steps and may raise, which drops what is left.

    InputError when an item can never fit the model or the KV pool.
    """
    jobs = [_Job(item, encode_item(as_computed(item, engine), engine.tokenizer)) for item in items]
    # As many items at once as could fill the engine; the others wait here, where a choice of theirs can't come first.
    waiting, running, done = deque(jobs), dict[str, tuple[_Job, int]](), list[_Job]()
    try:
        while waiting or running:
            _send_firsts(engine, waiting, running, done)
            check()
            engine.step()
            for request_id, (job, choice) in list(running.items()):
                scores = engine.take_scores(request_id)
                if scores is not None:
                    del running[request_id]
                    done += [job] if len(job.pending) == 1 else []
                    job.found[choice] = sum(scores)
                    _send(engine, job, running, first=False)
    finally:
        for request_id in running:
            engine.abort(request_id)
    return [
        ItemScore(tuple(job.found[choice] for choice in range(len(job.encoded.ids))), job.item.answer) for job in jobs
    ]


def _send_firsts(engine: Any, waiting: deque[_Job], running: dict[str, tuple[_Job, int]], done: list[_Job]) -> None:
    """Queue the first requests of waiting items, but for those whose beginning somebody is computing right now."""
    shares = engine.config.prefix_cache == "on"
    ahead = [job for job, _ in running.values() if not job.found]
    for job in list(islice(waiting, LOOK_AHEAD * engine.config.max_num_seqs)):
        if len(running) >= 2 * engine.config.max_num_seqs:
            return
        if shares and _any_alike(job, ahead) and not _any_alike(job, done):
            continue
        waiting.remove(job)
        ahead.append(job)
        _send(engine, job, running, first=True)


def _any_alike(job: _Job, others: Sequence[_Job]) -> bool:
    return any(common_length(job.encoded.ids[0], other.encoded.ids[0]) >= ALIKE for other in others)


def _send(engine: Any, job: _Job, running: dict[str, tuple[_Job, int]], *, first: bool) -> None:
    """Queue an item's first request, or all that are left once that one has ended."""
    choices = range(len(job.encoded.ids))
    # The longest first: what it computes covers the most of the others.
    wanted = (
        [max(choices, key=lambda choice: len(job.encoded.ids[choice]))]
        if first
        else [choice for choice in choices if choice not in job.found and choice not in job.pending]
    )
    for choice in wanted:
        watch = job.see_first if first else None
        request_id = engine.add_score(job.encoded.ids[choice], job.encoded.start, watch=watch)
        job.pending.add(choice)
        running[request_id] = (job, choice)
