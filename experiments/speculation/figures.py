"""What the blocks of a part say: acceptance, costs, speed-up with its interval, and the model's own speed-up beside.

Owns the shape of a row. alpha = accepted / positions tested, acceptance_rate = accepted / drafted, tokens_per_pass =
tokens / (sequence, pass), all as the engine counts them. v and c are medians over the repeats of pass times that were
taken in one block with plain decoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from experiments.advisor.speculation import advise
from experiments.statistics import CurveSamples, CurveVerdict, judge
from ledger.speculation import Costs, accepted_per_draft, tokens_per_cycle

Block = Mapping[str, Mapping[str, Any]]
"""Of one repeat: what every arm of a part measured (Passes.to_json), by label; "off" is plain decoding."""

OFF = "off"
# Forms whose drafts are made all at once, so that there is one c for them together.
PARALLEL = ("ngram", "medusa")


def rows_of(blocks: Sequence[Block], labels: Sequence[str]) -> list[dict[str, Any]]:
    """A row an arm with drafts, in the order of `labels`; all are judged together."""
    plain = [block[OFF] for block in blocks]
    drafted = {label: [block[label] for block in blocks] for label in labels}
    curves = [
        CurveSamples(label, "mean", "higher", [_rate(one) for one in plain], [_rate(one) for one in found])
        for label, found in drafted.items()
    ]
    verdicts = judge(curves) if blocks else []
    return [
        _row(label, found, plain, verdict) for (label, found), verdict in zip(drafted.items(), verdicts, strict=True)
    ]


def plain_row(blocks: Sequence[Block]) -> dict[str, Any]:
    """Plain decoding of the same prompts."""
    plain = [block[OFF] for block in blocks]
    return {
        "form": OFF,
        "tokens_per_s": _middle(_rate(one) for one in plain),
        "pass_s": median(known) if (known := [one["plain_s"] for one in plain if one["plain_s"]]) else None,
        "tokens": plain[0]["tokens"],
        "prompts": len(plain[0]["answers"]),
        "provenance": "measured",
    }


def _row(
    label: str, found: Sequence[Mapping[str, Any]], plain: Sequence[Mapping[str, Any]], verdict: CurveVerdict
) -> dict[str, Any]:
    tested, accepted = _by_position(found, "tested"), _by_position(found, "accepted")
    alpha = _ratio(sum(accepted), sum(tested))
    k = int(found[0]["k"])
    costs = costs_of(label, found, plain)
    advice = advise(alpha, k, costs, verdict.verdict)
    same = [sum(a == b for a, b in zip(one["answers"], base["answers"], strict=True))
            for one, base in zip(found, plain, strict=True)]  # fmt: skip
    return {
        "form": label,
        "k": k,
        "alpha": alpha,
        "alpha_by_position": [_ratio(a, t) for a, t in zip(accepted, tested, strict=True)],
        "tested": tested,
        "accepted": accepted,
        "acceptance_rate": _ratio(sum(accepted), _sum(found, "drafted")),
        "tokens_per_pass": _ratio(_sum(found, "emitted"), _sum(found, "rows")),
        "drafted_share": _ratio(_sum(found, "passes_drafted"), _sum(found, "passes")),
        "draft_time_share": _ratio(_sum(found, "drafting_s"), _sum(found, "seconds")),
        "v": None if costs is None else costs.v,
        "c": None if costs is None else costs.c,
        "parallel": label in PARALLEL,
        "tokens_per_s": _middle(_rate(one) for one in found),
        **_speed(verdict),
        "predicted": {**_predicted(alpha, k, costs), "speedup": advice.predicted, "provenance": "computed"},
        "advice": asdict(advice),
        "identical": min(same),
        "prompts": len(found[0]["answers"]),
        "held": found[0]["held"],
        "provenance": "measured",
    }


def _speed(verdict: CurveVerdict) -> dict[str, Any]:
    """The measured speed-up over plain decoding in pairs of one repeat."""
    ends = verdict.ci95
    return {
        "speedup": None if verdict.change_pct is None else 1 + verdict.change_pct / 100,
        "speedup_ci95": None if ends is None else [1 + end / 100 for end in ends],
        "verdict": verdict.verdict,
        "verdict_reason": verdict.reason,
        "noise_floor_pct": verdict.noise_floor_pct,
        "repeats": verdict.pairs,
    }


def _predicted(alpha: float | None, k: int, costs: Costs | None) -> dict[str, Any]:
    if alpha is None or costs is None:
        return {"tokens_per_pass": None, "acceptance_rate": None}
    return {
        "tokens_per_pass": tokens_per_cycle(alpha, k, costs.drafted_share),
        "acceptance_rate": accepted_per_draft(alpha, k),
    }


def costs_of(label: str, found: Sequence[Mapping[str, Any]], plain: Sequence[Mapping[str, Any]]) -> Costs | None:
    """v and c of a form; None where no pass had a full draft."""
    pairs = [
        (one, base["plain_s"])
        for one, base in zip(found, plain, strict=True)
        if one["drafted_s"] is not None and base["plain_s"]
    ]
    share = _ratio(_sum(found, "passes_drafted"), _sum(found, "passes"))
    if not pairs or not share:
        return None
    parallel = label in PARALLEL
    v = median(one["drafted_s"] / pass_s for one, pass_s in pairs)
    drafting = median((one["draft_s"] or 0.0) / pass_s for one, pass_s in pairs)
    return Costs(v, drafting if parallel else drafting / int(found[0]["k"]), parallel, share)


def _by_position(found: Sequence[Mapping[str, Any]], name: str) -> list[int]:
    longest = max((len(one[name]) for one in found), default=0)
    return [sum(one[name][place] for one in found if place < len(one[name])) for place in range(longest)]


def _middle(rates: Iterable[float | None]) -> float | None:
    """None where no repeat had a pass with every sequence decoding: the first had ended before the last began."""
    known = [rate for rate in rates if rate is not None]
    return median(known) if known else None


def _rate(one: Mapping[str, Any]) -> float | None:
    return one["tokens"] / one["seconds"] if one["seconds"] else None


def _sum(found: Sequence[Mapping[str, Any]], name: str) -> float:
    return sum(one[name] for one in found)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
