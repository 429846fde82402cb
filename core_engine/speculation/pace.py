"""Whether drafts pay, and how many: from the time that steps of this engine take with and without them.

At each batch size (in powers of two) the time of a token is kept for both ways, and the faster one is taken; the other
gets a few steps now and then, so that the choice follows the load. A step that is a change from the one before, or that
computes prompts as well, is not counted. Knows no requests and no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MEMORY = 0.9  # what a step leaves of the weight of those before it: the last ten count
LEAST_STEPS = 3  # of either way before they are compared
PERIOD, PROBES = 64, 4  # of so many steps the last few go the other way
CERTAIN = 0.99  # running acceptance is kept below, or the model would divide by 0


@dataclass
class _Way:
    """Decayed sums over steps of one kind."""

    steps: int = 0
    weight: float = 0.0
    seconds: float = 0.0
    tokens: float = 0.0
    drafts: float = 0.0  # per row

    def add(self, seconds: float, tokens: int, drafts: float) -> None:
        self.steps += 1
        for name, value in (("weight", 1.0), ("seconds", seconds), ("tokens", tokens), ("drafts", drafts)):
            setattr(self, name, MEMORY * getattr(self, name) + value)

    @property
    def seconds_per_token(self) -> float:
        return self.seconds / self.tokens

    @property
    def is_known(self) -> bool:
        return self.steps >= LEAST_STEPS


@dataclass
class _Size:
    """What is known of one batch size."""

    drafted: _Way = field(default_factory=_Way)
    plain: _Way = field(default_factory=_Way)
    turns: int = 0
    turns_off: int = 0

    def pays(self) -> bool | None:
        """None while it is not known."""
        if not (self.drafted.is_known and self.plain.is_known):
            return None
        return self.drafted.seconds_per_token < self.plain.seconds_per_token


class Pace:
    """Asked before each step, told after it."""

    def __init__(self) -> None:
        self._sizes: dict[int, _Size] = {}
        self._last: tuple[int, bool] | None = None

    def drafts_now(self, rows: int) -> bool:
        """Whether the next step, of so many decode rows, is to be given drafts."""
        size = self._size(rows)
        size.turns += 1
        pays = size.pays()
        if pays is None:
            on = not size.drafted.is_known
        else:
            on = pays != (size.turns % PERIOD >= PERIOD - PROBES)
        size.turns_off += not on
        return on

    def add(self, rows: int, seconds: float, tokens: int, num_drafts: int) -> None:
        """A step of decode rows alone took so long, drafting included, and emitted so many tokens."""
        kind = (bucket(rows), num_drafts > 0)
        if kind == self._last:
            size = self._size(rows)
            (size.drafted if num_drafts else size.plain).add(seconds, tokens, num_drafts / rows)
        self._last = kind

    def best_length(self, rows: int, alpha: float, most: int) -> int:
        """Drafts, 1 to `most`, at which a sequence of this running acceptance gets the most tokens in a time.

        Tokens of a pass are (1 - a^(k+1)) / (1 - a), and its time grows by an equal part of a plain pass with each
        draft, as it was measured at this batch size. `most` while it has not been.
        """
        part, a = self._part_of_a_pass(rows), min(alpha, CERTAIN)
        if part is None:
            return most
        return max(range(1, most + 1), key=lambda k: (1 - a ** (k + 1)) / (1 + part * k))

    def _part_of_a_pass(self, rows: int) -> float | None:
        """Time that one draft a row adds to a step, in plain steps."""
        size = self._size(rows)
        drafted, plain = size.drafted, size.plain
        if size.pays() is None:
            return None
        longer = (drafted.seconds / drafted.weight) / (plain.seconds / plain.weight) - 1
        return max(0.0, longer) / (drafted.drafts / drafted.weight)

    def _size(self, rows: int) -> _Size:
        return self._sizes.setdefault(bucket(rows), _Size())

    def to_json(self) -> list[dict[str, Any]]:
        """By batch size, the largest of its power of two: s per token both ways, whether drafts pay, steps without."""
        return [
            {
                "batch_size": rows,
                "with_drafts_s_per_token": size.drafted.seconds_per_token if size.drafted.steps else None,
                "without_s_per_token": size.plain.seconds_per_token if size.plain.steps else None,
                "pays": size.pays(),
                "steps": size.turns,
                "steps_off": size.turns_off,
            }
            for rows, size in sorted(self._sizes.items())
        ]


def bucket(rows: int) -> int:
    """The next power of two."""
    return 1 << (rows - 1).bit_length()
