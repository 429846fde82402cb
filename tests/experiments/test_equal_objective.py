"""`--measure capacity` on the engine with a virtual clock: the rate that is found, the cost there, bounds, refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from experiments import loadgen
from experiments.cli.tables import print_comparison
from experiments.compare import run_comparison
from experiments.report import verdict_sentence
from experiments.report.comparison import reproduce_command
from experiments.spec import CompareSpec
from experiments.store import Run
from ledger.errors import InputError
from tests.experiments.fakes import FakeRig, VirtualClock
from tests.experiments.report_runs import page_of

# One seat, 10 ms a step and nothing a token: a request of one prompt step and two of decode is served in 30 ms.
SPEC = {"variable": "seed", "values": [0, 1], "workload": "mixed", "num_requests": 12, "max_tokens_cap": 3,
        "repeats": 2, "measure": "capacity", "slo": "ttft_p95=0.1", "settings": {"max_num_seqs": 1}}  # fmt: skip


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    monkeypatch.setattr(loadgen.gc, "collect", lambda: 0)  # 0.1 s with torch loaded, many runs
    return VirtualClock()


def compare(clock: VirtualClock, candidate_s: float, **spec: Any) -> dict[str, Any]:
    def speed(config: Any) -> dict[str, float]:
        return {"base_s": candidate_s if config.seed == 1 else 0.01, "token_s": 0.0}

    return run_comparison({**SPEC, **spec}, None, "r0", rig=FakeRig(clock, speed=speed))


def curve(result: dict[str, Any], name: str) -> dict[str, Any]:
    return next(curve for curve in result["curves"] if curve["name"] == name)


def test_twice_as_fast_holds_about_twice_the_rate_at_half_the_cost(clock: VirtualClock) -> None:
    result = compare(clock, 0.005)
    capacity = curve(result, "capacity_rps")
    assert (capacity["verdict"], capacity["better"], capacity["statistic"]) == ("better", "higher", "highest")
    # A queue's delay shrinks with its service time too, so at one limit for TTFT a little more than twice.
    assert 1.9 < capacity["candidate"] / capacity["baseline"] < 4.0
    assert capacity["noise_floor_pct"] >= 5.0
    cost = curve(result, "cost_per_request")
    assert cost["verdict"] == "better" and 0.2 < cost["candidate"] / cost["baseline"] < 0.6
    for arm, searches in enumerate(item["searches"] for item in result["capacity"]["arms"]):
        assert len(searches) == 2 and {found["outcome"] for found in searches} == {"found"}
        assert result["arms"][arm]["metrics"]["ttft_s"]["p95"] <= 0.1
    assert result["measure"] == "capacity" and result["capacity"]["slo"] == "ttft_p95=0.1"
    json.dumps(result, allow_nan=False)


def test_equal_arms_have_equal_capacity(clock: VirtualClock) -> None:
    result = compare(clock, 0.01)
    assert curve(result, "capacity_rps")["verdict"] == "no difference"
    assert curve(result, "quality")["verdict"] == "no difference"


def test_a_limit_that_is_always_met_or_never_is_no_capacity(clock: VirtualClock) -> None:
    met = compare(clock, 0.01, slo="ttft_p95=1000", num_requests=3)
    assert curve(met, "capacity_rps")["baseline"] is None
    assert any("capacity is beyond it (2 of 2 searches)" in warning for warning in met["warnings"])
    missed = compare(clock, 0.01, slo="ttft_p95=0.000001", num_requests=3)
    assert curve(missed, "cost_per_request")["verdict"] == "inconclusive"
    assert any("missed even at the lowest rate" in warning for warning in missed["warnings"])


def test_tables_report_and_command_show_it(clock: VirtualClock, capsys: pytest.CaptureFixture[str]) -> None:
    result = compare(clock, 0.005)
    print_comparison(result)
    assert "capacity" in capsys.readouterr().out
    spec = CompareSpec.from_dict(SPEC).to_dict()
    run = Run("r0", "compare", "done", "2026-01-02T03:04:05+00:00", "", spec, result)
    for lang, word in (("en", "Capacity"), ("zh", "容量")):
        assert word in page_of(run, [], lang) and word.lower() in verdict_sentence(result, lang)
    command = reproduce_command(spec)
    assert "--slo ttft_p95=0.1" in command and "--measure capacity" in command


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"slo": None}, "--slo"),
        ({"measure": "speed"}, "--measure"),
        ({"concurrency": 4}, "--concurrency"),
        ({"slo": "ttft_p95=1,cost_per_request=0.1"}, "--slo"),
        ({"slo": "quality_drop=0.01"}, "--slo"),
    ],
)
def test_what_has_no_capacity_is_refused(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        CompareSpec.from_dict({**SPEC, **change})
    assert caught.value.field == field


def test_a_spec_of_before_measures_at_equal_load() -> None:
    fields = {name: value for name, value in SPEC.items() if name not in ("measure", "slo")}
    assert CompareSpec.from_dict(fields).measure == "load"
    assert "--measure" not in reproduce_command(CompareSpec.from_dict(fields).to_dict())
