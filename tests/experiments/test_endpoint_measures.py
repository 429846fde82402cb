"""A server as a target: what a client measures of scripted streams.

Faults have the numbers of the list of known faults of measuring tools (30 to 42).
"""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest
from aiohttp import web

from core_engine.config import EngineConfig
from experiments.metrics import compute_metrics
from experiments.spec import BenchSpec
from experiments.targets import EndpointTarget, measure, warnings_of
from experiments.workloads import poisson_arrivals_ns
from tests.experiments.endpoint_rig import Bytes, answering, endpoint, metrics_of
from tests.experiments.fakes import ByteTokenizer
from tests.experiments.mock_server import MockServer, Script, ScriptClock, Turn, workload_of


def test_fault_30_tpot_leaves_the_time_to_first_token_out() -> None:
    found = metrics_of(answering(*(1000 + 10 * k for k in range(11))), (4, 11, 0.0))
    assert found["ttft_s"]["p50"] == pytest.approx(1.0)
    assert found["tpot_s"]["p50"] == pytest.approx(0.010)


def test_fault_31_one_long_gap_shows_in_the_itl_p99() -> None:
    times = [100 + 10 * k for k in range(10)]
    found = metrics_of(answering(*times, times[-1] + 1000), (4, 11, 0.0))
    assert found["itl_s"]["n"] == 10
    assert found["itl_s"]["p99"] > 0.9
    assert found["itl_s"]["p50"] == pytest.approx(0.010)


def test_fault_32_a_chunk_without_text_is_not_the_first_token() -> None:
    async def script(turn: Turn) -> None:
        await turn.text(100, "")
        await turn.text(500, "a")
        await turn.end(tokens=1)

    with endpoint(script) as (_, target):
        record = target.run(workload_of((4, 1, 0.0)))
    assert compute_metrics(record)["ttft_s"]["p50"] == pytest.approx(0.5)
    assert record["requests"][0]["first_event_ns"] == 100_000_000  # what vLLM's own benchmark takes


def test_fault_32_a_role_is_no_token_and_reasoning_is_one() -> None:
    async def script(turn: Turn) -> None:
        for ms, delta in ((100, {"role": "assistant", "content": ""}), (400, {"reasoning_content": "hm"}),
                          (500, {"content": "a"})):  # fmt: skip
            await turn.at(ms)
            await turn.event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        await turn.end("stop", tokens=2)

    found = metrics_of(script, (4, 2, 0.0), fields={"endpoint_api": "chat"})
    assert found["ttft_s"]["p50"] == pytest.approx(0.4)
    assert found["tpot_s"]["p50"] == pytest.approx(0.1)


def test_fault_33_a_first_chunk_of_five_tokens_leaves_the_divisor() -> None:
    async def script(turn: Turn) -> None:
        await turn.text(100, "abcde", total=5)
        for place in range(5):
            await turn.text(120 + 20 * place, "a", total=6 + place)
        await turn.end(tokens=10)

    with endpoint(script) as (_, target):
        record = target.run(workload_of((4, 10, 0.0)))
    assert [tokens for _, tokens in record["requests"][0]["emissions"]] == [5, 1, 1, 1, 1, 1]
    assert compute_metrics(record)["tpot_s"]["p50"] == pytest.approx(0.020)
    assert record["tokens_counted"] == {"usage of each chunk": 1}


@pytest.mark.parametrize("told", [True, False])
def test_fault_34_tokens_are_counted_and_not_chunks(told: bool) -> None:
    """Four tokens a chunk: by the server's usage where it has one, else by the model's own tokenizer."""

    async def script(turn: Turn) -> None:
        for place in range(8):
            await turn.text(100 * (place + 1), "abcd")
        await turn.end(tokens=32 if told else None)

    found = metrics_of(script, (4, 32, 0.0))
    assert found["output_tokens_per_s"] == pytest.approx(32 / 0.8)
    assert found["peak_output_tokens_per_s"] >= found["output_tokens_per_s"]
    assert found["tokens_counted"] == {"the model's tokenizer": 1}


