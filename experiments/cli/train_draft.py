"""`trilemma train-draft`: a draft model for speculative decoding."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.cli.numbers import whole
from experiments.cli.options import Json, Set, settings
from experiments.cli.output import note, print_json

Kind = Annotated[str, typer.Argument(metavar="KIND", help="draft, medusa, eagle or self.")]
Out = Annotated[
    str | None,
    typer.Option("--out", metavar="FILE", help="Where the draft goes; by default into the cache directory."),
]
Steps = Annotated[str | None, typer.Option("--steps", metavar="N", help="Training steps instead of the recipe's own.")]
Prompts = Annotated[
    str | None,
    typer.Option("--prompts", metavar="N", help="Prompts that the model answers for medusa, eagle and self."),
]
Text = Annotated[
    str | None,
    typer.Option(
        "--text",
        metavar="PATH",
        help="For draft: a text file or a directory of text instead of the installed documentation.",
    ),
]
ExitLayers = Annotated[
    str | None,
    typer.Option(
        "--exit-layers",
        metavar="N",
        help="For self: the model's own first N layers and a trained way out of them, instead of a small Llama.",
    ),
]
Seed = Annotated[str, typer.Option("--seed", metavar="N", help="Seed of prompts, text, weights and batches.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Begin anew instead of going on from the last checkpoint.")]


def train_draft(
    kind: Kind,
    out: Out = None,
    steps: Steps = None,
    prompts: Prompts = None,
    text: Text = None,
    exit_layers: ExitLayers = None,
    seed: Seed = "0",
    fresh: Fresh = False,
    sets: Set = None,
    as_json: Json = False,
) -> None:
    """Train a draft for a model, and measure on held-out prompts how many tokens it brings a pass of the model.

    draft: a small Llama trained on text that the model did not write. medusa: heads on its last hidden state. eagle:
    one layer that continues its hidden states. self: a small Llama distilled from it, or with --exit-layers its own
    first layers. The last three learn from text that the model generates, made once and shared. Stopped at any moment,
    the same command goes on where it was. The draft is used with --set speculation=KIND --set draft_model=FILE.
    """
    from core_engine.config import EngineConfig
    from core_engine.model.embedded import cache_root
    from core_engine.speculation.training.train import Wish, refuse
    from core_engine.speculation.training.train import train_draft as train

    wish = Wish(
        kind,
        cache_root() / "drafts" / f"{kind}.safetensors" if out is None else Path(out),
        seed=whole("seed", seed) or 0,
        steps=whole("steps", steps),
        prompts=whole("prompts", prompts),
        text=None if text is None else Path(text),
        exit_layers=whole("exit_layers", exit_layers),
        fresh=fresh,
    )
    refuse(wish)
    result = train(EngineConfig.from_settings(settings(sets)), wish, note)
    if as_json:
        print_json(result)
    else:
        print(_text(result))


def _text(result: dict[str, Any]) -> str:
    measured, cost = result["acceptance"], result["cost"]
    alphas = ", ".join("-" if alpha is None else f"{alpha:.2f}" for alpha in measured["alpha_by_position"])
    return (
        f"{result['out']}: {result['kind']} draft for {result['target']['name']}, {result['bytes']:,} B; "
        f"{cost['steps']} steps in {cost['seconds']:.0f} s; "
        f"{measured['tokens_per_pass']} tokens a target pass (greedy, k={measured['k']}, "
        f"{measured['prompts']} held-out prompts; alpha by position {alphas})"
    )
