"""C22 and C23: whether a prompt disturbs the answers beside it, and what a process of its own for prompts gives and
costs. Both sides of a pair of processes have the threads that one process has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED, Verdict
from experiments.claims.sweep_rows import Change

Jitter = Callable[[dict[str, Any]], Mapping[str, Any]]
"""A spec of experiments.jitter -> its JSON; the run that holds it is named in `run_id`."""

WHOLE, CHUNKED, APART = "whole prompts", "chunked", "disaggregated"
ARMS = (
    (WHOLE, {"chunked_prefill": "off", "max_num_batched_tokens": 2048}),
    (CHUNKED, {"chunked_prefill": "on", "max_num_batched_tokens": 64}),
    (APART, {"chunked_prefill": "off", "max_num_batched_tokens": 2048, "disaggregation": "on"}),
)
REPEATS = 3
CLIENTS, CALM_REQUESTS, CALM_PROMPT = 8, 6, 48
SHOWN = (
    "itl_p50_s",
    "itl_p99_s",
    "beside_p99_s",
    "alone_p99_s",
    "first_gap_p95_s",
    "ttft_p95_s",
    "output_tokens_per_s",
)
MUCH = 0.5  # of the gain that disaggregation brings: what is "much of it"


def disturbed(options: Mapping[str, Any], jitter: Jitter) -> dict[str, Any]:
    """C22: gaps between tokens while a prompt is computed against the others, prompts whole, in pieces and apart."""
    result = jitter(spec_of(options))
    beside = {arm["name"]: _within(arm, "alone_p99_s", "beside_p99_s") for arm in result["arms"]}
    p99 = {arm["name"]: arm["figures"]["itl_p99_s"] for arm in result["arms"]}
    verdict, reason = judge_disturbed(beside[WHOLE], p99)
    rows = [
        {**row, "beside_against_alone": beside[arm["name"]].ratio, "timeline": arm["timeline"]}
        for row, arm in zip(rows_of("long prompts arrive", result), result["arms"], strict=True)
    ]
    return {"verdict": verdict, "reason": reason, "evidence": rows}


def judge_disturbed(beside: Change, p99: Mapping[str, float | None]) -> Verdict:
    """From the p99 gap beside a prompt over that of the others, with whole prompts; p99 of all gaps by arm is told."""
    told = ", ".join(f"{name} {_ms(value)}" for name, value in p99.items())
    found = f"with whole prompts the p99 gap beside a prompt is {beside.text()} of the others'; ITL p99: {told}"
    if beside.rose is None:
        return UNDECIDED, f"{found}; more repeats would decide it"
    return (HOLDS if beside.rose else FAILS), found


def separated(options: Mapping[str, Any], jitter: Jitter) -> dict[str, Any]:
    """C23: eight clients with long prompts among short ones, and one client with short ones alone."""
    loaded = jitter(spec_of(options, concurrency=CLIENTS))
    calm = jitter(spec_of(options, concurrency=1, num_requests=CALM_REQUESTS, max_prompt_tokens=CALM_PROMPT))
    verdict, reason = judge_separated(
        changes(loaded, APART),
        changes(calm, APART),
        {arm["name"]: arm["figures"]["itl_p99_s"] for arm in loaded["arms"]},
    )
    evidence = [*rows_of(f"{CLIENTS} clients, long prompts", loaded), *rows_of("one client, short prompts", calm)]
    return {"verdict": verdict, "reason": reason, "evidence": evidence}


def judge_separated(
    loaded: Mapping[str, Change], calm: Mapping[str, Change], p99: Mapping[str, float | None]
) -> Verdict:
    """Apart against whole prompts in one process: steadier and more tokens/s; with what it costs, and what chunks give.

    p99: ITL p99 of the loaded arms.
    """
    itl, tokens, ttft = (loaded[name] for name in ("itl_p99_s", "output_tokens_per_s", "ttft_p95_s"))
    share = gained(p99)
    chunks = "" if share is None else f"; chunked prefill alone gives {share:.0%} of that gain in ITL"
    found = (
        f"apart, against one process with whole prompts: ITL p99 {itl.text()}, tokens/s {tokens.text()}, TTFT p95"
        f" {ttft.text()}; with one client and short prompts tokens/s {calm['output_tokens_per_s'].text()}{chunks}"
    )
    if itl.fell is None:
        return UNDECIDED, f"{found}; more repeats would decide it"
    if not itl.fell:
        return FAILS, f"{found}: it is not steadier"
    if tokens.rose is None:
        return UNDECIDED, f"{found}; more repeats would decide the throughput"
    if not tokens.rose:
        return LIMITED, f"{found}: steadier, and no more tokens/s from the same cores"
    costs = ttft.rose or calm["output_tokens_per_s"].fell or (share is not None and share >= MUCH)
    return (LIMITED if costs else HOLDS), found


def gained(p99: Mapping[str, float | None]) -> float | None:
    """What part of the fall in ITL p99 from whole prompts to apart chunks alone bring; None without a fall."""
    whole, chunked, apart = (p99.get(name) for name in (WHOLE, CHUNKED, APART))
    if whole is None or chunked is None or apart is None or apart >= whole:
        return None
    return max(0.0, (whole - chunked) / (whole - apart))


def spec_of(options: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """The check's own fields, then the user's; the arms stay the check's."""
    given = {name: value for name, value in options.items() if name not in ("settings", "repeats") and value}
    varied = {name for _, settings in ARMS for name in settings}
    settings = {name: value for name, value in (options.get("settings") or {}).items() if name not in varied}
    repeats = options.get("repeats")
    wanted = REPEATS if repeats in (None, "auto") else int(repeats)
    arms = [[name, dict(settings)] for name, settings in ARMS]
    return {**fields, **given, "settings": settings, "repeats": wanted, "arms": arms}


def changes(result: Mapping[str, Any], arm: str) -> dict[str, Change]:
    """The changes of an arm's figures from the first arm's."""
    found = result["against_first"][arm]
    return {name: Change(**(found.get(name) or {"ratio": None, "low": None, "high": None})) for name in SHOWN}


def _within(arm: Mapping[str, Any], before: str, after: str) -> Change:
    """From one figure of an arm to another, repeat by repeat."""
    from experiments.jitter.run import ratio_of

    found = ratio_of([(one[before], one[after]) for one in arm["repeats"]])
    return Change(None, None, None) if found is None else Change(**found)


def rows_of(part: str, result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """An evidence row an arm, with the run that holds the rest."""
    return [
        {
            "part": f"{part}: {arm['name']}",
            **{name: arm["figures"][name] for name in SHOWN if arm["figures"][name] is not None},
            **_moved(arm["transfers"]),
            "threads": arm["threads"],
            "repeats": len(arm["repeats"]),
            "run_id": result["run_id"],
            "provenance": arm["provenance"],
        }
        for arm in result["arms"]
    ]


def _moved(transfers: Mapping[str, Any] | None) -> dict[str, Any]:
    if transfers is None:
        return {}
    return {
        "bytes_moved": transfers["bytes_moved"],
        "transfer_p50_s": transfers["transfer_s"]["p50"],
        "transfer_p99_s": transfers["transfer_s"]["p99"],
        "prefill_utilisation": transfers["prefill"]["utilisation"],
        "decode_utilisation": transfers["decode"]["utilisation"],
    }


def _ms(value: float | None) -> str:
    return "unknown" if value is None else f"{1000 * value:.1f} ms"
