"""Two processes give one engine's token ids, and look like one engine: requests, records, metrics, backpressure."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from core_engine.disaggregation.engine import DisaggregatedEngine
from core_engine.disaggregation.router import Phase
from core_engine.disaggregation.side import DECODE, PREFILL
from core_engine.disaggregation.sides import side_settings
from core_engine.executor.torch_executor import TorchExecutor
from core_engine.request import SamplingParams
from experiments import loadgen
from experiments.metrics import compute_metrics, waterfalls
from experiments.workloads.workload import Workload, WorkloadRequest
from ledger.errors import CannotRunError, InputError
from tests.core_engine.disaggregation.conftest import Pair
from tests.core_engine.oracle import ragged_prompts

LENGTHS = (1, 2, 7, 16, 17, 40)
GREEDY = SamplingParams(max_tokens=9, ignore_eos=True)


def clean(engine: DisaggregatedEngine) -> None:
    """Nothing is held anywhere once all requests have ended."""
    engine.check()
    assert not engine.has_unfinished() and engine.router.leases.num_free == engine.num_blocks
    assert [told.used_blocks for told in engine.memory_now().values()] == [0, 0]


def until(engine: DisaggregatedEngine, done: Any) -> list[Any]:
    """Steps until it is so, at most a minute's worth."""
    found = []
    for _ in range(30_000):
        if done():
            return found
        found += engine.step()
    raise AssertionError("it never came so far")


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that does nothing for a while."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_num_batched_tokens": 13},
        {"chunked_prefill": "off", "max_num_seqs": 2},
        {"prefix_cache": "off", "kv_layout": "contiguous", "block_size": 1},
    ],
    ids=["plain", "chunks", "whole-prompts", "contiguous"],
)
def test_ids_texts_and_reasons_are_one_engines(pair: Pair, settings: dict[str, Any]) -> None:
    prompts = ragged_prompts(LENGTHS)
    expected = pair.one(**settings).generate(prompts, GREEDY)
    engine = pair.two(**settings)
    found = engine.generate(prompts, GREEDY)
    assert [a.token_ids for a in found] == [a.token_ids for a in expected]
    assert [(a.text, a.finish_reason) for a in found] == [(a.text, a.finish_reason) for a in expected]
    record = engine.record()
    assert sorted(t["id"] for t in record["transfers"]) == [f"r{n:02d}" for n in range(len(prompts))]
    sides = {step["side"]: 0 for step in record["steps"]}
    assert set(sides) == {"prefill", "decode"}
    prefilled = [s for s in record["steps"] if s["prefill_tokens"] and s["side"] == "decode"]
    assert not prefilled  # decode computed no prompt
    clean(engine)


def test_seeds_samples_stops_and_log_probabilities_are_one_engines(pair: Pair) -> None:
    prompts = ragged_prompts((3, 9))
    sampled = SamplingParams(
        max_tokens=12,
        temperature=0.9,
        top_p=0.9,
        n=2,
        ignore_eos=True,
        logprobs=2,
        repetition_penalty=1.2,
        min_tokens=3,
    )
    one, two = pair.one(seed=5), pair.two(seed=5)
    expected, found = one.generate(prompts, sampled), two.generate(prompts, sampled)
    assert [a.token_ids for a in found] == [a.token_ids for a in expected]
    assert [len(a.logprobs) for a in found] == [12] * 4
    assert found[0].logprobs[5].chosen == pytest.approx(expected[0].logprobs[5].chosen, abs=1e-4)
    text = one.generate(prompts[:1], SamplingParams(max_tokens=20, ignore_eos=True))[0].text
    for stop in (text[:1], text[6:8]):  # ended by the first token, which prefill samples, and later
        params = SamplingParams(max_tokens=20, ignore_eos=True, stop=(stop,))
        (a,), (b,) = one.generate(prompts[:1], params), two.generate(prompts[:1], params)
        assert (a.text, a.token_ids, a.finish_reason) == (b.text, b.token_ids, b.finish_reason)
    only = two.generate(prompts[:1], SamplingParams(max_tokens=1, ignore_eos=True))[0]
    assert only.finish_reason == "length" and len(only.token_ids) == 1  # never handed over
    assert two.score(prompts[1], 1) == pytest.approx(one.score(prompts[1], 1), abs=1e-4)
    streamed = "".join(output.text for output in two.stream(prompts[0], GREEDY))
    assert streamed == one.generate(prompts[:1], GREEDY)[0].text
    clean(two)


