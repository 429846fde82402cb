"""The break-even model of speculative decoding against figures worked out by hand and against simulated cycles."""

import random

import pytest

from ledger.errors import InputError
from ledger.speculation import (
    Costs,
    accepted_per_draft,
    best_length,
    break_even_alpha,
    break_even_cost,
    cost_at,
    speedup,
    tokens_per_cycle,
)


def test_four_drafts_at_three_tenths() -> None:
    assert tokens_per_cycle(0.3, 4) == pytest.approx(1.4251)
    assert accepted_per_draft(0.3, 4) == pytest.approx(0.106275)
    assert break_even_cost(0.3, 4) == pytest.approx(0.106275)
    assert cost_at(0.85, 0.3, 4) == pytest.approx(0.169, abs=5e-4)  # throughput -15 %
    assert cost_at(1 / 1.15, 0.3, 4) == pytest.approx(0.160, abs=5e-4)  # latency +15 %
    assert speedup(0.3, 4, Costs(1.0, 0.169)) == pytest.approx(0.85, abs=1e-3)


def test_everything_accepted_yields_one_token_more_than_was_drafted() -> None:
    assert tokens_per_cycle(1.0, 4) == 5
    assert speedup(1.0, 4, Costs(1.25, 0.0)) == 4
    assert tokens_per_cycle(1.0 - 1e-12, 4) == pytest.approx(5)


def test_nothing_accepted_costs_what_was_spent() -> None:
    assert tokens_per_cycle(0.0, 4) == 1
    assert speedup(0.0, 4, Costs(1.0, 0.05)) == pytest.approx(1 / 1.2)


@pytest.mark.parametrize(("alpha", "k"), [(0.2, 1), (0.5, 3), (0.8, 4), (0.95, 8)])
def test_the_closed_form_agrees_with_played_cycles(alpha: float, k: int) -> None:
    draws = random.Random(7)
    cycles, tokens = 40_000, 0
    for _ in range(cycles):
        accepted = 0
        while accepted < k and draws.random() < alpha:
            accepted += 1
        tokens += accepted + 1
    assert tokens / cycles == pytest.approx(tokens_per_cycle(alpha, k), rel=0.02)
    assert tokens_per_cycle(alpha, k) == pytest.approx((1 - alpha ** (k + 1)) / (1 - alpha))


def test_heads_pay_their_cost_once() -> None:
    assert speedup(0.6, 4, Costs(1.1, 0.2, parallel=True)) > speedup(0.6, 4, Costs(1.1, 0.2))
    even = break_even_cost(0.6, 4, 1.1, parallel=True)
    assert speedup(0.6, 4, Costs(1.1, even, parallel=True)) == pytest.approx(1)
    assert even == pytest.approx(4 * break_even_cost(0.6, 4, 1.1))


@pytest.mark.parametrize("costs", [Costs(1.0, 0.05), Costs(1.6, 0.1), Costs(1.2, 0.3, parallel=True)])
def test_break_even_alpha_is_where_the_speed_up_is_one(costs: Costs) -> None:
    alpha = break_even_alpha(4, costs)
    assert alpha is not None
    assert speedup(alpha, 4, costs) == pytest.approx(1)
    assert speedup(alpha - 0.05, 4, costs) < 1 < speedup(alpha + 0.05, 4, costs)


def test_break_even_at_the_ends() -> None:
    assert break_even_alpha(4, Costs(6.0, 0.0)) is None
    assert break_even_alpha(4, Costs(0.9, 0.0)) == 0.0
    assert break_even_cost(0.1, 4, 1.5) < 0


def test_cycles_without_a_draft_are_plain_passes() -> None:
    always, seldom = Costs(1.2, 0.01), Costs(1.2, 0.01, drafted_share=0.25)
    assert tokens_per_cycle(0.9, 4, 0.25) == pytest.approx(0.25 * tokens_per_cycle(0.9, 4) + 0.75)
    assert 1 < speedup(0.9, 4, seldom) < speedup(0.9, 4, always)
    assert break_even_alpha(4, seldom) == pytest.approx(break_even_alpha(4, always))  # the plain ones cancel


def test_best_length_follows_what_verification_costs() -> None:
    flat = dict.fromkeys((1, 2, 4, 8), 1.0)
    steep = {k: 1 + 0.8 * k for k in (1, 2, 4, 8)}
    assert best_length(0.9, flat, 0.0)[0] == 8
    assert best_length(0.9, steep, 0.0)[0] == 1
    assert best_length(0.2, steep, 0.0) == (0, 1.0)
    assert best_length(0.9, {}, 0.0) == (0, 1.0)


@pytest.mark.parametrize("wrong", [(-0.1, 4), (1.1, 4), (0.5, 0), (0.5, 65)])
def test_figures_that_mean_nothing_are_refused(wrong: tuple[float, int]) -> None:
    with pytest.raises(InputError):
        tokens_per_cycle(*wrong)
    for made in ({"v": 0.0}, {"c": -0.1}, {"drafted_share": 0.0}):
        with pytest.raises(InputError):
            Costs(**made)
