"""Checks that time single steps: whoever asks them to stop is not kept waiting until their end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core_engine.engine import Engine
from experiments.asked_to_stop import go_on, stoppable
from experiments.claims import run_claim
from experiments.claims.runner import CHECKED_BY_ENGINE, can_stop
from experiments.loadgen import Cancelled
from tests.core_engine.conftest import make_llama


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("tiny")
    make_llama(directory, max_position_embeddings=8192)
    return {"model": str(directory)}


def asked_after(times: int) -> Callable[[], bool]:
    left = times

    def ask() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    return ask


def test_nobody_asks_outside_of_a_check() -> None:
    with stoppable(lambda: True), pytest.raises(Cancelled):
        go_on()
    go_on()


@pytest.mark.parametrize("claim", sorted(CHECKED_BY_ENGINE))
def test_a_check_of_single_steps_stops_before_it_began(claim: str, settings: dict[str, Any]) -> None:
    assert can_stop(claim)
    with pytest.raises(Cancelled):
        run_claim(claim, options={"settings": settings}, should_cancel=lambda: True)


def test_and_between_two_of_its_runs(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    monkeypatch.setattr(Engine, "generate", lambda self, prompts, *_: ran.append(self) or [])
    with pytest.raises(Cancelled):
        run_claim("C24", options={"settings": settings}, should_cancel=asked_after(1))
    assert len(ran) == 1
