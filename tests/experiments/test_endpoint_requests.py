"""A server as a target: what is asked of it, what it refuses, and conversations."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from core_engine.config import EngineConfig
from experiments.metrics import compute_metrics
from experiments.spec import BenchSpec
from experiments.targets import EndpointTarget, warnings_of
from experiments.workloads import Workload
from ledger.errors import CannotRunError
from tests.experiments.endpoint_rig import Bytes, answering, endpoint, truncated
from tests.experiments.mock_server import MockServer, workload_of


def test_everything_that_the_server_takes_is_asked_of_it() -> None:
    with endpoint() as (mock, target):
        target.run(workload_of((4, 3, 0.0)))
    (body,) = mock.bodies
    assert body["prompt"] == [97, 98, 99, 100]
    assert (body["max_tokens"], body["min_tokens"], body["ignore_eos"], body["temperature"]) == (3, 3, True, 0)
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert target.describe()["prompts"] == "token ids"
    assert target.describe()["same_tokenizer"] == "its /tokenize gives the same ids"


def test_what_it_refuses_is_left_out_and_said() -> None:
    refuse = ("ignore_eos", "min_tokens", "prompt_token_ids", "stream_options")
    with endpoint(refuse=refuse) as (mock, target):
        target.run(workload_of((4, 3, 0.0)))
        described = target.describe()
    (body,) = mock.bodies
    assert body["prompt"] == "abcd" and not {"ignore_eos", "min_tokens", "stream_options"} & body.keys()
    assert described["lengths"] == "the server's" and described["prompts"] == "text"
    assert set(refuse) <= set(described["left_out"]) and "seed" not in described["left_out"]


def test_a_server_with_chats_alone_is_sent_chats() -> None:
    with endpoint(completions=False) as (mock, target):
        target.run(workload_of((4, 3, 0.0)))
    assert mock.bodies[0]["messages"] == [{"role": "user", "content": "abcd"}]
    assert target.describe()["api"] == "chat"


def test_answers_that_end_early_are_said_to_be_the_servers() -> None:
    with endpoint(answering(10, 20)) as (_, target):
        record = target.run(workload_of((4, 9, 0.0)))
    assert any("1 of 1 answers of the run are shorter than asked" in line for line in warnings_of(record, "the run"))


def test_several_models_need_a_name() -> None:
    with MockServer(models=("small", "large")) as mock:
        for fields, accepted in (({}, "name one of small, large"), ({"endpoint_model": "huge"}, "has no huge")):
            spec = BenchSpec.from_dict({"endpoint": mock.url, **fields})
            target = EndpointTarget(spec, EngineConfig.from_settings({}), tokenizer=Bytes())
            with pytest.raises(CannotRunError, match=accepted):
                target.warm_up(workload_of((4, 1, 0.0)))
        spec = BenchSpec.from_dict({"endpoint": f"{mock.url}/v1#large"})
        EndpointTarget(spec, EngineConfig.from_settings({}), tokenizer=Bytes()).warm_up(workload_of((4, 1, 0.0)))
        assert mock.bodies[-1]["model"] == "large"


def test_the_key_is_sent_and_neither_stored_nor_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with MockServer(key="sk-secret") as mock:
        spec = BenchSpec.from_dict({"endpoint": mock.url, "key_env": "SOME_KEY"})
        target = EndpointTarget(spec, EngineConfig.from_settings({}), tokenizer=Bytes())
        with pytest.raises(CannotRunError, match="the environment has no SOME_KEY"):
            target.warm_up(workload_of((4, 1, 0.0)))
        monkeypatch.setenv("SOME_KEY", "sk-wrong")
        with pytest.raises(CannotRunError, match="refuses the key") as refused:
            target.warm_up(workload_of((4, 1, 0.0)))
        assert "sk-" not in str(refused.value)
        monkeypatch.setenv("SOME_KEY", "sk-secret")
        target.warm_up(workload_of((4, 1, 0.0)))
        mock.key = "sk-other"  # changed meanwhile; this server repeats in its answer what it was given
        record = target.run(workload_of((4, 1, 0.0)))
    assert record["requests"][0]["status"] == 401
    assert "sk-" not in json.dumps([record, spec.to_dict(), target.describe()])


def test_a_closed_loop_has_as_many_in_flight_as_clients() -> None:
    workload = workload_of(*((4, 2, 0.0) for _ in range(6)), concurrency=2)
    with endpoint(answering(10, 20), clock=None) as (_, target):
        found = compute_metrics(target.run(workload))
    assert found["completed"] == 6
    assert found["in_flight"]["peak"] == 2


def test_a_later_turn_begins_with_the_answer_before_it() -> None:
    first, second = workload_of((3, 2, 0.0), (2, 2, 0.0)).requests
    turns = (replace(first, session=0), replace(second, session=0, parent=0, history_tokens=5))
    workload = Workload("test", 0, turns, None, "poisson")
    with endpoint(answering(10, 20)) as (mock, target):
        record = target.run(workload)
        mock.script = truncated
        broken = target.run(workload)
    assert bytes(mock.bodies[1]["prompt"]) == b"abc" + b"aa" + b"bc"
    assert record["requests"][1]["arrival_ns"] == record["requests"][0]["finish_ns"]
    assert broken["requests"][1]["error"] == "the turn before it failed"
