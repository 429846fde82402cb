"""The warm-up takes what the run takes: a limit that refuses a burst, or one request too large, ends no run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core_engine.config import EngineConfig
from experiments import loadgen
from experiments.rig import WARM_UP_REQUESTS, busy_warning, draw_workload, warm_up
from experiments.spec import BenchSpec
from experiments.workloads import Workload
from ledger.errors import InputError
from tests.experiments.fakes import ByteTokenizer, FakeRig, VirtualClock


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> FakeRig:
    monkeypatch.setattr(loadgen.gc, "collect", lambda: 0)
    return FakeRig(VirtualClock())


def workload(num_requests: int = 6) -> Workload:
    spec = BenchSpec(workload="equal", num_requests=num_requests, max_tokens_cap=4)
    return draw_workload(spec, ByteTokenizer())


@pytest.mark.parametrize("max_queue", [1, 2, WARM_UP_REQUESTS])
def test_a_short_queue_is_no_bar(rig: FakeRig, max_queue: int) -> None:
    config = EngineConfig.from_settings({"max_queue": max_queue, "max_num_seqs": 1, "rate_limit_rps": 0.5})
    warmed = warm_up(rig, config, workload())
    assert warmed.stable and warmed.pace is not None
    assert config.max_queue == max_queue  # of the run itself


def test_a_request_that_can_never_fit_is_passed_over(rig: FakeRig) -> None:
    drawn = workload()
    too_long = replace(drawn.requests[0], prompt_token_ids=tuple([65] * 5000))
    mixed = replace(drawn, requests=(*[too_long] * WARM_UP_REQUESTS, *drawn.requests))
    assert warm_up(rig, EngineConfig.from_settings({}), mixed).stable
    with pytest.raises(InputError):
        warm_up(rig, EngineConfig.from_settings({}), replace(drawn, requests=(too_long,) * 6))


def test_a_busy_machine_is_told_in_words_that_hold_for_a_single_run_too() -> None:
    told = busy_warning({"load_before": 3.0, "cores": 2})
    assert told is not None and "load 3.00 on 2 cores" in told and "interval" not in told
    assert busy_warning({"load_before": 0.2, "cores": 2}) is None
