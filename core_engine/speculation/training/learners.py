"""What each kind of draft learns: its network, the loss of a step, and the tensors that are kept of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import nn

from core_engine.speculation.training.batches import Teacher, distilled, pieces
from core_engine.speculation.training.corpus import Sequences
from core_engine.speculation.training.networks import Eagle, Exit, Medusa, SmallLlama
from core_engine.speculation.training.recipes import HEADS, Recipe
from core_engine.speculation.training.target import Target

LATER = 0.8  # weight of each further draft of EAGLE against the one before it
REGRESSION = 0.5  # weight of EAGLE's error in features, in units of their typical size, beside the cross-entropy
# Positions that each Medusa head learns from: of later ones fewer, since a pass seldom gets so far.
SHARES = (1.0, 0.7, 0.5, 0.4)


class Learner(Protocol):
    """One training."""

    @property
    def network(self) -> nn.Module:
        """What is trained."""
        ...

    def loss(self, step: int) -> torch.Tensor:
        """Of a step, drawn from (seed, step) alone."""
        ...

    def tensors(self) -> dict[str, torch.Tensor]:
        """What the artefact keeps."""
        ...


def shortlist_of(tokens: torch.Tensor, vocab_size: int, size: int, always: Sequence[int] = ()) -> torch.Tensor:
    """The `size` ids that occur most, ascending; those that never do follow by id, which a BPE gives by frequency."""
    counts = torch.bincount(tokens.long(), minlength=vocab_size).double()
    counts[list(always)] += len(tokens)
    order = counts - torch.arange(vocab_size) / vocab_size
    return order.topk(min(size, vocab_size)).indices.sort().values


def _scales(target: Target, text: Sequences) -> tuple[float, float]:
    """Root mean squares of embeddings and features."""
    features = text.hidden[:: max(1, len(text.hidden) // 4096)].float()
    return float(target.embedding.square().mean().sqrt()), float(features.square().mean().sqrt())


class FeatureText:
    """Generated text with what EAGLE and Medusa read from it."""

    def __init__(self, target: Target, text: Sequences, teacher: Teacher, shortlist: torch.Tensor) -> None:
        self.text, self.teacher = text, teacher
        self.embedding, self.head = target.embedding, target.head[shortlist]
        self.scales = _scales(target, text)

    def embedded(self, places: torch.Tensor) -> torch.Tensor:
        """Embeddings of the tokens at `places`, [*places, hidden]."""
        return F.embedding(self.text.tokens[places].long(), self.embedding)

    def features(self, places: torch.Tensor) -> torch.Tensor:
        """The target's features there."""
        return self.text.hidden[places].float()


class EagleLearner:
    """Feature regression and distillation, over several drafts in a row in the later steps."""

    def __init__(self, recipe: Recipe, data: FeatureText, seed: int) -> None:
        assert recipe.shape is not None
        self._recipe, self._data, self._seed = recipe, data, seed
        self.network = Eagle(recipe.shape, data.scales)

    def loss(self, step: int) -> torch.Tensor:
        recipe, data = self._recipe, self._data
        batch = pieces(data.text, self._seed, step, recipe.batch, recipe.length)
        now, after = batch.places[:, :-1], batch.places[:, 1:]
        wanted = data.features(after)
        total = torch.zeros(())
        weights = 0.0
        drafts = self.network(data.embedded(after), data.features(now), recipe.depth(step))
        for index, found in enumerate(drafts):
            counted = batch.real[:, 1:].clone()
            counted[:, :index] = False
            loss = distilled(found[counted], data.head, data.teacher, after[counted])
            error = F.smooth_l1_loss(found[counted] / data.scales[1], wanted[counted] / data.scales[1])
            total = total + LATER**index * (loss + REGRESSION * error)
            weights += LATER**index
        return total / weights

    def tensors(self) -> dict[str, torch.Tensor]:
        state = self.network.state_dict()
        found = {name.replace("layer.", "model.layers.0.", 1): tensor for name, tensor in state.items()}
        found["model.norm.weight"] = found.pop("norm.weight")
        return found | {"scales": torch.tensor(self._data.scales)}


