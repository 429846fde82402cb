"""Either side killed in any phase: every request ends, with the same ids, and nothing stays held anywhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core_engine.disaggregation.area import KVArea
from core_engine.disaggregation.engine import DisaggregatedEngine
from core_engine.disaggregation.router import MOST_RETRIES, Phase
from core_engine.disaggregation.side import DECODE, NAMES, PREFILL
from core_engine.disaggregation.sides import TwoSides
from core_engine.outputs import Output
from core_engine.request import SamplingParams
from ledger.errors import CannotRunError
from tests.core_engine.disaggregation.conftest import Pair
from tests.core_engine.disaggregation.test_engine import clean, until

ROOT = Path(__file__).resolve().parents[3]
PROMPTS = [[(n + 3 * i) % 250 + 1 for i in range(60 + n)] for n in range(5)]
SAMPLED = SamplingParams(max_tokens=150, ignore_eos=True, temperature=0.8, seed=3)
SETTINGS = {"max_num_batched_tokens": 8}  # a prompt takes many steps
ENOUGH_S = 60.0

pytestmark = pytest.mark.skipif(os.name != "posix", reason="two processes need a POSIX system")


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] == "T"


@pytest.fixture
def expected(pair: Pair) -> list[list[int]]:
    return [answer.token_ids for answer in pair.one(**SETTINGS).generate(PROMPTS, SAMPLED)]


def in_phase(engine: DisaggregatedEngine, phase: Phase) -> list[Output]:
    """Steps until some request is there, in the middle: its prompt partly computed, its transfer told to decode."""
    if phase is Phase.TRANSFERRING:
        pid = engine.sides[DECODE].pid
        os.kill(pid, signal.SIGSTOP)  # else it takes a prefix sooner than anybody could look
        while not stopped(pid):
            time.sleep(0.01)
        return until(engine, lambda: any(ticket.sent for ticket in engine.router.of(phase)))
    return until(engine, lambda: any(ticket.request.log.steps for ticket in engine.router.of(phase)))


def rest(engine: DisaggregatedEngine) -> list[Output]:
    """Steps until all requests have ended."""
    outputs, until_s = [], time.monotonic() + ENOUGH_S
    while engine.has_unfinished() and time.monotonic() < until_s:
        outputs += engine.step()
        engine.check()
    assert not engine.has_unfinished()
    return outputs


def told(outputs: list[Output], name: str) -> list[int]:
    return [token for output in outputs if output.request_id == name for token in output.token_ids]


@pytest.mark.parametrize(
    ("side", "phase"),
    [
        (DECODE, Phase.DECODING),
        pytest.param(PREFILL, Phase.PREFILLING, marks=pytest.mark.slow),
        pytest.param(DECODE, Phase.PREFILLING, marks=pytest.mark.slow),
        pytest.param(PREFILL, Phase.TRANSFERRING, marks=pytest.mark.slow),
        pytest.param(DECODE, Phase.TRANSFERRING, marks=pytest.mark.slow),
        pytest.param(PREFILL, Phase.DECODING, marks=pytest.mark.slow),
    ],
    ids=lambda value: NAMES[value] if isinstance(value, int) else value.value,
)
def test_a_killed_side_loses_no_request_and_no_block(
    pair: Pair, expected: list[list[int]], side: int, phase: Phase
) -> None:
    engine = pair.two(**SETTINGS)
    names = [engine.add(prompt, SAMPLED) for prompt in PROMPTS]
    outputs = in_phase(engine, phase)
    held = {ticket.request.id for ticket in engine.router.of(phase)}
    pids = [one.pid for one in engine.sides]
    os.kill(pids[side], signal.SIGKILL)
    if phase is Phase.TRANSFERRING and side == PREFILL:
        until(engine, lambda: engine.losses)
        assert all(name not in engine.retried for name in held)  # their KV is safe: nothing to compute again
        os.kill(pids[DECODE], signal.SIGCONT)
    outputs += rest(engine)
    assert [told(outputs, name) for name in names] == expected  # nothing twice, nothing missing
    assert [engine.completion(name).finish_reason for name in names] == ["length"] * len(names)
    record = engine.record()
    (loss,) = record["disaggregation"]["losses"]
    assert loss["side"] == NAMES[side] and "SIGKILL" in loss["why"]
    assert engine.sides[side].pid != pids[side] and gone(pids[side])
    assert engine.sides[1 - side].pid == pids[1 - side]
    if phase is Phase.TRANSFERRING and side == DECODE:
        again = [transfer for transfer in record["transfers"] if transfer["id"] in held]
        assert [transfer["attempts"] for transfer in again] == [2] * len(held)  # read from the area once more
        prefilled = {row[0] for step in record["steps"] if step["side"] == "prefill" for row in step["rows"]}
        assert held <= prefilled and all(r["preemptions"] == [] for r in record["requests"] if r["id"] in held)
    clean(engine)
    again = pair.two(**SETTINGS)  # and the next engine finds two whole sides
    assert [a.token_ids for a in again.generate(PROMPTS[:2], SAMPLED)] == expected[:2]
    clean(again)


def test_a_torn_block_is_computed_again_and_never_read(pair: Pair, expected: list[list[int]]) -> None:
    engine = pair.two(**SETTINGS)
    name = engine.add(PROMPTS[0], SAMPLED)
    outputs = in_phase(engine, Phase.TRANSFERRING)
    (ticket,) = engine.router.of(Phase.TRANSFERRING)
    assert ticket.lease is not None
    area = KVArea(engine.model.memory, engine.num_blocks, engine.block_bytes)
    area.place(ticket.lease.units[3])[5] ^= 1
    os.kill(engine.sides[DECODE].pid, signal.SIGCONT)
    outputs += rest(engine)
    assert told(outputs, name) == expected[0] and engine.retried == {name: 1}
    assert engine.record()["disaggregation"]["losses"] == []
    clean(engine)


@pytest.mark.slow
def test_a_side_that_hangs_is_ended_and_started_again(pair: Pair, expected: list[list[int]]) -> None:
    engine = pair.two(**SETTINGS)
    side = engine.sides[PREFILL]
    names = [engine.add(prompt, SAMPLED) for prompt in PROMPTS]
    outputs = in_phase(engine, Phase.PREFILLING)
    pid, patience = side.pid, side.standing_still_s
    side.standing_still_s = 2.0
    os.kill(pid, signal.SIGSTOP)
    outputs += until(engine, lambda: engine.losses)
    side.standing_still_s = patience
    outputs += rest(engine)
    assert [told(outputs, name) for name in names] == expected
    assert "the prefill process stood still for 2 s" in engine.losses[0]["why"] and gone(pid)
    clean(engine)


@pytest.mark.slow
def test_a_request_that_is_lost_too_often_fails_with_the_reason(pair: Pair) -> None:
    engine = pair.two(**SETTINGS)
    name = engine.add(PROMPTS[0], SamplingParams(max_tokens=400, ignore_eos=True))
    outputs: list[Output] = []
    for _ in range(MOST_RETRIES + 1):
        outputs += in_phase(engine, Phase.DECODING)
        os.kill(engine.sides[DECODE].pid, signal.SIGKILL)
        losses = len(engine.losses)
        outputs += until(engine, lambda losses=losses: len(engine.losses) > losses)
    assert outputs[-1] == Output(name, [], "", True, "error", 0)
    (request,) = engine.record()["requests"]
    assert request["finish_reason"] == "error" and "was ended by SIGKILL; it was begun 3 times" in request["error"]
    engine.check()
    until(engine, lambda: engine.sides[DECODE].ready or engine.step())
    clean(engine)


def test_a_side_that_can_not_be_started_again_fails_what_is_there_with_the_reason(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = pair.two(**SETTINGS)
    names = [engine.add(prompt, SAMPLED) for prompt in PROMPTS[:2]]
    in_phase(engine, Phase.PREFILLING)

    def refuse(*_: Any) -> Any:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("core_engine.disaggregation.side.start_child", refuse)
    os.kill(engine.sides[PREFILL].pid, signal.SIGKILL)
    outputs = rest(engine)
    assert {output.request_id for output in outputs if output.finish_reason == "error"} == set(names)
    assert all("can't be started" in request["error"] for request in engine.record()["requests"])
    with pytest.raises(CannotRunError, match="the prefill process can't be started") as caught:
        engine.add(PROMPTS[0], SAMPLED)
    assert "\n" not in str(caught.value)
    assert engine.step() == []
    monkeypatch.undo()
    again = pair.two(**SETTINGS)  # a new engine starts what is missing
    assert len(again.generate(PROMPTS[:1], SAMPLED)[0].token_ids) == SAMPLED.max_tokens
    clean(again)


@pytest.mark.slow
def test_a_killed_driver_leaves_no_process_behind(tiny: tuple[Path, Any]) -> None:
    script = f"""
import time
from core_engine.config import EngineConfig
from core_engine.model.loader import load_model
if __name__ == "__main__":
    loaded = load_model(EngineConfig.from_settings({{"model": {str(tiny[0])!r}, "disaggregation": "on", "threads": 2}}))
    print(*[side.pid for side in loaded.decoder.sides], flush=True)
    time.sleep(600)
"""
    driver = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    pids = [int(pid) for pid in driver.stdout.readline().split()]
    assert len(pids) == 2
    driver.kill()
    driver.wait()
    until_s = time.monotonic() + ENOUGH_S
    while time.monotonic() < until_s and not all(map(gone, pids)):
        time.sleep(0.05)
    assert all(map(gone, pids))


@pytest.fixture(scope="module", autouse=True)
def _nothing_stays(pair: Pair) -> Iterator[None]:
    yield
    assert isinstance(pair.loaded.decoder, TwoSides)
    pids = [side.pid for side in pair.sides]
    pair.loaded.close()
    assert all(map(gone, pids))
