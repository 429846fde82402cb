"""Hidden states for proposers that read them: of every computed row, the same from both decoders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.plan import Row
from core_engine.sampling_params import SamplingParams
from tests.core_engine.conftest import load_fp32
from tests.core_engine.speculation.proposers import KnowingProposer


class Reader(KnowingProposer):
    """Keeps what it observes, by position; drafts a wrong token and a right one in turns."""

    needs_hidden = True

    def __init__(self) -> None:
        super().__init__(lambda ask: [*ask.tokens, 3, 4, 5], vocab_size=256)
        self.seen: dict[int, torch.Tensor] = {}

    def observe(self, rows: Sequence[Row], hidden: torch.Tensor) -> None:
        assert hidden.shape == (sum(row.count for row in rows), 48)
        for row in rows:
            for place in range(row.count):
                self.seen[row.start + place] = hidden[place].clone()


@pytest.mark.parametrize("kernels", ["torch", "compiled"])
def test_they_give_the_logits_that_tokens_are_chosen_from(tiny: tuple[Path, Any], kernels: str) -> None:
    loaded = load_fp32(tiny[0], kernels=kernels, threads=1)
    if loaded.kernels.kernels != kernels:
        pytest.skip(loaded.kernels.kernels_reason)
    reader = Reader()
    config = EngineConfig.from_settings({"max_num_batched_tokens": 7, "draft_control": "fixed"})
    engine = Engine(config, loaded, proposer=reader)
    prompt = list(range(20, 37))
    done = engine.generate([prompt], SamplingParams(max_tokens=12, ignore_eos=True))[0]
    head = tiny[1].lm_head.weight.detach()
    tokens = [*prompt, *done.token_ids]
    assert set(range(len(tokens) - 1)) <= set(reader.seen)
    for position in range(len(prompt) - 1, len(tokens) - 1):
        assert int((head @ reader.seen[position]).argmax()) == tokens[position + 1]
    assert any(step["observe_ns"] > 0 for step in engine.trace.steps)


def test_nothing_is_brought_when_nobody_asks(tiny: tuple[Path, Any]) -> None:
    loaded = load_fp32(tiny[0], threads=1)
    engine = Engine(EngineConfig.from_settings({}), loaded)
    engine.add([5, 6, 7])
    assert engine.executor.execute(engine.scheduler.plan(0)).hidden is None
