"""The embedded model with look-ups: the same ids in fp32."""

from __future__ import annotations

from pathlib import Path

import pytest

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.model.loader import load_model
from core_engine.sampling_params import SamplingParams
from tests.core_engine.speculation.proposers import KnowingProposer, answers, every_third

SUBJECTS = ("a river", "the moon", "an old clock", "bread", "a lighthouse", "chess", "rain", "a bridge", "salt", "bees")
TASKS = (
    "Write three sentences about {}.",
    "Repeat this text word for word: {0} is here, {0} is there, {0} is everywhere.",
    "def describe(name):\n    return name\n\n# call it for {}\n",
    "List five words that rhyme or go with {}:",
    "Once upon a time there was {}, and",
)


@pytest.mark.slow
def test_greedy_ids_over_fifty_prompts(embedded_dir: Path) -> None:
    prompts = [task.format(subject) for subject in SUBJECTS for task in TASKS]
    settings = {"dtype": "fp32", "draft_control": "fixed"}
    loaded = load_model(EngineConfig.from_settings(settings))
    params = SamplingParams(max_tokens=48)
    expected = Engine(EngineConfig.from_settings(settings), loaded).generate(prompts, params)
    ids = [loaded.tokenizer.encode(prompt) for prompt in prompts]
    for k, count in ((4, 50), (1, 10), (2, 10), (8, 10)):
        knowing = KnowingProposer(answers(ids, expected), every_third, vocab_size=loaded.spec.vocab_size)
        for proposer in (None, knowing):
            config = EngineConfig.from_settings({**settings, "speculation": "ngram", "num_draft_tokens": k})
            engine = Engine(config, loaded, proposer=proposer)
            got = engine.generate(prompts[:count], params)
            assert [done.token_ids for done in got] == [done.token_ids for done in expected[:count]]
            assert engine.record()["counters"]["accepted_tokens"] > 0