def test_without_tokenizer_and_usage_the_count_is_marked_as_assumed() -> None:
    with endpoint(answering(10, 20, tokens=None), tokenizer=None) as (_, target):
        record = target.run(workload_of((4, 2, 0.0)))
    assert record["tokens_counted"] == {"one a chunk, assumed": 1}
    assert any("assumed" in line for line in warnings_of(record, "the run"))


def test_fault_35_latency_counts_from_the_schedule() -> None:
    """0.5 s a request, one at a time, 4 arrivals/s: the p99 from the schedule grows with the number of requests."""

    def one_at_a_time() -> Script:
        alone = asyncio.Lock()

        async def script(turn: Turn) -> None:
            async with alone:
                await serve(turn)

        return script

    async def serve(turn: Turn) -> None:
        assert turn.server.clock is not None
        turn.start_ns = turn.server.clock.ns
        await turn.text(500, "a")
        await turn.end(tokens=1)

    def p99(count: int) -> float:
        return float(metrics_of(one_at_a_time(), *((4, 1, number / 4) for number in range(count)))["e2e_s"]["p99"])

    small, large = p99(4), p99(12)
    assert small == pytest.approx(0.5 + 3 * 0.25, abs=0.05)
    assert large == pytest.approx(0.5 + 11 * 0.25, abs=0.05)


def test_fault_36_a_client_that_cannot_keep_the_rate_says_so() -> None:
    clock = ScriptClock()
    with endpoint(answering(10), clock=clock) as (_, target):
        clock.oversleep_s = 0.8  # this process wakes up late
        record = target.run(workload_of(*((4, 1, number / 2) for number in range(6))))
    load = compute_metrics(record)["offered_load"]
    assert load["offered_rps"] == pytest.approx(2.0)
    assert load["achieved_rps"] < 1.9
    assert load["lateness_s"]["p99"] > 0.5
    assert "2 requests/s that were scheduled" in load["warning"]


def test_fault_37_failed_requests_are_no_throughput() -> None:
    async def script(turn: Turn) -> None:
        raise web.HTTPInternalServerError(text=json.dumps({"error": {"message": "out of memory"}}))

    found = metrics_of(script, (4, 8, 0.0), (4, 8, 0.1))
    assert (found["completed"], found["failed"], found["error_rate"]) == (0, 2, 1.0)
    assert not found["output_tokens_per_s"]
    assert found["failures"] == [{"error": "HTTP 500: out of memory", "count": 2}]


def test_fault_38_prompts_have_the_asked_lengths_at_the_server() -> None:
    with endpoint() as (mock, target):
        record = target.run(workload_of(*((1000, 1, 0.0) for _ in range(100))))
    assert {len(body["prompt"]) for body in mock.bodies} == {1000}
    assert {r["prompt_tokens"] - r["asked_prompt_tokens"] for r in record["requests"]} == {0}


def test_fault_38_other_lengths_at_the_server_are_said() -> None:
    async def script(turn: Turn) -> None:
        await turn.text(10, "a")
        await turn.end(tokens=1, prompt_tokens=31)

    with endpoint(script, tokenizer=None) as (mock, target):
        record = target.run(workload_of((20, 1, 0.0)))
    assert isinstance(mock.bodies[0]["prompt"], str)
    assert any("31 tokens, not 20" in line for line in warnings_of(record, "the run"))


def test_fault_39_the_servers_cache_is_emptied_where_it_can_be_told_to() -> None:
    with endpoint(resets=True) as (mock, target):
        made = [measure(BenchSpec(), target, workload_of((8, 1, 0.0))) for _ in range(2)]
    assert mock.reset_calls == 2
    assert "POST /reset_prefix_cache" in made[0].metrics["target"]["caches"]
    assert mock.bodies[0]["prompt"] == mock.bodies[1]["prompt"]


def test_fault_39_else_no_run_begins_like_another_and_all_stay_equally_long() -> None:
    with endpoint() as (mock, target):
        spec = BenchSpec()
        made = [measure(spec, target, workload_of((8, 1, 0.0), (8, 1, 0.1))) for _ in range(3)]
    salts = [bytes(body["prompt"]).decode().partition("\n")[0] for body in mock.bodies]
    assert salts[0] == salts[1] and salts[2] == salts[3]  # prompts of one run still share what they share
    assert len({salts[0], salts[2], salts[4]}) == 3
    assert {len(salt.split()) for salt in salts} == {4}
    assert "begins with 4 words" in made[0].metrics["target"]["caches"]


