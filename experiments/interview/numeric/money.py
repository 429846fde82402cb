"""Numeric questions about money and capacity: cards for a rate, a month, a million tokens, what caches save."""

from __future__ import annotations

import math
from random import Random

from experiments.interview.numeric.kind import Kind, Values
from ledger.money import (
    MONTH_S,
    SECONDS_PER_HOUR,
    answer_cache_saving,
    cards_needed,
    cost_per_million_output_tokens,
    monthly_cost,
    request_cost,
)
from ledger.serving import Traffic

DAYS = 30
MONTH_H = MONTH_S / SECONDS_PER_HOUR


def _draw_traffic(rng: Random) -> Values:
    return {
        "rate": rng.choice((5, 8, 10, 12, 15, 20, 25, 30, 40, 60)), "input": rng.choice((200, 300, 800, 1200, 2000)),
        "output": rng.choice((150, 250, 300, 400, 500, 600, 800)),
    }  # fmt: skip


def _draw_cards(rng: Random) -> Values:
    return {
        **_draw_traffic(rng), "per_card": rng.choice((600, 900, 1100, 1300, 1700, 2300)),
        "utilisation": rng.choice((50, 55, 60, 65, 70, 75)),
    }  # fmt: skip


def _cards(values: Values, utilisation: float | None = None) -> int:
    share = values["utilisation"] / 100 if utilisation is None else utilisation
    return cards_needed(values["rate"] * values["output"], values["per_card"], share)


def _shown_cards(values: Values) -> Values:
    per_s = values["rate"] * values["output"]
    usable = values["per_card"] * values["utilisation"] / 100
    return {"tokens_s": per_s, "usable": usable, "exact": per_s / usable, "cards": _cards(values)}


def _draw_month(rng: Random) -> Values:
    return {**_draw_cards(rng), "price": rng.choice((0.9, 1.2, 1.8, 2.0, 2.5, 3.2, 4.0))}


def _month(values: Values) -> dict[str, float]:
    found: dict[str, float] = monthly_cost(
        values["rate"], values["input"], values["output"], values["per_card"],
        utilisation=values["utilisation"] / 100, price_per_device_hour=values["price"],
    )  # fmt: skip
    return found


def _month_tokens(values: Values) -> float:
    return float(monthly_cost(values["rate"], values["input"], values["output"], 1.0)["output_tokens"])


def _shown_tokens(values: Values) -> Values:
    tokens = _month_tokens(values)
    return {
        "tokens_s": values["rate"] * values["output"],
        "billions": tokens / 1e9,
        "yi": tokens / 1e8,
        "seconds": MONTH_S,
    }


def _draw_million(rng: Random) -> Values:
    return {
        "cards": rng.choice((2, 3, 4, 6, 8)), "price": rng.choice((0.9, 1.2, 1.8, 2.0, 2.5, 3.2, 4.0)),
        "together": rng.choice((4000, 6000, 9000, 12000, 15000, 20000)),
        "utilisation": rng.choice((35, 40, 50, 60, 70)),
    }  # fmt: skip


def _million(values: Values) -> float:
    tokens = round(values["together"] * values["utilisation"] / 100 * SECONDS_PER_HOUR)
    return cost_per_million_output_tokens(SECONDS_PER_HOUR, tokens, values["price"], values["cards"]) or 0.0


def _shown_million(values: Values) -> Values:
    tokens = values["together"] * values["utilisation"] / 100 * SECONDS_PER_HOUR
    return {"tokens_hour": tokens, "hour_price": values["cards"] * values["price"]}


def _draw_bill(rng: Random) -> Values:
    return {
        "input": rng.choice((600, 900, 1500, 2500, 4000)), "output": rng.choice((150, 250, 400, 700)),
        "price_in": rng.choice((0.15, 0.3, 0.5, 0.8, 1.2)), "price_out": rng.choice((0.6, 1.0, 2.0, 3.0, 5.0)),
        "requests": rng.choice((1000, 2000, 5000, 10000)),
    }  # fmt: skip


def _bill(values: Values, **changes: float) -> float:
    v = {**values, **changes}
    prices = {"price_per_million_input": v["price_in"], "price_per_million_output": v["price_out"]}
    return float(v["requests"] * request_cost(int(v["input"]), int(v["output"]), **prices)["total"])


def _draw_prefix(rng: Random) -> Values:
    return {
        "rate": rng.choice((5, 8, 10, 20, 40)), "shared": rng.choice((500, 800, 1200, 2000, 3000)),
        "own": rng.choice((200, 300, 400, 700, 1000)), "hit": rng.choice((60, 70, 80, 85, 90)),
    }  # fmt: skip


def _prefix_left(values: Values) -> float:
    prompt = values["shared"] + values["own"]
    spared = values["hit"] * values["shared"] // 100
    cached = (spared + 1e-6) / prompt  # a share of whole tokens: it must not fall below them in the last digit
    return values["rate"] * Traffic(values["rate"], prompt, 1, cached).new_input_tokens


def _shown_prefix(values: Values) -> Values:
    prompt = values["shared"] + values["own"]
    spared = values["hit"] / 100 * values["shared"]
    return {"prompt": prompt, "spared": spared, "left": prompt - spared, "before": values["rate"] * prompt}