def test_preemption_on_decode_and_shared_prefixes_change_nothing(pair: Pair) -> None:
    settings = {"max_num_seqs": 8, "block_size": 16, "kv_watermark": 0}
    shared = list(range(1, 41))
    prompts = [[*shared, n] for n in range(8)]
    params = SamplingParams(max_tokens=400, ignore_eos=True)
    expected = pair.one(**settings).generate(prompts, params)
    engine = pair.two(**settings)
    assert [a.token_ids for a in engine.generate(prompts, params)] == [a.token_ids for a in expected]
    record = engine.record()
    assert record["counters"]["preemptions"] > 0 and record["counters"]["prefix_hit_rate"] > 0
    assert any(transfer["found_blocks"] for transfer in record["transfers"])  # decode had the shared part already
    assert engine.reset_prefix_cache() > 0
    clean(engine)


def workload(prompt: int, output: int, count: int) -> Workload:
    rows = tuple(
        WorkloadRequest(tuple((n + i) % 250 + 1 for i in range(prompt)), output, output, 0) for n in range(count)
    )
    return Workload("made", 0, rows, None, "all at once")


def test_a_record_is_an_engines_and_its_latencies_add_up(pair: Pair) -> None:
    engine = pair.two()
    record = loadgen.run(engine, workload(40, 12, 6))
    metrics = compute_metrics(record)
    assert metrics["completed"] == 6 and metrics["failed"] == 0
    for _, parts in waterfalls(record):
        assert sum(value for name, value in parts.items() if name != "e2e_s") == pytest.approx(parts["e2e_s"])
        assert parts["transfer_s"] > 0 and parts["prefill_s"] > 0 and parts["decode_s"] > 0
    found = metrics["disaggregation"]
    assert found["transfers"] == 6 and found["bytes_moved"] == 6 * 5 * engine.block_bytes
    assert found["transfer_s"]["n"] == 6 and found["transfer_s"]["p50"] <= found["transfer_s"]["p99"]
    assert 0 < found["prefill"]["utilisation"] < 1 and 0 < found["decode"]["utilisation"] < 1
    for transfer in record["transfers"]:
        moments = [transfer[f"{name}_ns"] for name in ("ready", "copy_start", "copy_end", "import_start", "import_end")]
        assert moments == sorted(moments)
    kinds = record["steps"][-1]["kv"]
    total = sum(value for name, value in kinds.items() if name != "largest_free_tokens")
    assert total == record["derived"]["num_kv_blocks"] * 8 == 2 * engine.num_blocks * 8
    assert metrics["kv_waste"]["pool_bytes"] == record["memory"]["kv_pool_bytes"]
    sides = record["environment"]["disaggregation"]
    assert record["environment"]["threads"] == 2 == sides["prefill"]["threads"] + sides["decode"]["threads"]


def test_what_needs_the_model_in_this_process_is_refused_in_a_line(pair: Pair) -> None:
    engine = pair.two()
    with pytest.raises(CannotRunError, match="use off to evaluate"):
        engine.add_score([1, 2, 3], 1, lambda start, distributions: None)
    with pytest.raises(InputError, match="disaggregation: 'on' is not accepted; accepted: off for this"):
        TorchExecutor(pair.loaded.decoder, block_size=8, kv_memory_bytes=1 << 20)
    clean(engine)


def test_the_queue_the_rate_and_what_never_fits_are_refused_at_the_door(pair: Pair) -> None:
    engine = pair.two(max_queue=2, rate_limit_rps=1)
    with pytest.raises(InputError, match="rate_limit_rps"):
        engine.add([1, 2], GREEDY)
        engine.add([1, 2], GREEDY)
    until(engine, lambda: not engine.has_unfinished())
    engine = pair.two(max_queue=2)
    with pytest.raises(InputError, match="max_queue"):
        for _ in range(3):
            engine.add([1, 2], GREEDY)
    with pytest.raises(InputError, match="positions"):
        engine.add([1] * 600, GREEDY)
    until(engine, lambda: not engine.has_unfinished())
    clean(engine)


def test_aborting_in_every_phase_leaves_nothing_behind(pair: Pair) -> None:
    engine = pair.two(max_num_seqs=2, max_num_batched_tokens=4)
    long = SamplingParams(max_tokens=300, ignore_eos=True)
    for phase in Phase:
        names = [engine.add([n] * 40, long) for n in (1, 2, 3, 4)]
        until(engine, lambda phase=phase: engine.router.of(phase))
        engine.abort(engine.router.of(phase)[0].request.id)
        engine.check()
        for name in names:
            engine.abort(name)
        assert not engine.has_unfinished()
        engine.memory_now()  # the sides have read what came before
        engine.step()
        clean(engine)
        engine.clear_history()


