"""The child's side of a measurement: one JSON line in, one out. Runs in every engine's own environment, so it needs
nothing but Python.

The driver starts a child with the engine's options as JSON in argv[1]. The child answers {"ready": {...}} once it could
take a request, then {"ids", "times_s"} for every {"prompts", "new_tokens"}: the generated ids of each prompt and when
each of them was known, in seconds since the request was read. {"error": text} ends it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


class ChildEngine(Protocol):
    """What a child measures."""

    about: dict[str, Any]  # versions and what the engine decided itself

    def generate(self, prompts: list[list[int]], new_tokens: int, took: Callable[[int, int], None]) -> None:
        """Greedy tokens, exactly `new_tokens` each, end tokens ignored; all prompts are there at once.

        took(index of the prompt, id) is called as soon as a token is known.
        """


def serve(make: Callable[[dict[str, Any]], ChildEngine]) -> None:
    """Load, say so, answer until the input ends. What libraries print goes to standard error."""
    if sys.platform == "linux":  # a child that is stopped does not notice that its driver is gone
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def say(reply: dict[str, Any]) -> None:
        replies.write(json.dumps(reply) + "\n")

    try:
        engine = make(json.loads(sys.argv[1]))
        say({"ready": engine.about})
        for line in sys.stdin:
            say(_answer(engine, json.loads(line)))
    except Exception as error:
        say({"error": f"{type(error).__name__}: {error}"[:2000]})
        raise


def _answer(engine: ChildEngine, request: dict[str, Any]) -> dict[str, Any]:
    prompts = request["prompts"]
    ids: list[list[int]] = [[] for _ in prompts]
    times_s: list[list[float]] = [[] for _ in prompts]
    began = time.perf_counter()

    def took(index: int, token: int) -> None:
        ids[index].append(int(token))
        times_s[index].append(time.perf_counter() - began)

    engine.generate(prompts, request["new_tokens"], took)
    short = [len(row) for row in ids if len(row) != request["new_tokens"]]
    if short:
        raise RuntimeError(f"{len(short)} answers of {short[0]} tokens instead of {request['new_tokens']}")
    return {"ids": ids, "times_s": times_s}
