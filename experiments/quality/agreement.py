"""Agreement of two arms: the same token ids, and how likely each arm finds the baseline's own text.

Owns the two figures of the quality curve. Knows engines only by `score`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from core_engine.variables import VARIABLES
from ledger.errors import InputError

MOST_REQUESTS = 16


@dataclass(frozen=True)
class Agreement:
    """Quality of both arms, a value per request (None where it could not be scored).

    logprobs[arm][i] is the mean natural log-probability per token of the baseline's text of request i under that arm.
    Of servers, which give no such thing, shares[arm][i] is how far an answer is the baseline's, from 0 to 1.
    """

    same_token_ids_share: float | None
    logprobs: tuple[list[float | None], list[float | None]]
    reason: str | None = None
    shares: tuple[list[float | None], list[float | None]] | None = None

    def probabilities(self, arm: int) -> list[float | None]:
        """The value of the quality curve, per request: exp(mean log-probability) a token, or the share of the text."""
        if self.shares is not None:
            return self.shares[arm]
        return [None if value is None else math.exp(value) for value in self.logprobs[arm]]

    def level(self, arm: int) -> float | None:
        """The arm's quality in one number: exp of the mean log-probability, or the mean share."""
        if self.shares is not None:
            known = [value for value in self.shares[arm] if value is not None]
            return fmean(known) if known else None
        logprob = self.mean_logprob(arm)
        return None if logprob is None else math.exp(logprob)

    def mean_logprob(self, arm: int) -> float | None:
        """Mean over the requests scored under both arms."""
        pairs = zip(*self.logprobs, strict=True)
        both = [(first, second)[arm] for first, second in pairs if first is not None and second is not None]
        return fmean(both) if both else None

    @property
    def measured(self) -> bool:
        """Whether any request was scored under both arms."""
        return self.level(0) is not None and self.level(1) is not None

    def to_json(self) -> dict[str, Any]:
        """The `quality` entry of a comparison."""
        return {
            "measured": self.measured,
            "same_token_ids_share": self.same_token_ids_share,
            "mean_logprob": {"baseline": self.mean_logprob(0), "candidate": self.mean_logprob(1)},
            "basis": "greedy text" if self.shares is not None else "log-probability",
            "requests_scored": sum(None not in pair for pair in zip(*(self.shares or self.logprobs), strict=True)),
            "reason": self.reason or (None if self.measured else "no answer of the baseline could be scored"),
        }


def quality_missing(result: Mapping[str, Any]) -> str | None:
    """Why a comparison whose variable can change outputs has no quality; None where it has, or needs none.

    Every place that shows a comparison shows this in red: `result` is a compare JSON, of an older run too.
    """
    name, quality = result["variable"], result.get("quality") or {}
    if name in VARIABLES and "quality" not in VARIABLES[name].moves:
        return None
    logprobs = (quality.get("mean_logprob") or {}).get("baseline") is not None
    scored = logprobs or (quality.get("basis") == "greedy text" and quality["measured"])
    return None if scored else str(quality.get("reason") or "it was skipped")


def unknown(reason: str) -> Agreement:
    """No figures, and why."""
    return Agreement(None, ([], []), reason)


def text_agreement(first: Sequence[str | None], again: Sequence[str | None], other: Sequence[str | None]) -> Agreement:
    """Agreement of two servers by their greedy answers to the same prompts (None: not answered).

    first, again: the baseline's, asked twice, since a server need not repeat itself; other: the candidate's. The value
    of an arm is the leading part of the first answer that its own has too: (same characters + 1) / (characters + 1).
    """
    shares = ([_leading(*pair) for pair in zip(first, again, strict=True)],
              [_leading(*pair) for pair in zip(first, other, strict=True)])  # fmt: skip
    if all(None in pair for pair in zip(*shares, strict=True)):
        return unknown("no prompt got a text from both servers")
    return Agreement(None, ([], []), shares=shares)


def _leading(text: str | None, other: str | None) -> float | None:
    """How much of `text` stands at the beginning of `other`, 0 to 1; None without a text."""
    if not text or other is None:
        return None
    same = next((place for place, pair in enumerate(zip(text, other, strict=False)) if pair[0] != pair[1]), None)
    same = min(len(text), len(other)) if same is None else same
    return (same + 1) / (len(text) + 1)


def same_token_ids(baseline: dict[str, Any], candidate: dict[str, Any]) -> float | None:
    """Share of requests with the same output token ids in two run records; None when none finished in both."""
    outputs = [
        {r["id"]: r["output_token_ids"] for r in record["requests"] if r["finish_reason"] in ("stop", "length")}
        for record in (baseline, candidate)
    ]
    both = outputs[0].keys() & outputs[1].keys()
    return sum(outputs[0][name] == outputs[1][name] for name in both) / len(both) if both else None


def mean_logprobs(
    engine: Any,
    texts: Sequence[tuple[Sequence[int], Sequence[int]]],
    on_each: Callable[[int], None] = lambda _: None,
) -> list[float | None]:
    """Mean log-probability of each (prompt ids, output ids) under `engine`; None where the engine can't take the text.

    on_each is called with the number of texts done.
    """
    values: list[float | None] = []
    for prompt, output in texts:
        try:
            asked = engine.prompt_of(prompt)  # what the arm makes of it
            values.append(fmean(engine.score([*asked, *output], len(asked))))
        except InputError:
            values.append(None)
        on_each(len(values))
    return values