def test_fault_39_the_hit_rate_is_the_servers() -> None:
    def told(hits: int, asked: int) -> str:
        return f'vllm:prefix_cache_hits_total{{m="x"}} {hits}\nvllm:prefix_cache_queries_total{{m="x"}} {asked}\n'

    async def script(turn: Turn) -> None:
        turn.server.metrics = told(30, 200)
        await answering(10)(turn)

    with endpoint(script) as (mock, target):
        mock.metrics = told(10, 100)
        assert compute_metrics(target.run(workload_of((8, 1, 0.0))))["prefix"]["hit_rate"] == pytest.approx(0.2)


def test_the_hit_rate_is_that_of_usage_without_metrics_and_none_without_both() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 6}}
    assert metrics_of(answering(10, **details), (8, 1, 0.0))["prefix"]["hit_rate"] == pytest.approx(0.75)
    assert metrics_of(answering(10), (8, 1, 0.0))["prefix"]["hit_rate"] is None


def test_fault_40_one_schedule_is_sent_and_its_counts_are_those_of_a_poisson_process() -> None:
    arrivals = poisson_arrivals_ns(200.0, 400, np.random.default_rng(3))
    with endpoint(answering(0.001)) as (_, target):
        record = target.run(workload_of(*((4, 1, at / 1e9) for at in arrivals)))
    assert [request["arrival_ns"] for request in record["requests"]] == arrivals
    gaps = np.diff(arrivals)
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 0.15
    assert 0.8 < gaps.std() / gaps.mean() < 1.2


def test_fault_41_warm_up_is_not_counted_and_a_cold_run_is_marked() -> None:
    with endpoint() as (mock, target):
        record = target.run(workload_of((4, 3, 0.0)))
    assert record["warm_up"]["runs"] >= 2
    assert len(record["requests"]) == len(mock.bodies) == 1
    with MockServer() as mock:
        spec = BenchSpec.from_dict({"endpoint": mock.url})
        cold = EndpointTarget(spec, EngineConfig.from_settings({}), tokenizer=Bytes())
        record = cold.run(workload_of((4, 3, 0.0)))
    assert any("was cold" in line for line in warnings_of(record, "the run"))


def test_fault_41_warm_up_goes_on_until_two_runs_last_the_same() -> None:
    lengths = iter([0.9, 0.5, 0.3, 0.3, 0.3])  # the first is the question what the server understands

    async def script(turn: Turn) -> None:
        await turn.text(1000 * next(lengths), "a")
        await turn.end(tokens=1)

    clock = ScriptClock()
    with MockServer(script, clock=clock, tokenizer=ByteTokenizer()) as mock:
        spec = BenchSpec.from_dict({"endpoint": mock.url})
        target = EndpointTarget(spec, EngineConfig.from_settings({}), clock=clock, tokenizer=Bytes())
        mock.watch(target)
        warmed = target.warm_up(workload_of((4, 1, 0.0)))
    assert (warmed.runs, warmed.stable) == (3, True)


@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_fault_42_percentiles_of_few_requests_stay_within_their_values(count: int) -> None:
    served = iter(range(count))

    async def script(turn: Turn) -> None:
        await turn.text(100 + 50 * next(served), "a")
        await turn.end(tokens=1)

    found = metrics_of(script, *((4, 1, 2.0 * number) for number in range(count)))["ttft_s"]
    values = [found["p50"], found["p95"], found["p99"]]
    assert values == sorted(values)
    assert values[0] >= 0.1 - 1e-9 and values[-1] <= 0.1 + 0.05 * (count - 1) + 1e-9


def test_what_a_client_cannot_see_is_none_and_not_zero() -> None:
    found = metrics_of(answering(10, 20), (4, 2, 0.0))
    assert set(found["latency_breakdown"].values()) == {None}
    assert found["concurrency"] == {"mean": None, "peak": None}
    assert found["kv_waste"] is None and found["slots"]["idle_share"] is None
    assert found["counters"]["preemptions"] is None and found["memory"]["weights_bytes"] is None
    assert found["energy"]["joules"] is None
    assert found["in_flight"]["peak"] == 1
    json.dumps(found, allow_nan=False)
