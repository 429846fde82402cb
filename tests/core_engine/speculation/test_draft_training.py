"""Training of drafts: it learns, it goes on from a checkpoint to the very same bits, and it saves what it measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from core_engine.config import EngineConfig
from core_engine.speculation import artefact
from core_engine.speculation.training import train
from core_engine.speculation.training.batches import pieces
from core_engine.speculation.training.corpus import corpus
from core_engine.speculation.training.loop import Loop, Schedule
from core_engine.speculation.training.prompts import prompts
from core_engine.speculation.training.train import Wish, train_draft
from ledger.errors import InputError
from tests.core_engine.speculation.tiny_drafts import KINDS, RECIPES, TEXT, learner, made_text, target_of


def silent(_: str) -> None:
    pass


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_steps_lower_the_loss(kind: str, tiny: tuple[Path, Any], tmp_path: Path) -> None:
    made = learner(kind, target_of(tiny[0]))
    before = float(made.loss(1000).detach())
    Loop(made.network, Schedule(30, 3e-3), tmp_path / "c.pt", "key").run(made.loss, silent)
    assert float(made.loss(1000).detach()) < before - 0.02


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_training_ends_with_the_bits_of_an_uninterrupted_one(
    kind: str, tiny: tuple[Path, Any], tmp_path: Path
) -> None:
    target, schedule = target_of(tiny[0]), Schedule(6, 3e-3)
    whole, first, second = (learner(kind, target) for _ in range(3))
    Loop(whole.network, schedule, tmp_path / "whole.pt", "key").run(whole.loss, silent)
    Loop(first.network, schedule, tmp_path / "c.pt", "key").run(first.loss, silent, stop_after=4)
    with torch.no_grad():
        for parameter in second.network.parameters():
            parameter.zero_()
    going_on = Loop(second.network, schedule, tmp_path / "c.pt", "key")
    assert going_on.resume() == 4
    going_on.run(second.loss, silent)
    for name, tensor in whole.network.state_dict().items():
        assert torch.equal(tensor, second.network.state_dict()[name]), name


def test_a_checkpoint_of_another_training_or_a_damaged_one_is_refused(tiny: tuple[Path, Any], tmp_path: Path) -> None:
    made, path = learner("medusa", target_of(tiny[0])), tmp_path / "c.pt"
    Loop(made.network, Schedule(2, 1e-3), path, "one").run(made.loss, silent)
    with pytest.raises(InputError, match="same recipe"):
        Loop(made.network, Schedule(2, 1e-3), path, "other").resume()
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InputError, match="whole checkpoint"):
        Loop(made.network, Schedule(2, 1e-3), path, "one").resume()


def test_pieces_depend_on_seed_and_step_alone_and_stay_within_a_sequence(tiny: tuple[Path, Any]) -> None:
    text = made_text(target_of(tiny[0]))
    one, same, other = pieces(text, 3, 7, 5, 20), pieces(text, 3, 7, 5, 20), pieces(text, 3, 8, 5, 20)
    assert torch.equal(one.places, same.places)
    assert not torch.equal(one.places, other.places)
    for places, real in zip(one.places, one.real, strict=True):
        inside = places[real]
        assert torch.equal(inside, torch.arange(int(inside[0]), int(inside[-1]) + 1))
        assert any(
            text.span(i).start <= int(inside[0]) and int(inside[-1]) < text.span(i).stop for i in range(len(text))
        )


def test_held_out_prompts_are_not_among_those_trained_on() -> None:
    trained = {prompt.text for prompt in prompts(3000, 0)}
    held = [prompt.text for prompt in prompts(64, 0, held_out=True)]
    assert len(held) == len(set(held)) == 64
    assert not trained & set(held)
    assert prompts(100, 0) == prompts(200, 0)[:100] != prompts(100, 1)


def test_generated_text_is_what_the_target_says_greedily_and_is_kept(
    tiny: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRILEMMA_CACHE", str(tmp_path))
    directory, oracle = tiny
    lines: list[str] = []
    spec = replace(TEXT, sampled_every=0)
    text = corpus(target_of(directory), spec, lines.append)
    assert len(lines) == 1
    again = corpus(target_of(directory), spec, lines.append)
    assert len(lines) == 1
    assert torch.equal(text.tokens, again.tokens)
    assert torch.equal(text.hidden, again.hidden)
    for index in range(3):
        ids = text.tokens[text.span(index)].long()
        with torch.no_grad():
            states = oracle.model(ids[None]).last_hidden_state[0]
            best = oracle.lm_head(states).argmax(-1)
        torch.testing.assert_close(text.hidden[text.span(index)].float(), states, atol=2e-2, rtol=2e-3)
        asked = text.prompt_tokens[index]
        assert torch.equal(best[asked - 1 : -1], ids[asked:])


@pytest.mark.parametrize("kind", KINDS)
def test_train_draft_saves_a_draft_that_says_how_it_was_made(
    kind: str, tiny: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRILEMMA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(train, "CHARACTERS", 20_000)
    recipe = RECIPES[kind] if kind == "draft" else replace(RECIPES[kind], text=TEXT)
    text = None
    if kind == "draft":
        text = tmp_path / "text.txt"
        text.write_text("A sentence about nothing in particular. " * 40)
    held = replace(TEXT, held_out=True, sampled_every=0)
    wish = Wish(recipe.kind, tmp_path / "d.safetensors", text=text, held_out=held, recipe=recipe)
    config = EngineConfig.from_settings({"model": str(tiny[0]), "kernels": "torch", "threads": 1})
    told = train_draft(config, wish, silent)
    saved = artefact.load(wish.out)
    assert saved.kind == recipe.kind
    assert told["bytes"] == wish.out.stat().st_size
    assert told["acceptance"]["tokens_per_pass"] >= 1
    assert saved.about["acceptance"] == told["acceptance"]
    assert saved.about["cost"]["steps"] == recipe.steps
    lines: list[str] = []
    assert (
        train_draft(config, wish, lines.append)["acceptance"]["alpha_by_position"]
        == told["acceptance"]["alpha_by_position"]
    )
    assert any(line.startswith(f"Going on at step {recipe.steps}") for line in lines)


@pytest.mark.parametrize("layers", [0, 99])
def test_an_exit_that_leaves_no_layer_out_or_in_is_refused(layers: int, tiny: tuple[Path, Any], tmp_path: Path) -> None:
    config = EngineConfig.from_settings({"model": str(tiny[0]), "kernels": "torch", "threads": 1})
    with pytest.raises(InputError, match="exit_layers"):
        train_draft(config, Wish("self", tmp_path / "d.safetensors", exit_layers=layers), silent)


def test_a_draft_for_another_model_or_of_another_kind_is_refused(tiny: tuple[Path, Any], tmp_path: Path) -> None:
    path = tmp_path / "d.safetensors"
    made = artefact.Artefact("medusa", {}, torch.arange(3), {"name": "M", "fingerprint": "f"}, {})
    artefact.save(path, made)
    found = artefact.load(path)
    found.refuse_other("medusa", "f")
    with pytest.raises(InputError, match="a draft for M"):
        found.refuse_other("medusa", "g")
    with pytest.raises(InputError, match="a medusa draft"):
        found.refuse_other("eagle", "f")
    path.write_bytes(b"{}")
    with pytest.raises(InputError, match="trilemma train-draft"):
        artefact.load(path)
