"""The rule on speculation: it fires for each of its causes, it recommends, and it stays silent."""

from __future__ import annotations

import pytest

from experiments.advisor.speculation import (
    ACCEPTANCE,
    DRAFTING,
    MEASURED,
    PAYS,
    REFUSES,
    UNKNOWN,
    VERIFYING,
    advise,
)
from ledger.speculation import Costs, break_even_alpha

POOR = Costs(1.0, 0.169)


@pytest.mark.parametrize(
    ("alpha", "costs", "reason"),
    [
        (0.3, POOR, DRAFTING),  # free drafts would pay, these are dearer than they may be
        (0.3, Costs(1.6, 0.01), ACCEPTANCE),  # a cycle yields less than verifying takes
        (0.99, Costs(5.5, 0.0), VERIFYING),  # five tokens at most for 5.5 passes
    ],
)
def test_it_refuses_and_names_the_cause(alpha: float, costs: Costs, reason: str) -> None:
    found = advise(alpha, 4, costs)
    assert (found.verdict, found.reason) == (REFUSES, reason)
    assert found.predicted is not None and found.predicted <= 1
    assert found.needed_alpha == break_even_alpha(4, costs)


def test_the_case_of_three_tenths_is_refused_with_its_figures() -> None:
    found = advise(0.3, 4, POOR)
    assert found.predicted == pytest.approx(0.85, abs=1e-3) and found.allowed_c == pytest.approx(0.106, abs=1e-3)
    assert found.tokens_per_cycle == pytest.approx(1.425, abs=1e-3)
    assert found.accepted_per_draft == pytest.approx(0.106, abs=1e-3)


def test_it_recommends_what_pays() -> None:
    found = advise(0.8, 4, Costs(1.2, 0.05))
    assert (found.verdict, found.reason) == (PAYS, "") and found.predicted > 2


@pytest.mark.parametrize(("alpha", "costs"), [(None, POOR), (0.3, None), (None, None)])
def test_it_is_silent_without_measured_figures(alpha: float | None, costs: Costs | None) -> None:
    found = advise(alpha, 4, costs)
    assert (found.verdict, found.reason, found.predicted) == (UNKNOWN, "", None)


@pytest.mark.parametrize("measured", ["no difference", "inconclusive"])
def test_it_is_silent_where_the_parts_promise_what_was_not_measured(measured: str) -> None:
    assert advise(0.8, 4, Costs(1.2, 0.05), measured).verdict == UNKNOWN


def test_what_was_measured_as_a_whole_outweighs_the_parts() -> None:
    assert advise(0.3, 4, POOR, "better").verdict == PAYS
    slower = advise(0.8, 4, Costs(1.2, 0.05), "worse")
    assert (slower.verdict, slower.reason) == (REFUSES, MEASURED)
    assert advise(0.3, 4, POOR, "inconclusive").verdict == REFUSES
