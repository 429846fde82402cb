"""C40: a semantic cache saves work where traffic repeats itself; the trap is what it answers wrongly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from experiments.caching.evaluation import MOST_STRANGERS, MOST_WRONG
from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED, Verdict

Cache = Callable[[dict[str, Any]], Mapping[str, Any]]
"""A spec of experiments.caching -> its JSON; the run that holds it is named in `run_id`."""

REPEATS = 3
THIRD = 1 / 3  # of the work, as the claim has it
SHOWN = ("threshold", "hit", "wrong", "hit_ungated", "wrong_ungated", "crowd_hit", "crowd_wrong", "stranger_wrong")


def check(options: Mapping[str, Any], cache: Cache) -> dict[str, Any]:
    """The pairs of the half held apart, and repetitive traffic without a cache, with the exact one and with both."""
    result = cache({"repeats": REPEATS, **options})
    both = result["traffic"]["arms"][-1]
    saved, ttft = both["cache"]["saved_share"], result["traffic"]["against_first"][both["name"]]["ttft_s"]
    near, strangers = (
        {pairs["language"]: pairs["chosen"][name]["rate"] for pairs in result["pairs"]}
        for name in ("wrong", "stranger_wrong")
    )
    verdict, reason = judge(saved, ttft, near, strangers, fresh=result["fresh"])
    common = {"run_id": result["run_id"], "provenance": "measured"}
    pairs = [
        {"part": f"pairs, {one['language']}", **{name: one["chosen"][name] for name in SHOWN}, **common}
        for one in result["pairs"]
    ]
    arms = [
        {
            "part": f"traffic, {arm['name']}",
            "workload": result["traffic"]["workload"]["name"],
            "cache": arm["cache"],
            "ttft_p50_s": arm["metrics"]["ttft_s"]["p50"],
            "repeats": result["traffic"]["repeats"],
            **common,
        }
        for arm in result["traffic"]["arms"]
    ]
    stale = [{"part": f"after a change of: {row['change']}", **row, **common} for row in result["staleness"]]
    return {"verdict": verdict, "reason": reason, "evidence": [*pairs, *arms, *stale]}


def judge(
    saved: float | None,
    ttft: Mapping[str, float | None] | None,
    near: Mapping[str, float],
    strangers: Mapping[str, float],
    *,
    fresh: bool,
) -> Verdict:
    """From the share of work saved with both tiers, the ratio of TTFT to no cache, wrong hits by language on near
    misses and on questions whose like nobody has asked, and whether no old answer was given."""
    if saved is None or ttft is None:
        return UNDECIDED, "no request of the traffic was answered"
    found = (
        f"{saved:.0%} of the traffic's tokens were not computed; answered wrongly: {_told(near)} of near misses, "
        f"{_told(strangers)} of questions that nobody had asked"
    )
    if not fresh:
        return FAILS, f"{found}; an old answer was given after a change"
    if saved < THIRD:
        return (LIMITED if saved > 0 else FAILS), f"{found}: less than a third was saved"
    if max(near.values()) > MOST_WRONG or max(strangers.values()) > MOST_STRANGERS:
        return LIMITED, f"{found}: the saving is paid for with wrong answers"
    if ttft["low"] is not None and ttft["low"] > 1:
        return LIMITED, f"{found}, but the first token came later, at {ttft['ratio']:.2f} of the time"
    if ttft["high"] is None or ttft["high"] >= 1:
        return LIMITED, f"{found}, but whether the first token came sooner takes more repeats"
    sooner = f"the first token came at {ttft['ratio']:.2f} of the time"
    return HOLDS, f"{found}; {sooner}, and no change left an old answer"


def _told(rates: Mapping[str, float]) -> str:
    return ", ".join(f"{rate:.1%} ({language})" for language, rate in rates.items())
