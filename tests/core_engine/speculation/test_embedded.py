"""The embedded model with every form of draft that comes with it: the same ids in fp32."""

from __future__ import annotations

from pathlib import Path

import pytest

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.model.loader import LoadedModel, load_model
from core_engine.outputs import Completion
from core_engine.sampling_params import SamplingParams
from experiments.speculation.spec import FORMS
from tests.core_engine.speculation.proposers import KnowingProposer, answers, every_third

SETTINGS = {"dtype": "fp32", "draft_control": "fixed"}
PARAMS = SamplingParams(max_tokens=48)
SUBJECTS = ("a river", "the moon", "an old clock", "bread", "a lighthouse", "chess", "rain", "a bridge", "salt", "bees")
TASKS = (
    "Write three sentences about {}.",
    "Repeat this text word for word: {0} is here, {0} is there, {0} is everywhere.",
    "def describe(name):\n    return name\n\n# call it for {}\n",
    "List five words that rhyme or go with {}:",
    "Once upon a time there was {}, and",
)


@pytest.fixture(scope="module")
def plain(embedded_dir: Path) -> tuple[LoadedModel, list[str], list[Completion]]:
    """The model in float32, prompts, and its answers without drafts."""
    prompts = [task.format(subject) for subject in SUBJECTS for task in TASKS]
    loaded = load_model(EngineConfig.from_settings(SETTINGS))
    return loaded, prompts, Engine(EngineConfig.from_settings(SETTINGS), loaded).generate(prompts, PARAMS)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["constructed", *FORMS])
def test_greedy_ids_over_fifty_prompts(form: str, plain: tuple[LoadedModel, list[str], list[Completion]]) -> None:
    loaded, prompts, expected = plain
    knowing = None
    if form == "constructed":
        ids = [loaded.tokenizer.encode(prompt) for prompt in prompts]
        knowing = KnowingProposer(answers(ids, expected), every_third, vocab_size=loaded.spec.vocab_size)
    for k, count in ((4, 50), (1, 10), (2, 10), (8, 10)):
        drafts = {"speculation": form if knowing is None else "off", "num_draft_tokens": k}
        engine = Engine(EngineConfig.from_settings({**SETTINGS, **drafts}), loaded, proposer=knowing)
        got = engine.generate(prompts[:count], PARAMS)
        assert [done.token_ids for done in got] == [done.token_ids for done in expected[:count]]
        assert engine.record()["counters"]["accepted_tokens"] > 0
