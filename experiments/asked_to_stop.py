"""Whether whoever runs a check has asked to stop, for checks that time single steps and have no events to tell.

A check without one, as a test or a script runs it, is never asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ASKED: ContextVar[Callable[[], bool]] = ContextVar("asked_to_stop", default=lambda: False)


@contextmanager
def stoppable(should_cancel: Callable[[], bool]) -> Iterator[None]:
    """What runs inside stops at its next `go_on` once should_cancel says so."""
    before = _ASKED.set(should_cancel)
    try:
        yield
    finally:
        _ASKED.reset(before)


def go_on() -> None:
    """Called between two pieces of work; Cancelled where somebody asked to stop."""
    if _ASKED.get()():
        from experiments.loadgen import Cancelled

        raise Cancelled
