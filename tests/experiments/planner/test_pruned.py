"""What was not planned is counted by reason, with the least that more cards would have taken."""

from __future__ import annotations

from experiments.planner.candidates import Candidate
from experiments.planner.pruned import Pruned


def test_the_fewest_cards_of_those_that_took_too_many_are_kept() -> None:
    pruned = Pruned()
    assert pruned.fewest_devices is None
    for devices in (16, 12, 24):
        pruned.add_too_many(Candidate("h100-sxm", 2, 1, "fp8", "fp8", 64, 8192), devices)
    assert pruned.fewest_devices == 12 and pruned.count("too_many") == 3
    assert pruned.to_json()[0]["why"] == "16 cards"
