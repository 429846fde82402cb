"""The errors a user can cause or meet: two types, and memory that runs out. Everything else is a fault of ours.

They live in the lowest package so that every layer raises the same types and the command line maps them to
exit codes once.
"""

import errno
from collections.abc import Iterable
from difflib import get_close_matches

MOST_LISTED = 16  # names in a line; where there are more, one that is meant is easily missed behind them
ALIKE = 0.7  # as difflib counts it: a letter left out, doubled or swapped, and no word that happens to share some


class InputError(ValueError):
    """The input is wrong (exit code 2): one line naming the field, the value and what is accepted."""

    def __init__(self, field: str, value: object, accepted: str) -> None:
        self.field, self.value, self.accepted = field, value, accepted
        super().__init__(f"{field}: {value!r} is not accepted; accepted: {accepted}")


def unknown_name(field: str, value: object, known: Iterable[str], accepted: str | None = None) -> InputError:
    """The error for a name that is none of `known`, with the one most like it where one is near.

    accepted: in words what is, where that is not just the known names; many of those are listed only where none is
    near.
    """
    names = {name.lower(): name for name in known}
    near = get_close_matches(str(value)[:60].lower(), names, 1, ALIKE)
    if accepted is None:
        short = near and len(names) > MOST_LISTED
        accepted = f"one of {len(names)} names" if short else ", ".join(names.values())
    return InputError(field, value, accepted + (f"; did you mean {names[near[0]]}?" if near else ""))


class CannotRunError(RuntimeError):
    """It cannot run here (exit code 3): one line naming what is missing and what to do."""


OUT_OF_MEMORY = (
    "memory: the machine has too little for this run; a smaller model, weights or KV of fewer bits, or less of "
    "kv_memory_mib, max_num_seqs and max_num_batched_tokens needs less"
)
# What allocators say in an error that has no type of its own: torch's on a CPU and on a card, and C++'s.
_ALLOCATORS = ("can't allocate memory", "not enough memory", "out of memory", "cannot allocate memory", "bad_alloc")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory was refused, whoever was asked: Python, numpy, torch's allocators or the operating system."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, RuntimeError) and not isinstance(error, CannotRunError):
        text = str(error).lower()
        return any(words in text for words in _ALLOCATORS)
    return isinstance(error, MemoryError)
