"""A small model in front of a large one: who answers, what is held back, aborts, and one record of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.plan import StepPlan, StepResult, TokenLogprobs
from core_engine.routing import PROBE_TOKENS, Escalation, RoutedEngine, same_tokenizer, small_config
from core_engine.sampling_params import SamplingParams
from experiments.metrics import compute_metrics
from ledger.errors import CannotRunError, InputError
from tests.experiments.fakes import ByteTokenizer, FakeExecutor, VirtualClock, fake_loaded

SURE, UNSURE = -0.1, -3.0


class Opinionated(FakeExecutor):
    """Gives every token of a request the log-probability that `of` has for it; others are sure."""

    of: Mapping[str, float] = {}

    def execute(self, plan: StepPlan) -> StepResult:
        made = super().execute(plan)
        told = tuple((TokenLogprobs(self.of.get(row.request_id, SURE)),) if row.sample else () for row in plan.rows)
        return replace(made, logprobs=told)


def routed(of: Mapping[str, float], small_score: float = SURE, **settings: Any) -> RoutedEngine:
    config = EngineConfig.from_settings({"router": "small-first", **settings})
    clock, small = VirtualClock(), small_config(config)
    executor = Opinionated(clock, small, base_s=0.002, logprob=small_score)
    executor.of = of
    in_front = Engine(small, fake_loaded(), clock=clock, executor=executor)
    return RoutedEngine(config, fake_loaded(), in_front, clock=clock, executor=FakeExecutor(clock, config))


PARAMS = SamplingParams(max_tokens=PROBE_TOKENS + 4)


def test_a_sure_answer_is_the_small_models_and_an_unsure_one_the_large_ones() -> None:
    engine = routed({"r01": UNSURE})
    sure, unsure = engine.generate(["What is it?", "Prove it."], PARAMS)
    assert not engine.is_escalated(sure.request_id) and engine.is_escalated(unsure.request_id)
    assert len(sure.token_ids) == len(unsure.token_ids) == PARAMS.max_tokens
    by_model = {model: [s for s in engine.record()["steps"] if s["model"] == model] for model in ("small", "large")}
    assert {row[0] for step in by_model["large"] for row in step["rows"]} == {"r01"}


@pytest.mark.parametrize(("threshold", "escalated"), [(0.0, True), (-20.0, False), (-0.1, False), (-0.05, True)])
def test_the_threshold_decides(threshold: float, escalated: bool) -> None:
    engine = routed({}, router_threshold=threshold)
    engine.generate(["What is it?"], PARAMS)
    assert engine.is_escalated("r00") is escalated


def test_nothing_is_given_out_before_the_probe_is_over() -> None:
    engine = routed({"r01": UNSURE})
    for prompt in ("What is it?", "Prove it."):
        engine.add(prompt, PARAMS)
    got: dict[str, list[int]] = {}
    firsts: dict[str, int] = {}
    while engine.has_unfinished():
        for output in engine.step():
            firsts.setdefault(output.request_id, len(output.token_ids))
            got.setdefault(output.request_id, []).extend(output.token_ids)
            assert output.logprobs == ()
    assert firsts == {"r00": PROBE_TOKENS, "r01": 1}
    assert all(got[name] == engine.completion(name).token_ids for name in got)
    emitted = {entry["id"]: entry["emissions"] for entry in engine.record()["requests"]}
    assert emitted["r00"][0][1] == PROBE_TOKENS and sum(count for _, count in emitted["r00"]) == PARAMS.max_tokens


def test_an_answer_shorter_than_the_probe_is_decided_when_it_ends() -> None:
    engine = routed({"r01": UNSURE})
    answers = engine.generate(["What is it?", "Prove it."], SamplingParams(max_tokens=3))
    assert [len(answer.token_ids) for answer in answers] == [3, 3]
    assert [engine.is_escalated(answer.request_id) for answer in answers] == [False, True]


def test_one_record_has_every_request_once_and_its_metrics_say_who_answered() -> None:
    engine = routed({"r01": UNSURE, "r03": UNSURE}, exact_cache="on", prompt_compression="on")
    engine.generate([f"Question {number}?" for number in range(4)], PARAMS)
    record = engine.record()
    assert sorted(entry["id"] for entry in record["requests"]) == ["r00", "r01", "r02", "r03"]
    starts = [step["plan_start_ns"] for step in record["steps"]]
    assert starts == sorted(starts) and [step["index"] for step in record["steps"]] == list(range(len(starts)))
    for entry in record["requests"]:
        took_part = {step["index"] for step in record["steps"] if any(row[0] == entry["id"] for row in step["rows"])}
        assert entry["steps"] and {index for index, *_ in entry["steps"]} <= took_part
    metrics = compute_metrics({**record, "sender_ns": {}, "workload": None})
    assert metrics["router"]["escalated"] == 2 and metrics["router"]["escalated_share"] == 0.5
    assert metrics["router"]["dropped_tokens"] == 2 * PROBE_TOKENS and metrics["kv_waste"] is None
    assert metrics["memory"]["weights_bytes"] == 8  # of both
    assert metrics["answer_cache"]["hit_rate"] == 0


def test_an_escalated_requests_latency_counts_from_its_own_arrival() -> None:
    engine = routed({"r00": UNSURE})
    engine.add("Prove it.", PARAMS, arrival_ns=engine.clock.now_ns() - 7)
    while engine.has_unfinished():
        engine.step()
    (entry,) = engine.record()["requests"]
    assert entry["arrival_ns"] == engine.small.sessions.of("r00")[0].request.log.arrival_ns < entry["send_ns"]
    assert entry["emissions"][0][0] - entry["arrival_ns"] > 16 * 2_000_000


def test_an_escalated_request_was_sent_once_and_when_it_came() -> None:
    engine = routed({"r00": UNSURE})
    engine.add("Prove it.", PARAMS)
    while engine.has_unfinished():
        engine.step()
    (entry,) = engine.record()["requests"]
    assert entry["router"]["escalated"] and entry["send_ns"] == entry["arrival_ns"]  # no late sender


def test_an_escalated_request_draws_what_it_would_draw_without_a_router() -> None:
    engine, alone = routed({"r02": UNSURE}), routed({}).small
    for one in (engine, alone):
        for prompt in ("What is it?", "Is it?", "Prove it."):
            one.add(prompt, replace(PARAMS, temperature=1.0))
    while engine.has_unfinished():
        engine.step()
    assert engine.is_escalated("r02")
    assert engine.sessions.of("r02")[0].request.seed == alone.sessions.of("r02")[0].request.seed


def test_log_probabilities_are_given_to_who_asked_for_them() -> None:
    engine = routed({})
    assert engine.generate(["What is it?"], PARAMS)[0].logprobs == []
    assert len(engine.generate(["What is it?"], replace(PARAMS, logprobs=0))[0].logprobs) == PARAMS.max_tokens


@pytest.mark.parametrize("steps", [0, 3, 20])
def test_an_abort_leaves_nothing_behind(steps: int) -> None:
    engine = routed({"r00": UNSURE})
    engine.add("Prove it.", SamplingParams(max_tokens=64))
    for _ in range(steps):
        engine.step()
    engine.abort("r00")
    assert not engine.has_unfinished() and engine.step() == []
    assert engine.pool.num_used == engine.small.pool.num_used == 0


def test_an_answer_that_the_large_model_cannot_take_stays_the_small_ones() -> None:
    engine = routed({"r00": UNSURE, "r01": UNSURE}, max_queue=2)
    engine.config = replace(engine.config, max_queue=0)
    answer = engine.add("Prove it.", PARAMS)
    while engine.has_unfinished():
        engine.step()
    assert not engine.is_escalated(answer) and "max_queue" in engine.decisions[answer]["not_escalated"]
    assert len(engine.completion(answer).token_ids) == PARAMS.max_tokens


def test_static_batches_of_escalated_requests_come_to_an_end() -> None:
    engine = routed({f"r{n:02d}": UNSURE for n in range(5)}, batching="static", max_num_seqs=2)
    answers = engine.generate([f"Question {number}?" for number in range(5)], PARAMS)
    assert all(engine.is_escalated(answer.request_id) for answer in answers)


def test_streams_give_what_the_completion_has_whoever_answers() -> None:
    for of in ({}, {"r00": UNSURE}):
        engine = routed(of)
        outputs = list(engine.stream("Prove it.", PARAMS))
        assert [token for output in outputs for token in output.token_ids] == engine.completion("r00").token_ids
        assert outputs[-1].finished


def test_a_text_is_scored_by_whoever_would_go_on_with_it() -> None:
    assert routed({}, small_score=-0.2).score([65, 66, 67], 1) == [-0.2, -0.2]
    assert routed({}, small_score=-5.0).score([65, 66, 67], 1) == [-1.0, -1.0]
    with pytest.raises(CannotRunError, match="router"):
        routed({}).add_score([65, 66, 67], 1, watch=lambda place, rows: None)


def test_several_samples_of_a_prompt_are_refused() -> None:
    with pytest.raises(InputError, match="small-first"):
        routed({}).add("Why?", SamplingParams(n=2, temperature=1.0))


def test_the_mean_of_the_first_tokens_decides_and_none_is_unsure() -> None:
    rule = Escalation(-1.0)
    assert rule.keeps([-1.0] * PROBE_TOKENS + [-50.0]) and not rule.keeps([-1.1] * 3) and not rule.keeps([])


def test_the_small_configuration_differs_and_nothing_is_routed_twice() -> None:
    config = EngineConfig.from_settings({"router": "small-first", "max_num_seqs": 3})
    small = small_config(config)
    assert (small.weights, small.router, small.max_num_seqs) == ("w4a16-rtn", "off", 3)
    wide = EngineConfig.from_settings({"router": "small-first", "model": "embedded-wide", "router_small": "embedded"})
    assert small_config(wide).model == "embedded"
    for settings in ({"weights": "w4a16-rtn"}, {"router_small": "embedded"}):
        with pytest.raises(InputError, match="router_small"):
            small_config(EngineConfig.from_settings({"router": "small-first", **settings}))


def test_models_that_read_other_ids_are_refused() -> None:
    class Shifted(ByteTokenizer):
        def encode(self, text: str) -> list[int]:
            return [token ^ 1 for token in super().encode(text)]

    same_tokenizer(ByteTokenizer(), ByteTokenizer(), "x")
    with pytest.raises(InputError, match="tokenizer"):
        same_tokenizer(Shifted(), ByteTokenizer(), "x")
