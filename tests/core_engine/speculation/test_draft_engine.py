"""Trained kinds of draft inside the engine: the same ids as without, and drafts that are the networks' own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.model.loader import LoadedModel
from core_engine.sampling_params import SamplingParams
from core_engine.speculation import artefact
from core_engine.speculation.load_draft import load_draft
from core_engine.speculation.proposer import Ask, Draft
from ledger.errors import CannotRunError, InputError
from tests.core_engine.conftest import load_fp32
from tests.core_engine.speculation.tiny_drafts import KINDS, RECIPES, Made

PROMPTS = [[5, 6, 7, 8] * 3, [9, 10, 11], [3, 4, 5, 6, 7, 3, 4, 5, 6] * 2]
GREEDY = SamplingParams(max_tokens=10, ignore_eos=True)


class Checked:
    """A proposer whose drafts must be those of the network, pass after pass."""

    def __init__(self, made: Made) -> None:
        self._made, self._inner = made, made.proposer()
        self.needs_hidden = self._inner.needs_hidden
        self.checked = 0

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        drafts = self._inner.propose(asks)
        for ask, draft in zip(asks, drafts, strict=True):
            assert list(draft.tokens) == self._made.reference(list(ask.tokens), min(ask.k, 4))
            self.checked += 1
        return drafts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def run(loaded: LoadedModel, params: SamplingParams, proposer: Any = None, **settings: Any) -> list[tuple[int, ...]]:
    config = EngineConfig.from_settings({"draft_control": "fixed", "num_draft_tokens": 4, **settings})
    done = Engine(config, loaded, proposer=proposer).generate(PROMPTS, params)
    return [completion.token_ids for completion in done]


@pytest.mark.parametrize("settings", [{}, {"max_num_batched_tokens": 5}, {"max_num_seqs": 2}], ids=str)
@pytest.mark.parametrize("kernels", ["torch", "compiled"])
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_ids_are_the_targets_and_drafts_the_networks(
    kind: str, kernels: str, settings: dict[str, Any], tiny: tuple[Path, Any]
) -> None:
    made = Made(kind, tiny[0], kernels)
    loaded = load_fp32(tiny[0], kernels=kernels, threads=1)
    proposer = Checked(made)
    plain = run(loaded, GREEDY)
    assert run(loaded, GREEDY, proposer, prefix_cache="off", **settings) == plain
    assert proposer.checked > 15


@pytest.mark.parametrize(
    "settings", [{"kv_dtype": "int8", "block_size": 8}, {"prefix_cache": "on", "block_size": 1}], ids=str
)
@pytest.mark.parametrize("kind", KINDS)
def test_ids_stay_with_quantized_kv_and_prefix_hits(
    kind: str, settings: dict[str, Any], tiny: tuple[Path, Any]
) -> None:
    made, loaded = Made(kind, tiny[0]), load_fp32(tiny[0], threads=1)
    config = EngineConfig.from_settings({"draft_control": "fixed", **settings})
    plain, drafting = Engine(config, loaded), Engine(config, loaded, proposer=made.proposer())
    for _ in range(2):  # the second time prompts are found in the cache: their features never come
        expected = [done.token_ids for done in plain.generate(PROMPTS, GREEDY)]
        assert [done.token_ids for done in drafting.generate(PROMPTS, GREEDY)] == expected
    assert drafting.record()["counters"]["drafted_tokens"] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_draft_is_found_by_its_path_and_refused_for_another_model(
    kind: str, tiny: tuple[Path, Any], tmp_path: Path
) -> None:
    made, loaded = Made(kind, tiny[0]), load_fp32(tiny[0], threads=1)
    path = tmp_path / "draft.safetensors"
    artefact.save(path, made.artefact)

    def config(**settings: Any) -> EngineConfig:
        return EngineConfig.from_settings({"model": str(tiny[0]), "speculation": RECIPES[kind].kind, **settings})

    with_path = config(draft_model=str(path))
    assert load_draft(with_path, loaded).weights_bytes() > 0
    with pytest.raises(InputError, match="trilemma train-draft"):
        load_draft(config(), loaded)
    other = artefact.Artefact(
        RECIPES[kind].kind, made.artefact.tensors, made.ids, {"name": "M", "fingerprint": "f"}, {}
    )
    artefact.save(path, other)
    with pytest.raises(InputError, match="a draft for M"):
        load_draft(with_path, loaded)


def test_without_shipped_drafts_the_embedded_model_says_how_to_make_one(
    tiny: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from core_engine.speculation import load_draft as module

    monkeypatch.setattr(module, "shipped", lambda kind: tmp_path / kind)
    monkeypatch.setattr(module, "open_model", lambda config: None)
    with pytest.raises(CannotRunError, match="trilemma train-draft eagle"):
        load_draft(EngineConfig.from_settings({"speculation": "eagle"}), load_fp32(tiny[0], threads=1))
