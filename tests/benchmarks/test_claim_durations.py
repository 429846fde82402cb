"""Measured durations in the table of claims."""

from __future__ import annotations

import tomllib

from claim_durations import TABLE, rewritten


def test_measured_durations_take_the_place_of_the_tables() -> None:
    before = TABLE.read_text("utf-8")
    after = tomllib.loads(rewritten(before, {"C08": 61.2, "C45": 0.01}))
    assert (after["C08"]["seconds"], after["C45"]["seconds"]) == (65, 1)
    unchanged = tomllib.loads(before)
    assert after["C08"]["simulate"] == unchanged["C08"]["simulate"] and after["C10"] == unchanged["C10"]
