"""Whether a tree of drafts would beat a chain for Medusa and EAGLE: its tokens a pass, against what its pass costs.

A tree of widths (2, 1, 1) proposes two first tokens and goes on from each. A pass accepts as far as the target's own
token is among the likeliest so many of the draft at every depth, which the held-out replies tell exactly. The cost of
verifying n drafts is that of a chain of n, measured in turns; what a tree takes beyond that (its mask, moving the
accepted keys, the draft's own branches) is left out, in the tree's favour.
`python benchmarks/draft_trees.py --rounds 9`
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from operator import mul
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from interleave import interleaved, markdown, ratio

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.model.loader import LoadedModel, load_model
from core_engine.plan import Row
from core_engine.sampling_params import SamplingParams
from core_engine.speculation.artefact import Artefact, load, shipped
from core_engine.speculation.proposer import Ask, Draft
from core_engine.speculation.training.acceptance import HELD_OUT
from core_engine.speculation.training.corpus import Sequences, corpus
from core_engine.speculation.training.networks import Eagle, Medusa, Shape
from core_engine.speculation.training.target import Target, open_target

DEPTH = 4
CHAINS = [(1,) * depth for depth in (1, 2, 3, 4)]
TREES = [(2, 1), (3, 1), (2, 2), (2, 1, 1), (3, 1, 1), (2, 2, 1), (3, 2, 1), (2, 1, 1, 1), (3, 1, 1, 1), (2, 2, 1, 1),
         (4, 1, 1, 1)]  # fmt: skip
KINDS = ("medusa", "eagle")
STEPS = 24  # of a round
PROMPT = 256
WRONG = 0  # a token that no step may choose


def drafts_of(widths: Sequence[int]) -> int:
    """Drafts in a tree, which is what a pass verifies beside the newest token."""
    return sum(accumulate(widths, mul))


def ranks_of(artefact: Artefact, target: Target, text: Sequences) -> list[torch.Tensor]:
    """For each reply: [passes that could begin, DEPTH], how many ids the draft finds likelier than the reply's own.

    Row i is of the pass that knows the reply's first i + 1 tokens; a token outside the shortlist is never found.
    """
    place = torch.full((target.spec.vocab_size,), -1)
    place[artefact.shortlist] = torch.arange(len(artefact.shortlist))
    head, found = target.head[artefact.shortlist], []
    for index in range(len(text)):
        span, asked = text.span(index), text.prompt_tokens[index]
        tokens, hidden = text.tokens[span].long(), text.hidden[span].float()
        ranks = torch.full((len(tokens) - asked, DEPTH), len(artefact.shortlist))
        for depth, states in enumerate(_states(artefact, target, tokens, hidden)):
            # states[i] is what the draft number `depth` says after token i + 1 + depth, in the pass that knows i + 2.
            goals = place[tokens[asked + 1 + depth :]]
            logits = states[asked - 1 : asked - 1 + len(goals)] @ head.t()
            own = logits.gather(1, goals.clamp_min(0)[:, None])
            above = (logits > own).sum(1)
            ranks[: len(goals), depth] = torch.where(goals >= 0, above, len(artefact.shortlist))
        found.append(ranks)
    return found


@torch.inference_mode()
def _states(artefact: Artefact, target: Target, tokens: torch.Tensor, hidden: torch.Tensor) -> list[torch.Tensor]:
    """Of each draft in a row: the feature [positions, hidden] that the head is given, by the pass's first position."""
    scales = tuple(artefact.plain("scales").tolist())
    embedded, features = F.embedding(tokens[1:], target.embedding), hidden[:-1]
    plain = {name: artefact.plain(name) for name in artefact.tensors if name != "scales"}
    if artefact.kind == "medusa":
        network = Medusa(hidden.shape[1], DEPTH, scales)
        network.load_state_dict(plain)
        return [network(embedded, features, head) for head in range(DEPTH)]
    layer = Eagle(Shape(**artefact.about["shape"]), scales)
    renamed = {name.replace("model.layers.0.", "layer.").replace("model.norm", "norm"): w for name, w in plain.items()}
    layer.load_state_dict(renamed)
    drafts = layer(embedded[None], features[None], DEPTH)
    return [states[0, depth:] for depth, states in enumerate(drafts)]  # draft d of the pass at i stands at i + d


