"""The settings of an evaluation as engines that are made when they are needed, and what they scored.

Owns batches, what is kept after each, and progress. Knows no statistics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, replace
from itertools import islice
from typing import Any

from core_engine.config import EngineConfig
from experiments.loadgen import Cancelled
from experiments.quality.choices import ItemScore, common_length, score_items
from experiments.quality.held import held_by
from experiments.quality.items import Item
from experiments.quality.kept import Kept, engine_key, key_of
from experiments.quality.texts import Text, WindowScores, cut, score_window
from experiments.rig import Rig
from ledger.errors import InputError
from ledger.kv_blocks import QUANTIZED

# A batch is kept when it is done: a few seconds of work here, so that is the most that a killed process loses.
BATCH_ITEMS = 32
BATCH_CHARACTERS = 12_000
# Only whole blocks are shared, and most prompts are shorter than a block of 16.
SHARED_TOKENS = 4
# Timing the steps of a candidate beside the baseline's, as an amount of text that takes about as long here.
SPEED_CHARACTERS = 40_000


class Progress:
    """What is done of what is to do, in characters of text, and whether to go on.

    publish gets an object like that of other jobs: phase, arm, note, fraction, eta_s, done, total.
    """

    def __init__(
        self,
        publish: Callable[[dict[str, Any]], None] = lambda _: None,
        should_cancel: Callable[[], bool] = lambda: False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._publish, self._should_cancel, self._now = publish, should_cancel, now
        self._state: dict[str, Any] = {"phase": "loading", "arm": 0, "note": None}
        self.total = 1
        self._done = 0
        self._computed = 0
        self._computed_s = 0.0

    def phase(self, phase: str, arm: int) -> None:
        """Enter a phase: loading, items, texts, speed or done."""
        self._state = {"phase": phase, "arm": arm, "note": None}
        self._tell()

    def note(self, text: str) -> None:
        """What the phase is at, as a layer that is being quantized; raises Cancelled when the user asked to stop."""
        self._state["note"] = text
        self._tell()
        self.check()

    def check(self) -> None:
        """Raise Cancelled when the user asked to stop."""
        if self._should_cancel():
            raise Cancelled

    def found(self, amount: int) -> None:
        """So much was known from before."""
        self._done += amount
        self._tell()

    def computed(self, amount: int, seconds: float) -> None:
        """So much was computed in that time."""
        self._computed += amount
        self._computed_s += seconds
        self.found(amount)

    def _tell(self) -> None:
        left = max(0, self.total - self._done)
        eta_s = round(self._computed_s / self._computed * left, 1) if self._computed else None
        fraction = 1.0 if self._state["phase"] == "done" else min(1.0, self._done / self.total)
        shape = {"repeat": 1, "repeats": 1, "snapshot": None, "series": None}
        self._publish(
            {**self._state, **shape, "fraction": fraction, "eta_s": eta_s, "done": self._done, "total": self.total}
        )

    def timer(self) -> float:
        """Seconds on the clock that `computed` is told of."""
        return self._now()


class Arm:
    """One configuration: its engine when something is to be computed, and the key of all its scores."""

    def __init__(self, place: int, config: EngineConfig, rig: Rig, kept: Kept, progress: Progress) -> None:
        self.place, self.config = place, config
        self.key = engine_key(config)
        self._rig, self._kept, self._progress = rig, kept, progress
        self._engine: Any = None

    @property
    def engine(self) -> Any:
        """Made at first use; the model is loaded then."""
        if self._engine is None:
            self._progress.phase("loading", self.place)
            self._engine = self._rig.engine(in_small_blocks(self.config))
        return self._engine

    @property
    def tokenizer(self) -> Any:
        """The model's."""
        return self._rig.tokenizer(self.config)

    def let_go(self) -> None:
        """Free the engine's KV pool."""
        self._engine = None

    @property
    def loaded(self) -> tuple[EngineConfig, Any]:
        """The configuration and its model, which is loaded if need be."""
        return self.config, self._rig.loaded(self.config)

    def held(self) -> dict[str, Any]:
        """What it holds; kept, so that a model that was scored before is not loaded to be weighed."""
        key = key_of("held", self.key)
        known = self._kept.scores([key])
        if key not in known:
            self._progress.check()
            known = {key: held_by(*self.loaded)}
            self._kept.keep_scores(known)
        found: dict[str, Any] = known[key]
        return found

    def item_scores(self, items: Sequence[Item]) -> list[ItemScore]:
        """Of all items, in order; a batch that is done is kept at once."""
        scores: list[ItemScore] = []
        work = iter(sizes(items))
        for batch in batches(items):
            keys = [key_of("item", self.key, astuple(item)) for item in batch]
            known = self._kept.scores(keys)
            missing = [place for place, key in enumerate(keys) if key not in known]
            amounts = list(islice(work, len(batch)))
            amount = sum(amounts[place] for place in missing)
            self._progress.found(sum(amounts) - amount)
            if missing:
                self._compute([batch[place] for place in missing], [keys[place] for place in missing], amount, known)
            scores += [ItemScore(tuple(known[key]), item.answer) for key, item in zip(keys, batch, strict=True)]
        return scores

    def _compute(self, items: list[Item], keys: list[str], amount: int, known: dict[str, Any]) -> None:
        engine = self.engine
        self._progress.phase("items", self.place)
        began_s = self._progress.timer()
        found = score_items(engine, items, self._progress.check)
        new = {key: list(score.logprobs) for key, score in zip(keys, found, strict=True)}
        self._kept.keep_scores(new)
        known.update(new)
        self._progress.computed(amount, self._progress.timer() - began_s)

    def text_scores(self, text: Text, window_tokens: int, candidate: Arm | None) -> list[WindowScores]:
        """Of every window of a text, under this arm and the candidate; each is kept when it is done."""
        scores = []
        windows = cut(self.tokenizer.encode(text.content), window_tokens)
        if not windows:
            raise InputError(f"text {text.name}", text.content[:40], "a text of at least two tokens")
        for ids in windows:
            key = key_of("window", self.key, candidate and candidate.key, ids)
            known = self._kept.scores([key])
            amount = len(text.content) // len(windows)
            if key in known:
                self._progress.found(amount)
                scores.append(WindowScores.from_json(known[key]))
                continue
            mine, other = self.engine, candidate and candidate.engine
            self._progress.phase("texts", (candidate or self).place)
            began_s = self._progress.timer()
            scores.append(score_window(mine, other, ids, self._progress.check))
            self._kept.keep_scores({key: scores[-1].to_json()})
            self._progress.computed(amount, self._progress.timer() - began_s)
        return scores


def in_small_blocks(config: EngineConfig) -> EngineConfig:
    """The configuration that scores: choices share more of their prompt in small blocks, which change no score.

    Quantized KV keeps its blocks: keys share a scale over the tokens of one.
    """
    if config.kv_dtype in QUANTIZED:
        return config
    return replace(config, block_size=min(config.block_size, SHARED_TOKENS))


def sizes(items: Sequence[Item]) -> list[int]:
    """Characters of each item beyond those that the item before it begins with: the measure of its work."""
    before = ["", *(item.prompt for item in items)]
    return [
        len(item.prompt) - common_length(item.prompt, former) + sum(map(len, item.choices))
        for item, former in zip(items, before, strict=False)
    ]


def batches(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Neighbouring items, at least one a batch."""
    batch: list[Item] = []
    filled = 0
    for item, size in zip(items, sizes(items), strict=True):
        if batch and (len(batch) == BATCH_ITEMS or filled + size > BATCH_CHARACTERS):
            yield batch
            batch, filled = [], 0
        batch.append(item)
        filled += size
    if batch:
        yield batch
