"""Helpers that compare the engine with transformers: greedy references, passes in chunks, and the pairwise matrix."""

from __future__ import annotations

import functools
import itertools
import operator
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor.batch import build_batch
from core_engine.kernels.options import StepOptions
from core_engine.model.decoder import Decoder
from core_engine.model.loader import LoadedModel
from core_engine.plan import Row
from core_engine.request import SamplingParams
from core_engine.variables import VARIABLES

# Values that must not change a token. Variables that the registry does not have are left out.
MATRIX: dict[str, tuple[Any, ...]] = {
    name: values
    for name, values in {
        "batching": ("continuous", "static", "dynamic"),
        "chunked_prefill": ("on", "off"),
        "block_size": (1, 16, 64),
        "kv_layout": ("paged", "contiguous"),
        "prefix_cache": ("on", "off"),
        "kernels": ("torch", "compiled"),
        "graph": ("auto", "on", "off"),
        "fused_ops": ("on", "off"),
        "attention": ("flash", "naive"),
        "kv_splits": ("auto", "1", "4"),
    }.items()
    if name in VARIABLES
}
# What a value needs beside it to act: chunks are cut only by a budget below the prompts' lengths.
COMPANIONS: dict[tuple[str, Any], dict[str, Any]] = {
    ("chunked_prefill", "on"): {"max_num_batched_tokens": 13},
    ("chunked_prefill", "off"): {"max_num_batched_tokens": 256},
}


def pairwise(variables: Mapping[str, Sequence[Any]] = MATRIX) -> list[dict[str, Any]]:
    """A small list of settings in which every possible pair of values of two variables occurs (greedy cover).

    Combinations that the registry's `requires` and `excludes` rule out never occur.
    """
    items = [[(name, value) for value in values] for name, values in variables.items()]
    # A bit for each pair: thousands of cases are compared by the pairs that they would add.
    pairs = (pair for one, other in itertools.combinations(items, 2) for pair in itertools.product(one, other))
    bits = {pair: 1 << place for place, pair in enumerate(pairs)}
    impossible = sum(bit for (one, other), bit in bits.items() if rules_out(one, other) or rules_out(other, one))
    cases = {case: sum(bits[pair] for pair in itertools.combinations(case, 2)) for case in itertools.product(*items)}
    cases = {case: covered for case, covered in cases.items() if not covered & impossible}
    uncovered = functools.reduce(operator.or_, cases.values())
    chosen = []
    while uncovered:
        best = max(cases, key=lambda case: (cases[case] & uncovered).bit_count())
        uncovered &= ~cases[best]
        chosen.append(dict(best))
    return chosen


def engine_settings(case: Mapping[str, Any]) -> dict[str, Any]:
    """A case of the matrix with what its values need beside them."""
    settings = dict(case)
    for item in case.items():
        settings.update(COMPANIONS.get(item, {}))
    return settings


def rules_out(first: tuple[str, Any], second: tuple[str, Any]) -> bool:
    """Whether the registry says that the first (name, value) can't go with the second."""
    (name, value), (other, at) = first, second
    entry = VARIABLES[name]
    needed = entry.requires.get(str(value), {}).get(other, at)
    return needed != at or at in entry.ruled_out(value).get(other, ())


@dataclass(frozen=True)
class Reference:
    """Prompts and transformers' greedy continuations; margins are the differences of the two largest logits."""

    prompts: list[list[int]]
    ids: list[list[int]]
    margins: list[list[float]]


def greedy_reference(model: Any, prompts: list[list[int]], new_tokens: int, margin: float) -> Reference:
    """transformers' generate, one prompt at a time and without end tokens.

    AssertionError when a choice was nearer than `margin`: then equal ids would be luck, and the model has to change.
    """
    model.generation_config.eos_token_id = None
    ids, margins = [], []
    for prompt in prompts:
        out = model.generate(
            torch.tensor([prompt]),
            max_new_tokens=new_tokens,
            do_sample=False,
            pad_token_id=0,
            output_logits=True,
            return_dict_in_generate=True,
        )
        ids.append(out.sequences[0, len(prompt) :].tolist())
        top = torch.stack([logits[0].float().topk(2).values for logits in out.logits])
        margins.append((top[:, 0] - top[:, 1]).tolist())
    nearest = min(min(row) for row in margins)
    assert nearest > margin, f"the reference's nearest choice is {nearest:.2g}: pick another seed or initializer_range"
    assert all(len(set(row)) > 1 for row in ids), "a reference that repeats one token proves little"
    return Reference(prompts, ids, margins)


def ragged_prompts(lengths: Sequence[int], vocab: int = 256) -> list[list[int]]:
    """Random prompts of these lengths, the same in every call."""
    rng = random.Random(7)
    return [[rng.randrange(3, vocab) for _ in range(length)] for length in lengths]


def engine_greedy(loaded: LoadedModel, prompts: list[list[int]], new_tokens: int, **settings: Any) -> list[list[int]]:
    """Greedy ids of our engine, all prompts in one batch."""
    engine = Engine(EngineConfig.from_settings(settings), loaded)
    answers = engine.generate(prompts, SamplingParams(max_tokens=new_tokens, ignore_eos=True))
    return [answer.token_ids for answer in answers]


@torch.inference_mode()
def hidden_in_chunks(
    decoder: Decoder,
    ids: Sequence[int],
    chunk: int,
    block_size: int,
    *,
    layers: int | None = None,
    options: StepOptions = StepOptions(),
) -> torch.Tensor:
    """Normalised hidden states [tokens, hidden_size] of `ids`, computed `chunk` tokens at a time over scattered blocks.

    layers: stop after so many.
    """
    spec, weights = decoder.spec, decoder.weights
    if layers is not None:
        spec = replace(spec, num_layers=layers, windows=spec.windows[:layers])
        decoder = Decoder(spec, replace(weights, layers=weights.layers[:layers]))
    count = -(-len(ids) // block_size)
    blocks = tuple(torch.randperm(count, generator=torch.Generator().manual_seed(1)).tolist())
    shape = (spec.num_layers, 2, count + 1, block_size, spec.num_kv_heads, spec.head_dim)
    cache = torch.zeros(shape, dtype=weights.embedding.dtype)
    parts = []
    for start in range(0, len(ids), chunk):
        row = Row("row", start, tuple(ids[start : start + chunk]), blocks, is_prefill=True)
        batch = build_batch([row], block_size, cache.device, padding_block=count, windows=spec.windows)
        parts.append(decoder.forward(batch.token_ids, batch.positions, cache, batch.attention, options))
    return torch.cat(parts)
