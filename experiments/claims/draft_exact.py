"""C14: output with drafts against output without: greedy ids, and the distribution of sampled ones, for every form.

Sampled: many short answers to one prompt, each with a seed of its own, with drafts and without. Each answer is one of a
few sequences of tokens; how often each comes is compared by a two-sample chi-square test, and by the total variation
distance beside the one that two plain samples have from each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED, Verdict
from experiments.claims.draft_rows import Measure, evidence, missing, rows_of, spec_of

ANSWERS = 400  # with drafts, and as many without
TOKENS = 4  # of an answer: the first comes from the prefill, drafts can be verified in the others
TOP_K = 2  # so that there are few sequences, and each comes often
LEAST_EXPECTED = 5.0  # of a cell of the test; rarer sequences are counted together
TOO_UNLIKELY = 0.001
PLAIN, AGAIN = "off", "off again"

EXACT = "fp32"
Rows = Sequence[tuple[str, Mapping[str, Any]]]
"""(task, row of a form)."""
Answer = tuple[int, ...]
Draw = Callable[[Mapping[str, Any], Sequence[str]], Mapping[str, Sequence[Answer]]]
"""(settings, forms) -> the sampled answers of plain decoding, of plain decoding again, and of every form."""


def check(options: Mapping[str, Any], measure: Measure, draw: Draw | None = None) -> dict[str, Any]:
    """Greedy on every task, then sampled; forms that can't run here are rows with the reason.

    Greedy in float32, where the ids must be the same, and again in the format that this device computes in, if that is
    another and the reader asks for none.
    """
    result = _greedy(options, measure, EXACT)
    forms = list(dict.fromkeys(row["form"] for _, row in rows_of(result, "tasks")))
    own_format = _own_format(options)
    own = None if own_format is None or not forms else _greedy(options, measure, own_format)
    sampled = (draw or sample)(options.get("settings") or {}, forms)
    rows = [_sampled(form, sampled[PLAIN], sampled[form]) for form in (AGAIN, *forms)]
    in_own = None if own is None else (str(own_format), list(rows_of(own, "tasks")))
    verdict, reason = judge(list(rows_of(result, "tasks")), rows, in_own)
    greedy = [evidence(f"greedy, {task}", row, result) for task, row in rows_of(result, "tasks")]
    if own is not None:
        greedy += [evidence(f"greedy, {task}, {own_format}", row, own) for task, row in rows_of(own, "tasks")]
    return {"verdict": verdict, "reason": reason, "evidence": [*greedy, *rows, *missing(result)]}


def _greedy(options: Mapping[str, Any], measure: Measure, dtype: str) -> Mapping[str, Any]:
    return measure({**spec_of(options, batches=[], constructed=False, settings={"dtype": dtype}), "repeats": 1})


def _own_format(options: Mapping[str, Any]) -> str | None:
    """The format of "auto" on this device; None where it is the exact one, or the reader names one."""
    import torch

    from core_engine.environment import dtype_name, resolve_device, resolve_dtype

    settings = options.get("settings") or {}
    if settings.get("dtype", "auto") != "auto":
        return None
    device: torch.device = resolve_device(str(settings.get("device", "auto")))
    own = dtype_name(resolve_dtype("auto", device))
    return None if own == EXACT else own


def judge(greedy: Rows, sampled: Sequence[Mapping[str, Any]], in_own_format: tuple[str, Rows] | None = None) -> Verdict:
    """Holds when every greedy answer is the same and no distribution differs beyond chance.

    in_own_format: (format, greedy rows in it). Answers that differ there alone are a limit: drafts don't change what
    the model says, but a pass over several rows is rounded otherwise than one over a single row, which decides near
    ties.
    """
    if not greedy:
        return UNDECIDED, "no form of draft can run here"
    other = [f"{row['form']} on {task}" for task, row in greedy if row["identical"] < row["prompts"]]
    far = [f"{row['form']} (p = {row['p']:.2g})" for row in sampled if row["p"] < TOO_UNLIKELY]
    same, asked = _same(greedy)
    text = f"greedy: {same} of {asked} answers identical; sampled: " + ", ".join(
        f"{row['form']} p = {row['p']:.2g}, total variation {row['total_variation']:.3f}" for row in sampled
    )
    if other or far:
        return FAILS, f"{text}; differ: {', '.join([*other, *far])}"
    name, rows = in_own_format or ("", ())
    same, asked = _same(rows)
    if same < asked:
        return LIMITED, f"{text}; in {name} {same} of {asked}: rounding of several rows together decides near ties"
    return HOLDS, text


def _same(greedy: Rows) -> tuple[int, int]:
    """(answers identical, answers asked)."""
    return sum(row["identical"] for _, row in greedy), sum(row["prompts"] for _, row in greedy)


def sample(settings: Mapping[str, Any], forms: Sequence[str]) -> dict[str, list[Answer]]:
    """Draw them with the engine; every answer has a seed of its own, none comes twice."""
    from core_engine.config import EngineConfig
    from experiments.rig import Rig
    from experiments.speculation.tasks import prompt_ids

    rig, found = Rig(), {}
    for place, form in enumerate((PLAIN, AGAIN, *forms)):
        drafts = {} if form in (PLAIN, AGAIN) else {"speculation": form}
        config = EngineConfig.from_settings(
            {**settings, **drafts, "num_draft_tokens": TOKENS, "draft_control": "fixed"}
        )
        (prompt,) = prompt_ids(rig.tokenizer(config), "copy", 1)
        found[form] = _answers(rig.engine(config), prompt, range(place * ANSWERS, (place + 1) * ANSWERS))
    return found


def _answers(engine: Any, prompt: Sequence[int], seeds: Iterable[int]) -> list[Answer]:
    from core_engine.request import SamplingParams

    waiting = []
    for seed in seeds:
        params = SamplingParams(max_tokens=TOKENS, temperature=2.0, top_k=TOP_K, seed=seed, ignore_eos=True)
        waiting.append(engine.add(list(prompt), params))
    engine.expect_more_arrivals(False)
    while engine.has_unfinished():
        engine.step()
    return [tuple(engine.completion(request_id).token_ids) for request_id in waiting]


def _sampled(form: str, plain: Sequence[Answer], drafted: Sequence[Answer]) -> dict[str, Any]:
    counts = Counter(plain), Counter(drafted)
    p, cells = two_sample_p(*counts)
    return {
        "part": "sampled", "form": form, "answers": len(drafted), "different": len(counts[1]), "cells": cells, "p": p,
        "total_variation": total_variation(*counts), "provenance": "measured",
    }  # fmt: skip


def total_variation(first: Counter[Answer], second: Counter[Answer]) -> float:
    """Half the sum of the differences of shares: 0 for the same, 1 for nothing in common."""
    totals = first.total(), second.total()
    return sum(abs(first[key] / totals[0] - second[key] / totals[1]) for key in {*first, *second}) / 2


def two_sample_p(first: Counter[Answer], second: Counter[Answer]) -> tuple[float, int]:
    """(p of the chi-square test that both come from one distribution, cells). 1 where one sequence is all there is."""
    from scipy.stats import chi2_contingency

    share = second.total() / (first.total() + second.total())
    least = LEAST_EXPECTED / min(share, 1 - share)
    common = [key for key in sorted({*first, *second}) if first[key] + second[key] >= least]
    table = [[counts[key] for counts in (first, second)] for key in common]
    rest = [counts.total() - sum(row[place] for row in table) for place, counts in enumerate((first, second))]
    if sum(rest):
        table.append(rest)
    if len(table) < 2:
        return 1.0, len(table)
    return float(chi2_contingency(table, correction=False).pvalue), len(table)
