"""Numeric questions about drafting tokens: what a cycle yields, what it costs, and when it pays."""

from __future__ import annotations

from random import Random

from experiments.interview.numeric.kind import Kind, Values
from ledger.speculation import Costs, accepted_per_draft, break_even_cost, speedup, tokens_per_cycle


def _draw(rng: Random) -> Values:
    return {"alpha": rng.choice((0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)), "k": rng.choice(range(2, 9))}


def _draw_costs(rng: Random) -> Values:
    return {**_draw(rng), "c": rng.choice((0.03, 0.05, 0.08, 0.1, 0.15)), "v": rng.choice((1.1, 1.15, 1.2, 1.3))}


def _tokens(values: Values) -> float:
    return tokens_per_cycle(values["alpha"], values["k"])


def _series(values: Values) -> str:
    return " + ".join(["1", *(f"{values['alpha'] ** place:.4f}" for place in range(1, values["k"] + 1))])


def _shown(values: Values) -> Values:
    return {
        "series": _series(values),
        "tokens": _tokens(values),
        "accepted": _tokens(values) - 1,
        "most": values["k"] + 1,
    }


def _over(values: Values, passes: float) -> float:
    return _tokens(values) / passes


def _without_bonus(values: Values) -> float | None:
    """The break-even cost, in %, when only accepted drafts are counted as gained; None when nothing is left."""
    left = (_tokens(values) - 2) / values["k"]
    return 100 * left if left > 0 else None


KINDS = (
    Kind(
        "spec_tokens", "speculation", "tokens", _draw, _tokens,
        {
            "all_accepted": lambda v, _key: v["k"] + 1,
            "linear_acceptance": lambda v, _key: 1 + v["alpha"] * v["k"],
            "own_token_forgotten": lambda _v, key: key - 1,
            "last_place_forgotten": lambda v, key: key - v["alpha"] ** v["k"],
        },
        _shown, tolerance=0.01,
    ),
    Kind(
        "spec_acceptance", "speculation", "%", _draw, lambda v: 100 * accepted_per_draft(v["alpha"], v["k"]),
        {
            "alpha_for_rate": lambda v, _key: 100 * v["alpha"],
            "own_token_counted": lambda v, _key: 100 * _tokens(v) / v["k"],
            "all_or_nothing": lambda v, _key: 100 * v["alpha"] ** v["k"],
        },
        _shown, tolerance=0.01,
    ),
    Kind(
        "spec_break_even", "speculation", "%", _draw, lambda v: 100 * break_even_cost(v["alpha"], v["k"]),
        {
            "own_token_forgotten": lambda v, _key: _without_bonus(v),
            "not_per_draft": lambda v, key: key * v["k"],
            "linear_acceptance": lambda v, _key: 100 * v["alpha"],
            "all_accepted": lambda _v, _key: 100.0,
        },
        _shown, tolerance=0.03,
    ),
    Kind(
        "spec_speedup", "speculation", "x", _draw_costs, lambda v: speedup(v["alpha"], v["k"], Costs(v["v"], v["c"])),
        {
            "drafts_for_free": lambda v, _key: _over(v, v["v"]),
            "one_draft_paid": lambda v, _key: _over(v, v["v"] + v["c"]),
            "verifying_for_free": lambda v, _key: _over(v, 1 + v["k"] * v["c"]),
            "all_accepted": lambda v, _key: (v["k"] + 1) / (v["v"] + v["k"] * v["c"]),
        },
        lambda v: {**_shown(v), "passes": Costs(v["v"], v["c"]).cycle(v["k"])}, tolerance=0.01,
    ),
)  # fmt: skip
