"""Points on Ray workers: the same curve, the same store, each worker one point at a time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from experiments.store import Store
from experiments.sweep import fanout
from experiments.sweep.run import run_sweep
from experiments.sweep.spec import SweepSpec
from ledger.errors import CannotRunError
from tests.experiments.sweep.nodes import fake_measure, refuse_measured

SPEC: dict[str, Any] = {
    "workload": "equal", "max_tokens_cap": 4, "num_requests": 6, "values": [1, 2, 13, 4],
    "settings": {"max_num_seqs": 16, "prefix_cache": "off"},
}  # fmt: skip
CURVE = ("value", "output_tokens_per_s", "ttft_p95_s", "latency_per_token_s")


def curve(result: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [tuple(point[name] for name in CURVE) for point in result["points"]]


@pytest.mark.slow
def test_points_of_two_workers_are_those_of_one_process_in_the_same_store(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray", reason="ray is not installed")
    store = Store(tmp_path / "runs.sqlite3")
    run_id = store.create_run("sweep", {})
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        spread = run_sweep({**SPEC, "ray_address": "local", "per_node": 2, "repeats": 2, "seed": 1}, store, run_id,
                           make_measure=fake_measure)  # fmt: skip
        again = run_sweep({**SPEC, "ray_address": "local", "per_node": 2, "repeats": 2, "seed": 1}, store, run_id,
                          make_measure=refuse_measured)  # fmt: skip
    finally:
        ray.shutdown()
    alone = run_sweep({**SPEC, "repeats": 2, "seed": 1}, None, "", make_measure=fake_measure)
    assert curve(spread) == curve(alone) == curve(again)
    refused = {"label": "13 at a time", "value": 13}
    assert [{name: one[name] for name in refused} for one in spread["unavailable"]] == [refused]
    assert spread["unavailable"][0]["reason"] == "concurrency: '13' is not accepted; accepted: another number"
    assert len(store.record_keys(run_id)) == 6
    processes = {stored.record["environment"]["process"] for stored in store.records(run_id)}
    assert len(processes) == 2 and all(node["node"] for node in spread["nodes"])
    assert any("differ in cpu: they don't compare" in warning for warning in spread["warnings"])


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    spec = SweepSpec.from_dict({**SPEC, "ray_address": "local"})
    with pytest.raises(CannotRunError, match=r"pip install 'trilemma\[ray\]'"):
        fanout.fan_out(spec, [], lambda task, outcome: None, lambda: False)
