"""The canary's rule on made times: when B is rolled back, and when it is not."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.metrics.objectives import parse_slo
from experiments.server.canary import Canary, CanaryPlan
from ledger.errors import InputError

S = 1_000_000_000


class Trial:
    """A canary whose clock the test moves."""

    def __init__(self, slo: str = "ttft_p95=0.5", **plan: Any) -> None:
        self.now = 0
        self.told: list[dict[str, Any]] = []
        values = {"share": 0.1, "window_s": 60.0, "min_count": 20, **plan}
        self.canary = Canary(CanaryPlan(objectives=parse_slo(slo), **values), lambda: self.now, self.told.append)

    def feed(self, kind: str, a: float, b: float, count: int = 20) -> None:
        for _ in range(count):
            self.canary.latency(0, kind, a)
            self.canary.latency(1, kind, b)

    def judge(self) -> str:
        self.now += S
        self.canary.judge()
        return str(self.canary.status()["state"])


def test_the_split_is_the_share_and_the_same_for_the_same_seed() -> None:
    arms = [[trial.canary.choose() for _ in range(10_000)] for trial in (Trial(), Trial())]
    assert arms[0] == arms[1] and 900 < sum(arms[0]) < 1100


def test_b_over_the_limit_alone_is_rolled_back_once_and_gets_nothing_more() -> None:
    trial = Trial()
    trial.feed("ttft", a=0.1, b=0.6)
    assert trial.judge() == "rolled back"
    assert trial.told[0]["objective"] == "ttft_p95" and trial.told[0]["b"] == pytest.approx(0.6)
    assert "ttft_p95" in trial.told[0]["reason"]
    assert [trial.canary.choose() for _ in range(1000)] == [0] * 1000
    trial.feed("ttft", a=0.1, b=0.6)
    trial.judge()
    assert len(trial.told) == 1 and trial.canary.share == 0


def test_b_within_the_limit_stays() -> None:
    trial = Trial()
    trial.feed("ttft", a=0.1, b=0.5)
    assert trial.judge() == "watching" and trial.canary.status()["objectives"][0]["state"] == "met"


@pytest.mark.parametrize(("b", "state"), [(0.9, "watching"), (0.98, "watching"), (1.0, "rolled back")])
def test_a_breach_that_a_shares_rolls_back_only_what_is_worse_than_a(b: float, state: str) -> None:
    trial = Trial()
    trial.feed("ttft", a=0.9, b=b)
    assert trial.judge() == state
    if state == "watching":
        assert trial.canary.status()["objectives"][0]["state"] == "shared"


@pytest.mark.parametrize(("of_a", "of_b"), [(19, 40), (40, 19), (0, 40)])
def test_too_few_samples_of_either_arm_decide_nothing(of_a: int, of_b: int) -> None:
    trial = Trial()
    for arm, count, value in ((0, of_a, 0.1), (1, of_b, 9.0)):
        for _ in range(count):
            trial.canary.latency(arm, "ttft", value)
    assert trial.judge() == "watching" and trial.canary.status()["objectives"][0]["state"] == "waiting"


def test_what_lies_before_the_window_is_forgotten() -> None:
    trial = Trial()
    trial.feed("ttft", a=0.1, b=9.0, count=19)
    trial.now += 61 * S
    trial.feed("ttft", a=0.1, b=0.1, count=1)
    assert trial.judge() == "watching"
    assert trial.canary.status()["objectives"][0]["B"] == {"value": pytest.approx(0.1), "n": 1}


def test_one_objective_of_several_is_enough() -> None:
    trial = Trial("ttft_p95=0.5,itl_p99=0.05,error_rate=0.1")
    trial.feed("ttft", a=0.1, b=0.1)
    trial.feed("itl", a=0.01, b=0.2)
    assert trial.judge() == "rolled back" and trial.told[0]["objective"] == "itl_p99"


def test_errors_count_against_their_arm() -> None:
    trial = Trial("error_rate=0.05")
    for number in range(40):
        trial.canary.ended(0, failed=number == 0)
        trial.canary.ended(1, failed=number < 4)
    assert trial.judge() == "rolled back"
    assert trial.told[0]["a"] == pytest.approx(1 / 40) and trial.told[0]["b"] == pytest.approx(0.1)


def test_an_engine_that_is_broken_is_rolled_back_without_samples() -> None:
    trial = Trial()
    trial.canary.judge("a step failed")
    assert trial.canary.rolled_back is not None and trial.told[0]["reason"] == "a step failed"


def test_it_is_judged_once_a_second() -> None:
    trial = Trial()
    trial.feed("ttft", a=0.1, b=0.6)
    trial.now += S - 1
    trial.canary.judge()
    assert trial.canary.rolled_back is None
    trial.now += 1
    trial.canary.judge()
    assert trial.canary.rolled_back is not None


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("--canary-share", {"share": 0.0}),
        ("--canary-share", {"share": 1.0}),
        ("--slo", {"objectives": ()}),
        ("--slo", {"objectives": parse_slo("cost_per_request=1")}),
        ("--canary-window", {"window_s": 0}),
        ("--canary-min-requests", {"min_count": 0}),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(field: str, changes: dict[str, Any]) -> None:
    values = {"share": 0.1, "objectives": parse_slo("ttft_p95=1"), "window_s": 60.0, "min_count": 20, **changes}
    with pytest.raises(InputError, match=field):
        CanaryPlan(**values)
