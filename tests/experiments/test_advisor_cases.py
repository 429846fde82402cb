"""Servers as people describe them (fixtures/advisor_cases.toml): the cause that a colleague would name is first."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from experiments.advisor.diagnose import HEALTHY, diagnose
from experiments.advisor.evidence import evidence_of

CASES = tomllib.loads((Path(__file__).parents[1] / "fixtures" / "advisor_cases.toml").read_text("utf-8"))["case"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_cause_that_a_colleague_would_name_stands_first(case: dict[str, Any]) -> None:
    found = diagnose(evidence_of(case["numbers"], "typed in"))
    assert ("" if found.top is None else found.top.cause) == case["cause"], [one.to_json() for one in found.findings]
    if not case["cause"]:
        assert found.verdict == HEALTHY
