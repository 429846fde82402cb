"""Running text: perplexity, and how far a candidate's next-token distributions are from the baseline's.

Owns windows and the comparison of two engines on one window; both read the same tokens, a step at a time, so that no
more than a step's distributions are in memory. Knows engines by their scoring alone.

A text is cut into windows of `window_tokens` that do not overlap; the first token of each is context only. Figures a
token are averaged; intervals are over blocks of BLOCK_TOKENS neighbouring tokens, since neighbours are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any

from core_engine.distributions import distributions
from experiments.bounded import read_text
from experiments.statistics import mean_interval
from ledger.errors import InputError

WINDOW_TOKENS = 2048
BLOCK_TOKENS = 64


@dataclass(frozen=True)
class Text:
    """A text and the name it is reported under."""

    name: str
    content: str


@dataclass(frozen=True)
class WindowScores:
    """Per scored token: its natural log-probability under both, KL(baseline || candidate) in nats, same likeliest id.

    kl and same_top are empty without a candidate.
    """

    baseline: tuple[float, ...]
    candidate: tuple[float, ...] = ()
    kl: tuple[float, ...] = ()
    same_top: tuple[bool, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As JSON; `from_json` reads it."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> WindowScores:
        """The scores that `to_json` wrote."""
        return cls(**{name: tuple(values) for name, values in found.items()})


def default_texts() -> list[Text]:
    """The project's own texts, by name."""
    folder = files("experiments.quality").joinpath("texts")
    found = [file for file in folder.iterdir() if file.name.endswith(".txt")]
    return [
        Text(file.name.removesuffix(".txt"), file.read_text("utf-8")) for file in sorted(found, key=lambda f: f.name)
    ]


def load_text(path: str | Path) -> Text:
    """A text file; InputError when it is not there, not UTF-8 or blank."""
    file = Path(path)
    try:
        content = read_text("--texts", file)
    except OSError as error:
        raise InputError("--texts", str(path), f"a readable text file in UTF-8 ({error.strerror})") from None
    if not content.strip():
        raise InputError("--texts", str(path), "a text file that is not empty")
    return Text(file.name, content)


def cut(ids: Sequence[int], window_tokens: int) -> list[tuple[int, ...]]:
    """Windows of at most window_tokens; a last one of a single token, in which nothing could be scored, is left out."""
    windows = [tuple(ids[start : start + window_tokens]) for start in range(0, len(ids), window_tokens)]
    return [window for window in windows if len(window) > 1]


def score_window(
    baseline: Any, candidate: Any | None, ids: Sequence[int], check: Callable[[], None] = lambda: None
) -> WindowScores:
    """Score one window under both engines (None: the baseline alone). `check` is called between steps and may raise."""
    if candidate is None:
        return WindowScores(tuple(_alone(baseline, ids, check)))
    ours: list[float] = []
    theirs: list[float] = []
    kl: list[float] = []
    same: list[bool] = []
    pairs = _together(distributions(baseline, ids, 1), distributions(candidate, ids, 1))
    for place, p, q in pairs:
        check()
        targets = p.new_tensor(ids[place : place + len(p)]).long()[:, None]
        ours += p.gather(1, targets)[:, 0].tolist()
        theirs += q.gather(1, targets)[:, 0].tolist()
        kl += divergence(p, q).tolist()
        same += (p.argmax(1) == q.argmax(1)).tolist()
    return WindowScores(tuple(ours), tuple(theirs), tuple(kl), tuple(same))


def divergence(p: Any, q: Any) -> Any:
    """KL(p || q) of each row in nats, from natural log-probabilities [n, vocab_size] of both; [n]."""
    return (p.exp() * (p - q)).nan_to_num(0.0).sum(1)


def _alone(engine: Any, ids: Sequence[int], check: Callable[[], None]) -> Iterator[float]:
    for place, rows in distributions(engine, ids, 1):
        check()
        yield from (float(row[token]) for row, token in zip(rows, ids[place : place + len(rows)], strict=True))


def _together(first: Iterator[tuple[int, Any]], second: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any, Any]]:
    """(place, rows of both) of the same tokens, also where the two come in pieces of different lengths."""
    a_place, a = next(first, (0, None))
    _, b = next(second, (0, None))
    while a is not None and b is not None:
        count = min(len(a), len(b))
        yield a_place, a[:count], b[:count]
        a_place, a = (a_place + count, a[count:]) if count < len(a) else next(first, (0, None))
        b = b[count:] if count < len(b) else next(second, (0, None))[1]


def perplexity(logprobs: Sequence[float]) -> float | None:
    """exp of the mean negative log-probability a token; None without tokens."""
    return math.exp(-fmean(logprobs)) if logprobs else None


def text_row(name: str, windows: Sequence[WindowScores], window_tokens: int) -> dict[str, Any]:
    """The figures of one text (or of all together): perplexities, their change, KL and top-1 agreement, 95 % intervals.

    Candidate figures are None where it was not scored.
    """
    ours = [value for window in windows for value in window.baseline]
    theirs = [value for window in windows for value in window.candidate]
    row: dict[str, Any] = {
        "text": name,
        "tokens": len(ours),
        "windows": len(windows),
        "window_tokens": window_tokens,
        "baseline_perplexity": perplexity(ours),
        "perplexity": perplexity(theirs),
        "change_pct": None,
        "change_ci95": None,
        "kl_mean": None,
        "kl_ci95": None,
        "top1_agreement": None,
        "top1_ci95": None,
    }
    if not theirs:
        return row
    losses = [[b - c for b, c in zip(w.baseline, w.candidate, strict=True)] for w in windows]
    row["change_pct"] = 100 * math.expm1(fmean(loss for window in losses for loss in window))
    row["change_ci95"] = _percent(_interval(losses))
    row["kl_mean"], row["kl_ci95"] = fmean(k for w in windows for k in w.kl), _interval([w.kl for w in windows])
    row["top1_agreement"] = fmean(same for w in windows for same in w.same_top)
    row["top1_ci95"] = _interval([[float(same) for same in w.same_top] for w in windows])
    return row


def _interval(windows: Sequence[Sequence[float]]) -> list[float] | None:
    """Of the mean over blocks of neighbouring tokens; shorter ones at a window's end only where there are no others."""
    blocks = [w[start : start + BLOCK_TOKENS] for w in windows for start in range(0, len(w), BLOCK_TOKENS)]
    whole = [block for block in blocks if len(block) == BLOCK_TOKENS]
    found = mean_interval([fmean(block) for block in (whole if len(whole) > 1 else blocks)])
    return None if found is None else [found.low, found.high]


def _percent(bounds: list[float] | None) -> list[float] | None:
    return None if bounds is None else [100 * math.expm1(bound) for bound in bounds]
