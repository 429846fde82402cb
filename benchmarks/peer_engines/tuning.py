"""Finds an engine's best settings here: one change after another against the best so far, in turn, the winner stays."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

from core_engine.environment import cpu_name
from experiments.workloads.text import TokenizerLike
from ledger.errors import CannotRunError
from peer_engines.contestants import Contestant, all_ended
from peer_engines.settings import KINDS, base, contestant, tuned, tuned_file
from peer_engines.turns import TooLongError, Work, prompts_of, turn

TRIED_ON = (Work("decode 1", 1, 128, 32), Work("decode 8", 8, 128, 32), Work("decode 32", 32, 128, 32),
            Work("prefill 512", 1, 512, 1))  # fmt: skip
WINS_FROM = 1.02  # a change that gains less is as good as none


def tune(
    name: str, root: Path, threads: int, tokenizer: TokenizerLike, rounds: int, longest_s: float,
    report: Callable[[str], None],
) -> None:  # fmt: skip
    """Try every change of an engine and store what is best with all that was tried, beside the other engines'."""
    options, environment = base(name)
    tried: list[dict[str, Any]] = []
    best = contestant(name, root, threads, options, environment, f"{name}, as documented")
    players = [best]
    with all_ended(players):
        best.start()
        for change in KINDS[name].changes:
            new = options | dict(change.options), environment | dict(change.environment)
            rival = contestant(name, root, threads, *new, f"{name}, {change.label}")
            players.append(rival)
            row = {"change": change.label} | _tried(best, rival, tokenizer, rounds, longest_s)
            if row["kept"]:
                (options, environment), loser, best = new, best, rival
            else:
                loser = rival
            loser.end()
            tried.append(row)
            outcome = row["failed"] if "failed" in row else f"{row['gain']:.3f}"
            report(f"{name}: {change.label}: {outcome}{', kept' if row['kept'] else ''}")
    entry = {"options": options, "environment": environment, "tried": tried, "cpu": cpu_name()}
    tuned_file(root).write_text(json.dumps(tuned(root) | {name: entry}, indent=1), "utf-8")


def _tried(
    best: Contestant, rival: Contestant, tokenizer: TokenizerLike, rounds: int, longest_s: float
) -> dict[str, Any]:
    """What came of one change: its gains and start-up, or why it failed; whether it is kept."""
    try:
        rival.start()
        gains = _gains(best, rival, tokenizer, rounds, longest_s)
    except CannotRunError as error:
        return {"failed": str(error), "kept": False}
    gain = _geometric_mean(list(gains.values()))
    return {"gains": gains, "gain": gain, "startup_s": rival.startup_s, "kept": gain >= WINS_FROM}


def _gains(
    best: Contestant, rival: Contestant, tokenizer: TokenizerLike, rounds: int, longest_s: float
) -> dict[str, float]:
    """How many times as much a second the rival does, by piece of work: medians of the ratios of the same round.

    A piece of work that takes too long is left out. CannotRunError when all do.
    """
    gains: dict[str, list[float]] = {}
    for number in range(rounds):
        for work in TRIED_ON:
            prompts = prompts_of(work, tokenizer, number)
            figure = "prefill_tokens_per_s" if work.is_prefill else "output_tokens_per_s"
            try:
                old, new = (turn(each, work, prompts, longest_s)[figure] for each in (best, rival))
            except TooLongError:
                continue
            gains.setdefault(work.name, []).append(new / old)
    if not gains:
        raise CannotRunError(f"{rival.name}: every turn would take longer than {longest_s:,.0f} s")
    return {name: median(ratios) for name, ratios in gains.items()}


def _geometric_mean(values: Sequence[float]) -> float:
    return exp(sum(map(log, values)) / len(values))