def tokens_per_pass(ranks: Sequence[torch.Tensor], widths: Sequence[int]) -> float:
    """Mean tokens that a target pass brings."""
    passes = emitted = 0
    for reply in ranks:
        at = 0
        while at < len(reply) - 1:
            accepted = 0
            while accepted < len(widths) and reply[at, accepted] < widths[accepted]:
                accepted += 1
            gained = min(accepted + 1, len(reply) - 1 - at)
            passes, emitted, at = passes + 1, emitted + gained, at + gained
    return emitted / passes


class Wrong:
    """Proposes so many drafts that are never right."""

    needs_hidden = False

    def __init__(self, count: int) -> None:
        self._count = count

    def propose(self, asks: Sequence[Ask]) -> list[Draft]:
        """The token that the sampling forbids."""
        return [Draft((WRONG,) * min(self._count, ask.k)) for ask in asks]

    def observe(self, rows: Sequence[Row], hidden: torch.Tensor) -> None:
        """Nothing."""

    def release(self, request_id: str) -> None:
        """Nothing is held."""

    def weights_bytes(self) -> int:
        """None."""
        return 0

    def cache_bytes(self) -> int:
        """None."""
        return 0


def stepping(loaded: LoadedModel, drafts: int, steps: int) -> Callable[[], None]:
    """Goes on with a sequence by STEPS steps at each call, so many in all, each verifying so many drafts."""
    config = EngineConfig.from_settings(
        {"dtype": "bf16", "prefix_cache": "off", "draft_control": "fixed", "num_draft_tokens": max(1, drafts),
         "max_num_seqs": 1, "kv_memory_mib": 64}
    )  # fmt: skip
    engine = Engine(config, loaded, proposer=Wrong(drafts) if drafts else None)
    never = {WRONG: -100.0}
    engine.add(list(range(1000, 1000 + PROMPT)), SamplingParams(max_tokens=steps, ignore_eos=True, logit_bias=never))
    engine.expect_more_arrivals(False)

    def go_on() -> None:
        for _ in range(STEPS):
            engine.step()

    return go_on


def report(measured: Mapping[str, list[float]], ranks: Mapping[str, list[torch.Tensor]]) -> list[dict[str, Any]]:
    """Of every shape: its tokens a pass, the cost of the pass in plain ones, and what is left of both."""
    rows = []
    for widths in (*CHAINS, *TREES):
        cost = ratio(measured[str(drafts_of(widths))], measured["0"])["median"]
        tokens = {kind: tokens_per_pass(found, widths) for kind, found in ranks.items()}
        rows.append(
            {"widths": widths, "drafts": drafts_of(widths), "v": cost, "tokens_per_pass": tokens,
             "tokens_per_plain_pass": {kind: value / cost for kind, value in tokens.items()}}
        )  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--model", default="embedded", help="embedded or embedded-wide")
    parser.add_argument("--out", type=Path, help="also write the rows as JSON")
    options = parser.parse_args()
    target = open_target(EngineConfig())
    held = corpus(target, HELD_OUT, print)
    ranks = {kind: ranks_of(load(shipped(kind)), target, held) for kind in KINDS}
    del target
    loaded = load_model(EngineConfig.from_settings({"model": options.model, "dtype": "bf16"}))
    sizes = sorted({0, *(drafts_of(widths) for widths in (*CHAINS, *TREES))})
    most = STEPS * (options.rounds + 1) + 2
    measured = interleaved({str(size): stepping(loaded, size, most) for size in sizes}, options.rounds)
    rows = report(measured, ranks)
    cells = [
        [str(row["widths"]), str(row["drafts"]), f"{row['v']:.2f}"]
        + [f"{row[name][kind]:.2f}" for kind in KINDS for name in ("tokens_per_pass", "tokens_per_plain_pass")]
        for row in rows
    ]
    names = [f"{kind}: {what}" for kind in KINDS for what in ("tokens a pass", "tokens in a plain pass's time")]
    print(markdown(["widths", "drafts", "v", *names], cells))
    if options.out:
        options.out.write_text(json.dumps({"model": loaded.name, "rounds": options.rounds, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