class MedusaLearner:
    """Each head is distilled from what the target predicts so many tokens later, given the real ones between."""

    def __init__(self, recipe: Recipe, data: FeatureText, seed: int) -> None:
        self._recipe, self._data, self._seed = recipe, data, seed
        self.network = Medusa(data.embedding.shape[1], HEADS, data.scales)

    def loss(self, step: int) -> torch.Tensor:
        data = self._data
        batch = pieces(data.text, self._seed, step, self._recipe.batch, self._recipe.length)
        chance = torch.Generator().manual_seed(self._seed * 1_000_003 + step)
        total = torch.zeros(())
        for head, share in enumerate(SHARES):
            ahead = head + 1
            real = batch.real[:, ahead:] & (torch.rand(batch.real[:, ahead:].shape, generator=chance) < share)
            now, after, goal = (
                places[real]
                for places in (
                    batch.places[:, :-ahead],
                    batch.places[:, 1 : batch.places.shape[1] - ahead + 1],
                    batch.places[:, ahead:],
                )
            )
            found = self.network(data.embedded(after), data.features(now), head)
            total = total + distilled(found, data.head, data.teacher, goal)
        return total / len(SHARES)

    def tensors(self) -> dict[str, torch.Tensor]:
        return dict(self.network.state_dict()) | {"scales": torch.tensor(self._data.scales)}


class SelfLearner:
    """A small Llama over the target's embedding and head, distilled on the target's own text."""

    def __init__(self, recipe: Recipe, data: FeatureText, seed: int, shortlist: torch.Tensor) -> None:
        assert recipe.shape is not None
        self._recipe, self._data, self._seed = recipe, data, seed
        self.network = SmallLlama(recipe.shape, len(data.embedding), shortlist, data.embedding)

    def loss(self, step: int) -> torch.Tensor:
        data = self._data
        batch = pieces(data.text, self._seed, step, self._recipe.batch, self._recipe.length)
        found = self.network(data.text.tokens[batch.places].long())
        return distilled(found[batch.real], self.network.head(), data.teacher, batch.places[batch.real])

    def tensors(self) -> dict[str, torch.Tensor]:
        return _llama_tensors(self.network)


class ExitLearner:
    """A norm and a projection between the target's first layers and its head, distilled on the target's own text."""

    def __init__(self, recipe: Recipe, data: FeatureText, seed: int, states: torch.Tensor) -> None:
        """states float16 [num_tokens, hidden_size]: what the first layers give at every token, as a final norm divides
        it."""
        self._recipe, self._data, self._seed, self._states = recipe, data, seed, states
        self.network = Exit(states.shape[1])

    def loss(self, step: int) -> torch.Tensor:
        data = self._data
        batch = pieces(data.text, self._seed, step, self._recipe.batch, self._recipe.length)
        places = batch.places[batch.real]
        return distilled(self.network(self._states[places].float()), data.head, data.teacher, places)

    def tensors(self) -> dict[str, torch.Tensor]:
        return _llama_tensors(self.network)


class DraftLearner:
    """A small Llama of its own, with plain cross-entropy; ids outside the shortlist are no goal."""

    def __init__(
        self, recipe: Recipe, tokens: torch.Tensor, vocab_size: int, seed: int, shortlist: torch.Tensor
    ) -> None:
        assert recipe.shape is not None
        self._recipe, self._tokens, self._seed = recipe, tokens.long(), seed
        self.network = SmallLlama(recipe.shape, vocab_size, shortlist, None)
        nn.init.normal_(self.network.embed_tokens.weight, std=recipe.shape.hidden_size**-0.5)
        self._place = torch.full((vocab_size,), -100)
        self._place[shortlist] = torch.arange(len(shortlist))

    def loss(self, step: int) -> torch.Tensor:
        recipe = self._recipe
        chance = torch.Generator().manual_seed(self._seed * 1_000_003 + step)
        starts = torch.randint(len(self._tokens) - recipe.length - 1, (recipe.batch, 1), generator=chance)
        ids = self._tokens[starts + torch.arange(recipe.length + 1)]
        found, goals = self.network(ids[:, :-1]).flatten(0, 1), self._place[ids[:, 1:]].flatten()
        known = goals >= 0
        return F.cross_entropy(found[known] @ self.network.head().t(), goals[known])

    def tensors(self) -> dict[str, torch.Tensor]:
        return _llama_tensors(self.network)


def _llama_tensors(network: nn.Module) -> dict[str, torch.Tensor]:
    return {
        name if name.startswith("project") else f"model.{name}": tensor for name, tensor in network.state_dict().items()
    }
