"""The simulator's benchmarks: what they judge by, on made-up figures and a few requests."""

from __future__ import annotations

from typing import Any

import simulator_error
import simulator_speed

from experiments.simulator.deployment import SimulateSpec, deployed


def _result(tpot: float, simulated_knee: int = 2) -> dict[str, Any]:
    run = {
        "kind": "run", "formats": "none/auto", "case": "closed", "counted": ["tpot", "throughput"],
        "errors_pct": {"tpot": tpot, "ttft": 99.0, "throughput": -4.0},
        "errors_without_drift_pct": {"tpot": tpot - 20.0, "ttft": 99.0, "throughput": -24.0},
    }  # fmt: skip
    knee = {"kind": "knee", "formats": "none/auto", "rates": list(simulator_error.LADDER), "measured": 3,
            "simulated": simulated_knee}  # fmt: skip
    rows = [run, knee]
    return {"rows": rows, "knees": [knee], "errors": simulator_error._errors(rows)}


def test_errors_are_those_that_count_and_the_knee_may_be_next_to_the_measured_one() -> None:
    good = _result(-6.0)
    assert good["errors"] == {
        "tpot": {"mape_pct": 6.0, "max_pct": 6.0, "without_drift_mape_pct": 26.0, "n": 1},
        "throughput": {"mape_pct": 4.0, "max_pct": 4.0, "without_drift_mape_pct": 24.0, "n": 1},
    }
    assert simulator_error._holds(good)
    assert not simulator_error._holds(_result(-11.0)) and not simulator_error._holds(_result(1.0, simulated_knee=1))
    table = simulator_error.markdown(good)
    assert "| -6.0 % | (+99.0 %) | -4.0 % |" in table and "**6.0 %**" in table
    assert "26.0 %" in table and "as fast as when it was calibrated" in table


def test_the_knee_is_the_last_rate_before_first_tokens_wait() -> None:
    assert simulator_error._knee([0.1, 0.11, 0.2, 0.39, 0.9, 3.0]) == 3
    assert simulator_error._knee([0.1, 0.5, 0.2]) == 0


def test_speed_goes_through_lengths_again_and_compares_both_ways() -> None:
    lengths = simulator_speed.lengths_of(None)
    assert abs(sum(prompt for prompt, _ in lengths) / len(lengths) / simulator_speed.MEANS[0] - 1) < 0.1
    jobs = list(simulator_speed.jobs_of([(30, 4), (50, 6)], 5, 10.0))
    assert [(job.prompt_tokens, job.output_tokens) for job in jobs] == [(30, 4), (50, 6)] * 2 + [(30, 4)]
    spec = SimulateSpec.from_dict({"model": "llama-3.1-8b", "gpu": "h100", "replicas": 2})
    assert simulator_speed.same_events(spec, deployed(spec), jobs)