def test_prefill_pauses_when_decode_is_full(pair: Pair) -> None:
    engine = pair.two(max_num_seqs=2)
    for n in range(8):
        engine.add([n + 1] * 20, SamplingParams(max_tokens=120, ignore_eos=True))
    most = 0
    for _ in range(30_000):
        if not engine.has_unfinished():
            break
        engine.step()
        engine.check()
        most = max(most, len(engine.router.of(Phase.TRANSFERRING)))
    assert most <= engine.router.most_arriving + engine.router.most_prefilling - 1
    assert engine.record()["disaggregation"]["paused_ns"]["decode_full"] > 0
    clean(engine)


def test_a_snapshot_counts_both_pools(pair: Pair) -> None:
    engine = pair.two()
    engine.add([1] * 40, SamplingParams(max_tokens=200, ignore_eos=True))
    until(engine, lambda: engine.router.of(Phase.DECODING) and engine.books.used)
    found = engine.snapshot()
    assert found["running"] == 1 and found["blocks"]["total"] == 2 * engine.num_blocks
    assert found["requests"][0]["phase"] == "decoding" and found["disaggregation"]["units_free"] == engine.num_blocks
    assert sum(owner == 0 for owner in found["blocks"]["owners"]) == found["blocks"]["used"]
    until(engine, lambda: not engine.has_unfinished())


def test_the_shared_memory_has_no_name(pair: Pair) -> None:
    model = pair.loaded.decoder
    path = os.readlink(f"/proc/self/fd/{model.memory}") if Path("/proc/self/fd").exists() else "deleted"  # type: ignore[union-attr]
    assert "deleted" in path
    assert not list(Path("/dev/shm").glob("*trilemma*"))


# -- what happens around an engine -----------------------------------------------------------------------------------


def test_a_side_that_was_idle_for_longer_than_its_patience_is_not_lost(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = pair.two()
    engine.generate([[1, 2, 3]], GREEDY)
    for side in pair.sides:
        monkeypatch.setattr(side, "standing_still_s", 0.5)
    time.sleep(0.7)
    # It has not read yet what it was just told when it is looked at.
    with stopped(pair.sides[PREFILL].pid):
        engine.add([1, 2, 3], GREEDY)
        engine.step()
    time.sleep(0.7)
    with stopped(pair.sides[DECODE].pid):
        assert pair.sides[DECODE].lost(busy=True) is None
    for side in pair.sides:
        monkeypatch.setattr(side, "standing_still_s", 120.0)
    until(engine, lambda: not engine.has_unfinished())
    assert not engine.losses and [side.restarts for side in pair.sides] == [0, 0]
    clean(engine)


def test_a_side_that_owes_units_is_watched(pair: Pair) -> None:
    engine = pair.two()
    name = engine.add([1] * 20, GREEDY)
    with stopped(pair.sides[PREFILL].pid):
        engine.step()
        engine.abort(name)
        assert not engine.has_unfinished() and engine._busy(PREFILL) and not engine._busy(DECODE)
    until(engine, lambda: engine.step() == [] and not engine._busy(PREFILL))
    clean(engine)


def test_an_engine_that_another_took_the_place_of_does_not_touch_its_requests(pair: Pair) -> None:
    first = pair.two()
    name = first.add([1] * 20, SamplingParams(max_tokens=200, ignore_eos=True))
    until(first, lambda: first.router.of(Phase.DECODING))
    second = pair.two()
    assert second.add([2] * 20, SamplingParams(max_tokens=60, ignore_eos=True)) == name
    until(second, lambda: second.router.of(Phase.DECODING))
    first.abort(name)
    assert first.memory_now() == {} and not first.has_unfinished()
    until(second, lambda: not second.has_unfinished())
    assert second.completion(name).finish_reason == "length"
    clean(second)


def test_after_an_engine_that_could_not_be_made_a_smaller_one_can(pair: Pair) -> None:
    from core_engine.disaggregation.messages import Open

    engine = pair.two()
    wrong = {**side_settings(engine.config, 0), "model": "embedded", "kv_memory_mib": 0}
    with pytest.raises((InputError, CannotRunError, RuntimeError)):
        pair.loaded.decoder.open(Open(1, wrong, 4, engine.block_bytes, 0), None)  # type: ignore[union-attr]
    restarts = sum(side.restarts for side in pair.sides)
    engine = pair.two()
    assert len(engine.generate([[1, 2, 3]], GREEDY)[0].token_ids) == 9
    assert sum(side.restarts for side in pair.sides) > restarts  # who failed has another process
    clean(engine)


def test_sizes_are_both_sides_while_one_is_being_started(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = pair.two()
    before = engine.record()
    monkeypatch.setattr(pair.sides[DECODE], "opened", None)
    found = engine.record()
    assert found["derived"] == before["derived"] and found["memory"]["process_rss_bytes"] is None
