"""A tiny random target, and untrained drafts for it as they come out of training: int8, with a shortlist."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from core_engine.config import EngineConfig
from core_engine.kernels.choice import compiled_here
from core_engine.plan import Row
from core_engine.sampling_params import SamplingParams
from core_engine.speculation.artefact import Artefact, rounded_rows
from core_engine.speculation.load_draft import proposer_of
from core_engine.speculation.proposer import Proposer
from core_engine.speculation.training.batches import Teacher
from core_engine.speculation.training.corpus import CorpusSpec, Sequences
from core_engine.speculation.training.learners import (
    DraftLearner,
    EagleLearner,
    ExitLearner,
    FeatureText,
    Learner,
    MedusaLearner,
    SelfLearner,
)
from core_engine.speculation.training.networks import Eagle, Exit, Medusa, Shape, SmallLlama
from core_engine.speculation.training.recipes import Recipe
from core_engine.speculation.training.target import Target, open_target

KINDS = ("draft", "medusa", "eagle", "self", "exit")  # the last is `self` in its other form
HIDDEN = 48
SMALL = Shape(32, 64, 2, 4, 2, 8, window=20)
RECIPES = {
    "eagle": Recipe(
        "eagle", 6, 3, 24, 3e-3, 200, replace(SMALL, hidden_size=HIDDEN, num_layers=1), ((0.5, 1), (0.5, 3))
    ),
    "medusa": Recipe("medusa", 6, 3, 24, 3e-3, 200),
    "self": Recipe("self", 6, 3, 24, 3e-3, 200, SMALL),
    "draft": Recipe("draft", 6, 3, 24, 3e-3, 200, SMALL),
    "exit": Recipe("self", 6, 3, 24, 3e-3, 200, exit_layers=1),
}
TEXT = CorpusSpec(num_prompts=64, max_new_tokens=8, max_prompt_tokens=40, batch=4)


def target_of(directory: Path, kernels: str = "torch") -> Target:
    """A model directory as training opens it."""
    return open_target(EngineConfig.from_settings({"model": str(directory), "kernels": kernels}))


def made_text(target: Target, lengths: tuple[int, ...] = (30, 40, 25, 50), seed: int = 0) -> Sequences:
    """Random sequences with the target's real hidden states."""
    chance = torch.Generator().manual_seed(seed)
    tokens = torch.randint(target.spec.vocab_size, (sum(lengths),), generator=chance, dtype=torch.int32)
    hidden = torch.cat([_features(target, part.tolist()) for part in tokens.split(lengths)])
    starts = torch.tensor([0, *lengths]).cumsum(0)[:-1].tolist()
    return Sequences(tokens, hidden.half(), tuple(starts), (10,) * len(lengths))


def shortlist(target: Target) -> torch.Tensor:
    """Two hundred ids with gaps between them."""
    return torch.randperm(target.spec.vocab_size, generator=torch.Generator().manual_seed(1))[:200].sort().values


def learner(kind: str, target: Target, seed: int = 0, **changes: Any) -> Learner:
    """A training of the kind that has not begun."""
    torch.manual_seed(seed)
    recipe = replace(RECIPES[kind], **changes)
    text, ids = made_text(target), shortlist(target)
    if kind == "draft":
        return DraftLearner(recipe, text.tokens, target.spec.vocab_size, seed, ids)
    teacher = Teacher.of(text.hidden, target.head[ids], lambda _: None)
    data = FeatureText(target, text, teacher, ids)
    if kind == "eagle":
        return EagleLearner(recipe, data, seed)
    if kind == "exit":
        sequences = [text.tokens[text.span(index)].tolist() for index in range(len(text))]
        return ExitLearner(recipe, data, seed, target.after_layers(recipe.exit_layers, sequences, 2))
    return MedusaLearner(recipe, data, seed) if kind == "medusa" else SelfLearner(recipe, data, seed, ids)


def artefact_of(kind: str, made: Learner, target: Target) -> Artefact:
    """What training would save; the network is given the rounded weights, so that it and the draft are the same."""
    tensors: dict[str, Any] = {}
    for name, tensor in made.tensors().items():
        tensors[name] = rounded_rows(tensor) if tensor.dim() == 2 else tensor.detach().float()
        if tensor.dim() == 2:
            tensor.copy_(tensors[name].dequantized())
    recipe = RECIPES[kind]
    named = {"name": target.name, "fingerprint": target.fingerprint}
    about = {"shape": None if recipe.shape is None else asdict(recipe.shape), "exit_layers": recipe.exit_layers}
    return Artefact(recipe.kind, tensors, shortlist(target), named, about)


