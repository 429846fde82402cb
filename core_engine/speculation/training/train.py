"""`train_draft`: from a model and the name of a kind of draft to a file that the engine loads.

Owns the order of the work: text, training with its checkpoints, rounding to int8, the held-out report on exactly what
was saved. All of it can be killed and started again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from core_engine.config import EngineConfig
from core_engine.environment import cpu_name, resolve_threads
from core_engine.model.embedded import cache_root
from core_engine.speculation.artefact import KINDS, Artefact, rounded_rows, save
from core_engine.speculation.load_draft import proposer_of
from core_engine.speculation.training.acceptance import HELD_OUT, replay
from core_engine.speculation.training.batches import Teacher
from core_engine.speculation.training.corpus import CorpusSpec, corpus
from core_engine.speculation.training.learners import (
    DraftLearner,
    EagleLearner,
    ExitLearner,
    FeatureText,
    Learner,
    MedusaLearner,
    SelfLearner,
    shortlist_of,
)
from core_engine.speculation.training.loop import Loop, Schedule, Trained, key_of
from core_engine.speculation.training.recipes import Recipe
from core_engine.speculation.training.recipes import recipe as recipe_of
from core_engine.speculation.training.target import Target, open_target
from core_engine.speculation.training.text import TrainingText, installed_text, text_of
from ledger.errors import InputError

Report = Callable[[str], None]
CHARACTERS = 8_000_000  # of installed text: about two million tokens


@dataclass(frozen=True)
class Wish:
    """What is to be trained. out: the draft's file; steps and prompts (answered by the target) instead of the recipe's
    own; text: instead of the installed one, for `draft` alone; exit_layers: for `self` alone, the target's own first
    layers instead of a small Llama; fresh: an earlier checkpoint is thrown away rather than gone on from. recipe:
    instead of the kind's own."""

    kind: str
    out: Path
    seed: int = 0
    steps: int | None = None
    prompts: int | None = None
    recipe: Recipe | None = None
    text: Path | None = None
    exit_layers: int | None = None
    fresh: bool = False
    held_out: CorpusSpec = HELD_OUT


def train_draft(config: EngineConfig, wish: Wish, report: Report) -> dict[str, Any]:
    """Train, save and measure a draft; returns what the artefact says of itself, with its path and bytes.

    InputError for a text or checkpoint that can't be used, CannotRunError when a file can't be written.
    """
    refuse(wish)
    torch.set_num_threads(resolve_threads(config.threads))
    torch.manual_seed(wish.seed)
    target = open_target(config, report)
    chosen = wish.recipe or _recipe(wish, target)
    learner, shortlist, text = _learner(target, chosen, wish, report)
    trained = _trained(target, chosen, wish, learner, text, report)
    tensors = {
        name: rounded_rows(tensor) if tensor.dim() == 2 else tensor.detach().float()
        for name, tensor in learner.tensors().items()
    }
    about = {
        "shape": None if chosen.shape is None else asdict(chosen.shape),
        "exit_layers": chosen.exit_layers,
        "recipe": chosen.described(),
        "text": text,
        "seed": wish.seed,
        "cost": {**asdict(trained), "threads": torch.get_num_threads(), "processor": cpu_name()},
    }
    named = {"name": target.name, "fingerprint": target.fingerprint}
    artefact = Artefact(wish.kind, tensors, shortlist, named, about)
    report("What it is worth on prompts held out from training")
    held = corpus(target, wish.held_out, report)
    measured = replay(proposer_of(artefact, target.loaded, target.opened), held)
    report(f"{measured['tokens_per_pass']} tokens a target pass with {measured['k']} drafts")
    whole = replace(artefact, about={**about, "acceptance": measured})
    size = save(wish.out, whole)
    return {"kind": wish.kind, "out": str(wish.out), "bytes": size, "target": named, **whole.about}


def refuse(wish: Wish) -> None:
    """InputError for what no training can be made of, before anything is read."""
    if wish.kind not in KINDS:
        raise InputError("kind", wish.kind, ", ".join(KINDS))
    for name, value in (("steps", wish.steps), ("prompts", wish.prompts)):
        if value is not None and value < 1:
            raise InputError(name, value, "a whole number from 1")
    if not 0 <= wish.seed < 2**32:
        raise InputError("seed", wish.seed, "a whole number from 0 to 4294967295")
    if wish.text is not None and wish.kind != "draft":
        raise InputError("text", str(wish.text), f"no text for {wish.kind}: it learns from what the model generates")
    if wish.text is not None and not wish.text.exists():
        raise InputError("text", str(wish.text), "a text file or a directory that is there")
    if wish.prompts is not None and wish.kind == "draft":
        raise InputError("prompts", wish.prompts, "none for draft: it learns from text that the model did not write")
    if wish.exit_layers is not None and wish.kind != "self":
        raise InputError(
            "exit_layers", wish.exit_layers, f"none for {wish.kind}: only self can be the model's own layers"
        )
    if wish.out.is_dir() or not wish.out.name.endswith(".safetensors"):
        raise InputError("out", str(wish.out), "the path of a file whose name ends in .safetensors")


