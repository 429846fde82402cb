"""The spec's fields about the load: validated, round trip, and old specs still mean what they meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.report.comparison import reproduce_command
from experiments.rig import draw_workload
from experiments.spec import BenchSpec, CompareSpec
from ledger.errors import CannotRunError, InputError
from tests.experiments.fakes import ByteTokenizer

LOAD = {"num_requests": 3, "concurrency": 2, "time_scale": 0.5, "length_scale": 2.0, "max_prompt_tokens": 9}


@pytest.mark.parametrize("cls", [BenchSpec, CompareSpec])
def test_load_fields_survive_a_round_trip(cls: Any) -> None:
    spec = cls.from_dict({key: str(value) for key, value in LOAD.items()})
    assert {key: getattr(spec, key) for key in LOAD} == LOAD
    assert cls.from_dict(spec.to_dict()) == spec


def test_a_spec_from_before_these_fields_means_the_workload_as_it_is() -> None:
    spec = BenchSpec.from_dict({"workload": "mixed", "num_requests": None, "rate_rps": 2.0, "max_tokens_cap": 8})
    assert (spec.concurrency, spec.time_scale, spec.length_scale, spec.max_prompt_tokens) == (None, 1.0, 1.0, None)


def test_the_fields_reach_the_workload() -> None:
    workload = draw_workload(BenchSpec.from_dict({"workload": "mixed", **LOAD}), ByteTokenizer())
    assert (workload.concurrency, len(workload.requests)) == (2, 3)
    assert {request.prompt_tokens for request in workload.requests} == {9}


def test_a_path_is_kept_absolute_so_that_the_worker_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,4,2\n")
    monkeypatch.chdir(tmp_path)
    for name in ("mine.csv", "trace:csv:mine.csv"):
        spec = BenchSpec.from_dict({"workload": name})
        monkeypatch.chdir("/")
        assert len(draw_workload(spec, ByteTokenizer()).requests) == 1
        assert BenchSpec.from_dict(spec.to_dict()) == spec
        monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"workload": "nope"}, "workload"),
        ({"workload": "equal", "rate_rps": 2}, "rate_rps"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": 2, "rate_rps": 2}, "rate_rps"),
        ({"time_scale": 0}, "time_scale"),
        ({"length_scale": "long"}, "length_scale"),
        ({"max_prompt_tokens": 1.5}, "max_prompt_tokens"),
    ],
)
def test_a_wrong_load_is_refused_before_anything_is_loaded(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as error:
        BenchSpec.from_dict(spec)
    assert error.value.field == field


def test_a_missing_file_is_missing_not_wrong() -> None:
    with pytest.raises(CannotRunError):
        BenchSpec.from_dict({"workload": "/nowhere/traffic.toml"})


def test_the_command_that_reproduces_a_run_says_its_load() -> None:
    spec = CompareSpec.from_dict({**LOAD, "max_tokens_cap": 7}).to_dict()
    command = reproduce_command(spec)
    for part in ("--concurrency 2", "--time-scale 0.5", "--length-scale 2.0", "--max-prompt 9", "--max-output 7"):
        assert part in command
    assert "--time-scale" not in reproduce_command(CompareSpec(rate_rps=1.0).to_dict())
    assert "--rate 1.0" in reproduce_command(CompareSpec(rate_rps=1.0).to_dict())
