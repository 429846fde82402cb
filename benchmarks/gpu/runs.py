"""Whole runs of the engine on a device: what capturing and overlap gain a user, and what drafts do."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.model.loader import LoadedModel
from core_engine.request import SamplingParams
from experiments.speculation.constructed import ConstructedProposer

PROMPT_TOKENS = 128
ONLY = "answer"
WARM_UP = 8  # decode steps that do not count


def prompts(batch: int) -> list[list[int]]:
    """Different ones, of ids that every model has."""
    return [[3 + (7 * index + place) % 240 for place in range(PROMPT_TOKENS)] for index in range(batch)]


def base_settings(batch: int) -> dict[str, Any]:
    """Room for `batch` answers, and prompts that are computed in one step where they fit."""
    return {"max_num_seqs": batch, "max_num_batched_tokens": 4096, "kv_memory_mib": 4096, "prefix_cache": "off"}


def decode_ms(loaded: LoadedModel, batch: int, tokens: int, settings: Mapping[str, Any]) -> float:
    """Median wall time from one decode step's result to the next one's, in a run of `batch` answers."""
    engine = Engine(EngineConfig.from_settings({**base_settings(batch), **settings}), loaded)
    engine.generate(prompts(batch), SamplingParams(max_tokens=tokens, ignore_eos=True))
    ends = [step["execute_end_ns"] for step in engine.trace.steps if not step["prefill_tokens"]][WARM_UP:]
    return statistics.median(b - a for a, b in pairwise(ends)) / 1e6


def switches(loaded: LoadedModel, batch: int, tokens: int, rounds: int = 3) -> dict[str, Any]:
    """Decode with overlap, graph and fused operators on, and each off alone, in turns: ms a step and times faster."""
    arms: dict[str, dict[str, str]] = {
        "all on": {}, **{f"{name} off": {name: "off"} for name in ("overlap", "graph", "fused_ops")},
        "all off": {"overlap": "off", "graph": "off", "fused_ops": "off"},
    }  # fmt: skip
    found: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(rounds):
        for name in arms if turn % 2 == 0 else reversed(arms):
            found[name].append(decode_ms(loaded, batch, tokens, arms[name]))
    medians = {name: statistics.median(values) for name, values in found.items()}
    return {
        "model": loaded.name,
        "batch": batch,
        "step_ms": medians,
        "times_all_on": {name: value / medians["all on"] for name, value in medians.items()},
    }


def speculation(loaded: LoadedModel, alphas: tuple[float, ...], drafts: int, tokens: int) -> dict[str, Any]:
    """Constructed drafts that cost nothing, right with each probability, against plain decoding of one sequence.

    equal: whether the answer is the one without drafts. In bf16 a verified row may round otherwise than a single one
    does, so that near ties differ; random weights have many.
    """
    answer, plain_s, _ = _answer(loaded, tokens, {}, None)
    rows = []
    for alpha in alphas:
        settings = {"speculation": "ngram", "num_draft_tokens": drafts, "draft_control": "fixed"}
        known = {ONLY: [*prompts(1)[0], *answer]}
        proposer = ConstructedProposer(known, alpha, 0.0, vocab_size=loaded.spec.vocab_size)
        drafted, seconds, counters = _answer(loaded, tokens, settings, proposer)
        again, plain_s, _ = _answer(loaded, tokens, {}, None)
        rows.append({"aimed_at": alpha, "speed_up": plain_s / seconds, "equal": drafted == again, **counters})
    return {"model": loaded.name, "drafts": drafts, "tokens": tokens, "rows": rows}


def _answer(
    loaded: LoadedModel, tokens: int, settings: Mapping[str, Any], proposer: ConstructedProposer | None
) -> tuple[list[int], float, dict[str, Any]]:
    """Token ids of one greedy answer, seconds of its decode steps, and the counters of its drafts."""
    engine = Engine(EngineConfig.from_settings({**base_settings(1), **settings}), loaded, proposer=proposer)
    engine.add(prompts(1)[0], SamplingParams(max_tokens=tokens, ignore_eos=True), request_id=ONLY)
    while engine.has_unfinished():
        engine.step()
    steps = [step for step in engine.trace.steps if not step["prefill_tokens"]]
    seconds = (steps[-1]["commit_end_ns"] - steps[0]["plan_start_ns"]) / 1e9
    return engine.completions(ONLY)[0].token_ids, seconds, engine.speculation.counters()
