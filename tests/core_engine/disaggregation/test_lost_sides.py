"""kill -9 of either process in every phase: all requests end, with one engine's ids, and nothing stays held."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from core_engine.disaggregation.engine import DisaggregatedEngine
from core_engine.disaggregation.router import MOST_RETRIES, Phase
from core_engine.disaggregation.side import DECODE, PREFILL
from core_engine.request import SamplingParams
from tests.core_engine.disaggregation.conftest import Pair
from tests.core_engine.disaggregation.test_engine import clean

LONG = SamplingParams(max_tokens=60, ignore_eos=True)
PROMPTS = [[number + 1] * 40 for number in range(4)]

pytestmark = pytest.mark.slow


def kill(engine: DisaggregatedEngine, side: int) -> None:
    os.kill(engine.sides[side].pid, signal.SIGKILL)


def until(engine: DisaggregatedEngine, done: Any) -> list[Any]:
    """Steps until it is so, for as long as processes may take to start on a busy machine."""
    found = []
    for _ in range(300_000):
        if done():
            return found
        found += engine.step()
    raise AssertionError("it never came so far")


def counted(engine: DisaggregatedEngine, done: Any) -> dict[str, list[int]]:
    """Steps until it is so: the ids that came out, by request."""
    found: dict[str, list[int]] = {}
    for output in until(engine, done):
        found.setdefault(output.request_id, []).extend(output.token_ids)
    return found


@pytest.mark.parametrize("side", [PREFILL, DECODE], ids=["prefill", "decode"])
@pytest.mark.parametrize("phase", [Phase.PREFILLING, Phase.TRANSFERRING, Phase.DECODING], ids=lambda one: one.value)
def test_a_killed_side_loses_no_request_and_gives_no_token_twice(pair: Pair, side: int, phase: Phase) -> None:
    expected = [answer.token_ids for answer in pair.one().generate(PROMPTS, LONG)]
    engine = pair.two(max_num_batched_tokens=8)
    names = [engine.add(prompt, LONG) for prompt in PROMPTS]
    before = counted(engine, lambda: engine.router.of(phase))
    kill(engine, side)
    after = counted(engine, lambda: not engine.has_unfinished())
    assert [before.get(name, []) + after.get(name, []) for name in names] == expected
    assert [engine.completion(name).token_ids for name in names] == expected
    assert [engine.completion(name).finish_reason for name in names] == ["length"] * 4
    assert [loss["side"] for loss in engine.losses] == [engine.sides[side].name]
    assert "SIGKILL" in engine.losses[0]["why"] and "\n" not in engine.losses[0]["why"]
    until(engine, lambda: engine.step() == [] and all(one.ready for one in engine.sides))
    clean(engine)


def test_a_request_that_is_lost_too_often_fails_with_the_reason(pair: Pair) -> None:
    engine = pair.two()
    name = engine.add(PROMPTS[0], SamplingParams(max_tokens=400, ignore_eos=True))
    for _ in range(MOST_RETRIES + 1):
        until(engine, lambda: engine.router.of(Phase.DECODING) or not engine.has_unfinished())
        kill(engine, DECODE)
        losses = len(engine.losses)
        until(engine, lambda losses=losses: len(engine.losses) > losses)
    assert not engine.has_unfinished() and engine.completion(name).finish_reason == "error"
    error = engine.sessions.of(name)[0].request.error
    assert error is not None and "SIGKILL" in error and f"begun {MOST_RETRIES + 1} times" in error
    until(engine, lambda: engine.step() == [] and engine.sides[DECODE].ready)
    clean(engine)
