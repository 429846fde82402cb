"""What is trained, for how long and on what: one recipe a kind of draft, written into every artefact.

The defaults are sized for the embedded model on two cores; what a training took is in its artefact.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from core_engine.speculation.training.corpus import CorpusSpec
from core_engine.speculation.training.networks import Shape

HEADS = 4  # tokens that Medusa predicts


@dataclass(frozen=True)
class Recipe:
    """steps of `batch` pieces of at most `length` tokens. shape: of the draft's layers, None where it has none.

    exit_layers: layers of the target that the draft consists of instead, 0 for none. shortlist: ids that the draft can
    propose. depths: (share of the steps, drafts in a row) of EAGLE, in order. text:
    what the target generates for it; None for the independent draft, which learns from text that others wrote.
    """

    kind: str
    steps: int
    batch: int
    length: int
    learning_rate: float
    shortlist: int = 8192
    shape: Shape | None = None
    depths: tuple[tuple[float, int], ...] = ()
    text: CorpusSpec | None = None
    exit_layers: int = 0

    def depth(self, step: int) -> int:
        """Drafts in a row that a step trains."""
        done, depth = 0.0, 1
        for share, depth in self.depths:
            done += share * self.steps
            if step < done:
                return depth
        return depth

    def described(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def recipe(
    kind: str,
    hidden_size: int,
    seed: int,
    steps: int | None = None,
    prompts: int | None = None,
    exit_layers: int | None = None,
) -> Recipe:
    """The recipe of a kind for a target of that hidden size; steps and prompts instead of its own where given.

    exit_layers: for `self`, that many of the target's own layers instead of a small Llama.
    """
    small = Shape(192, 512, 4, 6, 2, 32)
    text = CorpusSpec(seed=seed) if prompts is None else CorpusSpec(num_prompts=prompts, seed=seed)
    found = {
        "eagle": Recipe(
            "eagle", 1000, 8, 192, 1e-3, shape=_one_layer(hidden_size), depths=((0.5, 1), (0.5, 3)), text=text
        ),
        "medusa": Recipe("medusa", 800, 12, 96, 1e-3, text=text),
        "self": Recipe("self", 1400, 12, 192, 2e-3, shape=small, text=text),
        "draft": Recipe("draft", 1000, 16, 128, 2e-3, shape=replace(small, hidden_size=128, num_heads=4), text=None),
    }[kind]
    if exit_layers is not None:
        found = replace(found, steps=600, shape=None, exit_layers=exit_layers)
    return found if steps is None else replace(found, steps=steps)


def _one_layer(hidden_size: int) -> Shape:
    """A layer as wide as the target; the gated MLP is twice as wide as the features."""
    head_dim = 64 if hidden_size % 64 == 0 else 32
    heads = hidden_size // head_dim
    return Shape(hidden_size, 2 * hidden_size, 1, heads, 3 if heads % 3 == 0 else 1, head_dim)