def row(tokens: tuple[int, ...], start: int = 0, request_id: str = "a") -> Row:
    """A computed row of a step."""
    return Row(request_id, start, tokens, (), is_prefill=len(tokens) > 1)


class Made:
    """A draft twice: as a network, and as what would be loaded of it."""

    def __init__(self, kind: str, directory: Path, kernels: str = "torch") -> None:
        if kernels == "compiled" and compiled_here().kernels != kernels:
            pytest.skip("no compiler")
        self.kind, self.directory, self.target = kind, directory, target_of(directory, kernels)
        made = learner(kind, self.target)
        with torch.no_grad():
            for parameter in made.network.parameters():  # so that no two ids are nearly equal
                parameter.normal_(0, 0.4)
        self.ids, self.network = shortlist(self.target), made.network
        self.artefact = artefact_of(kind, made, self.target)

    def proposer(self) -> Proposer:
        return proposer_of(self.artefact, self.target.loaded, self.target.opened)

    def hidden(self, tokens: list[int]) -> torch.Tensor:
        """The target's features of a sequence."""
        return _features(self.target, tokens)

    def reference(self, tokens: list[int], k: int = 4) -> list[int]:
        """Greedy drafts after `tokens` by the network alone, each from a pass over everything."""
        with torch.no_grad():
            by_kind = {"draft": self._llama, "self": self._llama, "exit": self._exit, "eagle": self._eagle}
            return by_kind.get(self.kind, self._medusa)(tokens, k)

    def _llama(self, tokens: list[int], k: int) -> list[int]:
        network = self.network
        assert isinstance(network, SmallLlama)
        head = network.head()
        if self.kind == "self":  # its projections are folded into the target's tables, which are then rounded
            folded = SmallLlama(network.shape, self.target.spec.vocab_size, self.ids, None)
            folded.load_state_dict(network.state_dict(), strict=False)
            folded.embed_tokens.weight.copy_(rounded_rows(network.table()).dequantized())
            network, head = folded, rounded_rows(head).dequantized()
        found = list(tokens)
        for _ in range(k):
            logits = network(torch.tensor(found)[None])[0, -1] @ head.t()
            found.append(int(self.ids[logits.argmax()]))
        return found[len(tokens) :]

    def _exit(self, tokens: list[int], k: int) -> list[int]:
        """transformers' model of the first layers, rounded as the draft holds them."""
        network = self.network
        assert isinstance(network, Exit)
        oracle = AutoModelForCausalLM.from_pretrained(self.directory, dtype=torch.float32).model
        oracle.layers = oracle.layers[: RECIPES["exit"].exit_layers]
        for parameter in oracle.parameters():
            if parameter.dim() == 2:
                parameter.copy_(rounded_rows(parameter).dequantized())
        oracle.norm.weight.copy_(network.norm.weight)
        head = rounded_rows(self.target.head[self.ids] @ network.project_out.weight).dequantized()
        found = list(tokens)
        for _ in range(k):
            state = oracle(torch.tensor(found)[None]).last_hidden_state[0, -1]
            found.append(int(self.ids[(head @ state).argmax()]))
        return found[len(tokens) :]

    def _eagle(self, tokens: list[int], k: int) -> list[int]:
        network, found = self.network, list(tokens)
        assert isinstance(network, Eagle)
        head = rounded_rows(self.target.head[self.ids]).dequantized()
        features = self.hidden(tokens)[:-1]
        for _ in range(k):
            embedded = self.target.embedding[torch.tensor(found[1:])]
            (out,) = network(embedded[None], features[None])
            found.append(int(self.ids[(head @ out[0, -1]).argmax()]))
            features = torch.cat([features, out[0, -1:]])
        return found[len(tokens) :]

    def _medusa(self, tokens: list[int], k: int) -> list[int]:
        network = self.network
        assert isinstance(network, Medusa)
        feature = self.hidden(tokens)[-2]
        embedded = self.target.embedding[tokens[-1]]
        states = [network(embedded, feature, head) for head in range(k)]
        return [int(self.ids[(self.target.head[self.ids] @ state).argmax()]) for state in states]


def _features(target: Target, tokens: list[int]) -> torch.Tensor:
    """The target's own, from a pass of an engine over the tokens as a prompt; float16 keeps them as training does."""
    ((_, hidden),) = target.replies([(tokens, SamplingParams(max_tokens=1))], batch=1)
    return hidden.float()