def _draw_answers(rng: Random) -> Values | None:
    values = {
        "requests": rng.choice((10_000, 20_000, 50_000, 100_000)), "hit": rng.choice((20, 25, 30, 35, 40, 50)),
        "wrong": rng.choice((0.5, 1, 2, 3)), "request_cost": rng.choice((0.002, 0.004, 0.006, 0.01)),
        "lookup_cost": rng.choice((0.0001, 0.0002, 0.0004)), "wrong_cost": rng.choice((0.05, 0.1, 0.2, 0.5)),
    }  # fmt: skip
    # A saving that is the small difference of large terms would hang on their rounding.
    return (
        values
        if abs(_answers(values)) > 0.1 * values["requests"] * values["hit"] / 100 * values["request_cost"]
        else None
    )


def _answers(values: Values, **changes: float) -> float:
    v = {**values, **changes}
    return answer_cache_saving(
        v["requests"], v["hit"] / 100, v["wrong"] / 100, cost_per_request=v["request_cost"],
        cost_per_lookup=v["lookup_cost"], cost_per_wrong_answer=v["wrong_cost"],
    )  # fmt: skip


def _shown_answers(values: Values) -> Values:
    hits = values["requests"] * values["hit"] / 100
    return {
        "hits": hits, "spared": hits * values["request_cost"], "lookups": values["requests"] * values["lookup_cost"],
        "wrong_hits": hits * values["wrong"] / 100, "wrongs": hits * values["wrong"] / 100 * values["wrong_cost"],
    }  # fmt: skip


KINDS = (
    Kind(
        "cards", "cost", "cards", _draw_cards, lambda v: float(_cards(v)),
        {
            "ceiling_forgotten": lambda v, _key: _cards(v, 1.0),
            "rounded_down": lambda _v, key: key - 1,
            "ceiling_multiplied": lambda v, _key: math.ceil(
                v["rate"] * v["output"] / v["per_card"] * v["utilisation"] / 100
            ),
            "prompts_counted": lambda v, _key: _cards({**v, "output": v["input"] + v["output"]}),
        },
        _shown_cards, tolerance=0.0, whole=True,
    ),
    Kind(
        "month_tokens", "cost", "tokens", _draw_traffic, _month_tokens,
        {
            "one_day": lambda _v, key: key / DAYS,
            "prompts_counted": lambda v, _key: _month_tokens({**v, "output": v["input"] + v["output"]}),
            "hours_forgotten": lambda _v, key: key / 24,
            "seconds_forgotten": lambda _v, key: key / 60,
        },
        _shown_tokens,
    ),
    Kind(
        "month_cost", "cost", "$", _draw_month, lambda v: _month(v)["cost"],
        {
            "one_card": lambda v, key: key / _month(v)["cards"],
            "ceiling_forgotten": lambda v, _key: _cards(v, 1.0) * MONTH_H * v["price"],
            "one_day": lambda _v, key: key / DAYS,
            "cards_not_rounded": lambda v, _key: _shown_cards(v)["exact"] * MONTH_H * v["price"],
        },
        lambda v: {**_shown_cards(v), "hours": MONTH_H}, tolerance=0.01,
    ),
    Kind(
        "million_tokens", "cost", "$", _draw_million, _million,
        {
            "always_busy": lambda v, key: key * v["utilisation"] / 100,
            "one_card": lambda v, key: key / v["cards"],
            "thousand_for_million": lambda _v, key: key / 1000,
            "second_for_hour": lambda _v, key: key * SECONDS_PER_HOUR,
        },
        _shown_million,
    ),
    Kind(
        "bill", "cost", "$", _draw_bill, _bill,
        {
            "prices_swapped": lambda v, _key: _bill(v, price_in=v["price_out"], price_out=v["price_in"]),
            "prompts_forgotten": lambda v, _key: _bill(v, input=0),
            "answers_forgotten": lambda v, _key: _bill(v, output=0),
            "thousand_for_million": lambda _v, key: key * 1000,
        },
        lambda v: {"in_part": _bill(v, output=0, requests=1), "out_part": _bill(v, input=0, requests=1)},
        tolerance=0.01,
    ),
    Kind(
        "prefix_left", "caching", "tokens/s", _draw_prefix, _prefix_left,
        {
            "always_hit": lambda v, _key: v["rate"] * v["own"],
            "saved_for_left": lambda v, _key: v["rate"] * v["hit"] / 100 * v["shared"],
            "whole_prompt_cached": lambda v, _key: v["rate"] * (v["shared"] + v["own"]) * (1 - v["hit"] / 100),
            "nothing_saved": lambda v, _key: v["rate"] * (v["shared"] + v["own"]),
        },
        _shown_prefix,
    ),
    Kind(
        "answer_cache", "caching", "$", _draw_answers, _answers,
        {
            "wrong_hits_free": lambda v, _key: _answers(v, wrong=0),
            "wrong_of_all": lambda v, _key: _answers(v, wrong=v["wrong"] / (v["hit"] / 100)),
            "lookups_forgotten": lambda v, _key: _answers(v, lookup_cost=0),
            "lookups_of_hits": lambda v, _key: _answers(v, lookup_cost=v["lookup_cost"] * v["hit"] / 100),
        },
        _shown_answers, tolerance=0.01,
    ),
)  # fmt: skip