def _recipe(wish: Wish, target: Target) -> Recipe:
    """The kind's own; InputError for more layers of the target than leave some to be saved."""
    most = target.spec.num_layers - 1
    if wish.exit_layers is not None and not 1 <= wish.exit_layers <= most:
        raise InputError("exit_layers", wish.exit_layers, f"1 to {most}, fewer than the model has")
    return recipe_of(
        wish.kind, target.spec.hidden_size, wish.seed, wish.steps, wish.prompts, exit_layers=wish.exit_layers
    )


def _learner(
    target: Target, recipe: Recipe, wish: Wish, report: Report
) -> tuple[Learner, torch.Tensor, dict[str, Any]]:
    """The training, the ids that the draft will propose, and what it learns from in words."""
    vocab = target.spec.vocab_size
    ends = target.tokenizer.eos_token_ids
    if recipe.text is None:
        written = text_of(wish.text) if wish.text is not None else installed_text(CHARACTERS, wish.seed)
        tokens = _encoded(target, written, recipe, report)
        shortlist = shortlist_of(tokens, vocab, recipe.shortlist, ends)
        about = {"source": written.source, "digest": written.digest, "tokens": len(tokens)}
        return DraftLearner(recipe, tokens, vocab, wish.seed, shortlist), shortlist, about
    text = corpus(target, recipe.text, report)
    shortlist = shortlist_of(text.tokens, vocab, recipe.shortlist, ends)
    data = FeatureText(target, text, Teacher.of(text.hidden, target.head[shortlist], report), shortlist)
    about = {"source": f"generated by {target.name}", **asdict(recipe.text), "tokens": len(text.tokens)}
    if recipe.kind == "eagle":
        return EagleLearner(recipe, data, wish.seed), shortlist, about
    if recipe.kind == "medusa":
        return MedusaLearner(recipe, data, wish.seed), shortlist, about
    if recipe.exit_layers:
        report(f"What the target's first {recipe.exit_layers} layers give at them")
        sequences = [text.tokens[text.span(index)].tolist() for index in range(len(text))]
        states = target.after_layers(recipe.exit_layers, sequences, recipe.text.batch)
        return ExitLearner(recipe, data, wish.seed, states), shortlist, about
    return SelfLearner(recipe, data, wish.seed, shortlist), shortlist, about


def _encoded(target: Target, written: TrainingText, recipe: Recipe, report: Report) -> torch.Tensor:
    """Ids of all documents, one after another with the model's first end token between."""
    report(f"Text: {written.source}")
    between = list(target.tokenizer.eos_token_ids[:1])
    ids = [token for document in written.documents for token in [*target.tokenizer.encode(document), *between]]
    if len(ids) < recipe.length + 2:
        raise InputError("text", f"{len(ids)} tokens", f"a text of at least {recipe.length + 2}")
    return torch.tensor(ids, dtype=torch.int32)


def _trained(
    target: Target, recipe: Recipe, wish: Wish, learner: Learner, text: dict[str, Any], report: Report
) -> Trained:
    key = key_of(recipe=recipe.described(), model=target.fingerprint, text=text, seed=wish.seed)
    path = checkpoint_path(key)
    if wish.fresh:
        path.unlink(missing_ok=True)
    loop = Loop(learner.network, Schedule(recipe.steps, recipe.learning_rate), path, key)
    if step := loop.resume():
        report(f"Going on at step {step} of {recipe.steps}, from {path}")
    began_s = time.perf_counter()
    done = loop.run(learner.loss, report)
    report(f"Trained: {done.steps} steps in {done.seconds:.0f} s ({time.perf_counter() - began_s:.0f} s of them now)")
    return done


def checkpoint_path(key: str) -> Path:
    """Where a training is kept while it goes on."""
    return cache_root() / "drafts" / f"checkpoint-{hashlib.sha256(key.encode()).hexdigest()[:16]}.safetensors"
