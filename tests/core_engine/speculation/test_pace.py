"""Adaptive lengths and the switch-off follow what is measured, on a clock that the test moves."""

from __future__ import annotations

import pytest

from core_engine.speculation.pace import LEAST_STEPS, PERIOD, PROBES, Pace
from core_engine.speculation.statistics import AcceptanceCounts, Outcome


def steps(pace: Pace, count: int, rows: int, drafted_s: float, plain_s: float, tokens: int) -> list[bool]:
    """Steps of an engine in which drafts, two a row, bring `tokens` a row in drafted_s."""
    taken = []
    for _ in range(count):
        on = pace.drafts_now(rows)
        pace.add(rows, drafted_s if on else plain_s, rows * (tokens if on else 1), 2 * rows if on else 0)
        taken.append(on)
    return taken


def test_the_faster_way_is_taken_at_each_batch_size_and_the_other_looked_at_now_and_then() -> None:
    pace = Pace()
    small = steps(pace, 4 * PERIOD, 1, drafted_s=1.2, plain_s=1.0, tokens=2)
    large = steps(pace, 4 * PERIOD, 8, drafted_s=2.5, plain_s=1.0, tokens=2)
    learning = 2 * (LEAST_STEPS + 1)
    assert sum(small[learning:]) == pytest.approx(len(small) - learning - 4 * PROBES, abs=PROBES)
    assert sum(large[learning:]) == pytest.approx(4 * PROBES, abs=PROBES)
    told = {entry["batch_size"]: entry for entry in pace.to_json()}
    assert told[1]["pays"] and not told[8]["pays"]
    assert told[8]["with_drafts_s_per_token"] == pytest.approx(2.5 / 16)
    assert told[8]["without_s_per_token"] == pytest.approx(1 / 8)
    assert told[8]["steps_off"] > told[1]["steps_off"]


def test_the_choice_follows_a_load_that_changes() -> None:
    pace = Pace()
    steps(pace, 2 * PERIOD, 4, drafted_s=3.0, plain_s=1.0, tokens=2)
    after = steps(pace, 6 * PERIOD, 4, drafted_s=1.0, plain_s=1.0, tokens=2)
    assert sum(after[-PERIOD:]) >= PERIOD - PROBES


def test_lengths_follow_the_acceptance_and_the_measured_price_of_a_draft() -> None:
    pace = Pace()
    assert pace.best_length(1, 0.1, 8) == 8  # nothing is known yet
    steps(pace, PERIOD, 1, drafted_s=1.4, plain_s=1.0, tokens=3)  # a draft costs a fifth of a pass
    lengths = [pace.best_length(1, alpha, 8) for alpha in (0.05, 0.3, 0.6, 0.9, 1.0)]
    assert lengths == sorted(lengths) and lengths[0] == 1 and lengths[-1] == 8
    assert lengths[2] == max(range(1, 9), key=lambda k: (1 - 0.6 ** (k + 1)) / 0.4 / (1 + 0.2 * k))


def test_acceptance_is_counted_by_position_and_without_what_a_stop_cut() -> None:
    counts = AcceptanceCounts()
    for outcome in (
        Outcome("a", 4, 2, 3),  # two accepted, the third rejected, the fourth not tested
        Outcome("a", 4, 4, 5),
        Outcome("a", 4, 0, 1),
        Outcome("a", 4, 2, 2),  # a stop at the second accepted one: no other was tested
        Outcome("a", 0, 0, 1),
    ):
        counts.add(outcome)
    told = counts.to_json()
    assert told["alpha_by_position"] == [3 / 4, 1.0, 1 / 2, 1.0]
    assert told["alpha"] == 8 / 10 and told["acceptance_rate"] == 8 / 16
    assert told["tokens_per_pass"] == 12 / 5 and told["target_passes"] == 5
    assert AcceptanceCounts().to_json()["alpha"] is None
