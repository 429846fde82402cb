"""A jitter run as the Parallel page draws it: arms beside each other, their course over time, the steadiest one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.errors import InputError

REPEATS = (1, 3, 5)
# Arms of the default experiment that are about where prompts are computed, in the order of the page.
PLACES = ("whole prompts", "chunked", "disaggregated")
Result = Mapping[str, Any]
Arm = Mapping[str, Any]


@dataclass(frozen=True)
class JitterChoice:
    """Names of the default experiment's arms, and how often each runs."""

    arms: Sequence[str] = PLACES
    repeats: int = 3

    def spec(self) -> dict[str, Any]:
        """The spec of the run; InputError when no arm was chosen."""
        from experiments.jitter.spec import ARMS

        chosen = [[name, settings] for name, settings in ARMS if name in self.arms]
        if not chosen:
            raise InputError("arms", "none", "at least one")
        return {"arms": chosen, "repeats": self.repeats}


def default_arms() -> tuple[str, ...]:
    """Names of the default experiment's arms."""
    from experiments.jitter.spec import ARMS

    return tuple(name for name, _ in ARMS)


def first(result: Result) -> Arm:
    """The arm that the others are compared with."""
    found: Arm = result["arms"][0]
    return found


def steadiest(result: Result, figure: str = "itl_p99_s") -> Arm | None:
    """The arm with the smallest p99 of the gaps between tokens; None where no arm has one."""
    known = [arm for arm in result["arms"] if arm["figures"][figure] is not None]
    return min(known, key=lambda arm: arm["figures"][figure], default=None)


def against_first(result: Result, name: str, figure: str) -> Mapping[str, float | None] | None:
    """{"ratio","low","high"} of an arm's figure to the first one's; None where it can't be told."""
    found: Mapping[str, float | None] | None = (result["against_first"].get(name) or {}).get(figure)
    return found


def is_decided(ratio: Mapping[str, float | None] | None) -> bool:
    """Whether the interval of a ratio excludes 1."""
    if ratio is None or ratio["low"] is None or ratio["high"] is None:
        return False
    return not ratio["low"] <= 1 <= ratio["high"]


def course(result: Result) -> list[dict[str, Any]]:
    """The longest gap of every half second: rows of arm, t_s, itl_ms (None where no gap ended), prompt_tokens."""
    return [
        {
            "arm": arm["name"],
            "t_s": one["t_s"],
            "itl_ms": None if one["itl_max_s"] is None else 1000 * one["itl_max_s"],
            "prompt_tokens": one["prompt_tokens"],
        }
        for arm in result["arms"]
        for one in arm["timeline"]
    ]
