"""The parts of a hand-over one by one, in this process: leases, the fenced area, the wire, books, router, resuming."""

from __future__ import annotations

import os
import pickle
import socket
from multiprocessing.connection import Connection

import numpy as np
import pytest

from core_engine.config import EngineConfig
from core_engine.disaggregation.area import KVArea, TornTransfer, area_bytes, make_memory
from core_engine.disaggregation.books import Books
from core_engine.disaggregation.copying import copy_in, copy_out
from core_engine.disaggregation.leases import Leases
from core_engine.disaggregation.router import Phase, Router
from core_engine.disaggregation.sides import TwoSides, threads_of_sides
from core_engine.disaggregation.wire import Wire
from core_engine.engine import Engine
from core_engine.model.loader import LoadedModel
from core_engine.request import Request, RequestLog, SamplingParams
from core_engine.sessions import Session
from ledger.errors import InputError

SIZES = {"max_num_seqs": 4, "kv_memory_mib": 1, "block_size": 8, "dtype": "fp32", "kernels": "torch"}
PROMPT = [(7 * i) % 250 + 1 for i in range(45)]


# -- leases and area -----------------------------------------------------------------------------------------------


def test_a_lease_is_whole_or_not_given_and_never_given_twice() -> None:
    leases = Leases(5)
    first, second = leases.take(3), leases.take(2)
    assert first is not None and second is not None and not set(first.units) & set(second.units)
    assert leases.take(1) is None and first.sequence != second.sequence
    leases.give_back(first)
    assert leases.take(4) is None and leases.num_free == 3
    with pytest.raises(ValueError, match="not out"):
        leases.give_back(first)
    leases.check()


@pytest.fixture
def area() -> KVArea:
    memory = make_memory()
    os.ftruncate(memory, area_bytes(3, 100))
    found = KVArea(memory, 3, 100)
    os.close(memory)  # the mapping keeps it
    return found


def write(area: KVArea, unit: int, sequence: int, value: int) -> None:
    area.begin(unit)
    area.place(unit)[:] = value
    area.end(unit, sequence)


def test_what_was_written_is_read_and_neighbours_stay(area: KVArea) -> None:
    for unit in range(3):
        write(area, unit, unit + 1, 50 + unit)
    assert [int(area.read(unit, unit + 1)[99]) for unit in range(3)] == [50, 51, 52]


def test_a_half_written_block_is_never_read(area: KVArea) -> None:
    write(area, 0, 1, 7)
    area.begin(0)
    area.place(0)[:50] = 9  # and the writer ends here
    with pytest.raises(TornTransfer, match="none"):
        area.read(0, 1)


def test_another_transfers_block_is_never_read(area: KVArea) -> None:
    write(area, 1, 4, 7)
    with pytest.raises(TornTransfer, match="holds transfer 4, not 5"):
        area.read(1, 5)


def test_a_changed_byte_is_seen(area: KVArea) -> None:
    write(area, 2, 1, 7)
    area.place(2)[99] ^= 1
    with pytest.raises(TornTransfer, match="checksum"):
        area.read(2, 1)


# -- wire ----------------------------------------------------------------------------------------------------------


def test_the_wire_never_waits_for_the_other_end_and_loses_nothing() -> None:
    ours, theirs = socket.socketpair()
    wire, other = Wire(Connection(ours.detach())), Connection(theirs.detach())
    large = list(range(400_000))  # more than a socket holds
    wire.send("first")
    wire.send(large)
    assert pickle.loads(other.recv_bytes()) == "first" and wire.receive() == []
    got = b""
    while len(got) < len(pickle.dumps(large, protocol=pickle.HIGHEST_PROTOCOL)) + 4:
        got += os.read(other.fileno(), 1 << 16)
        wire.flush()
    assert pickle.loads(got[4:]) == large
    other.send("answer")
    data = pickle.dumps("half of this never comes")
    os.write(other.fileno(), len(data).to_bytes(4, "big") + data[:5])
    assert wire.receive() == ["answer"] and not wire.ended
    other.close()
    assert wire.receive() == [] and wire.ended
    wire.send("nobody")  # no error: the end is told by `ended`
    wire.close()


# -- books ---------------------------------------------------------------------------------------------------------


def step(events: list, after: list, used: int) -> dict:
    kv = dict.fromkeys(
        ("held_tokens", "internal_tokens", "unused_tokens", "cached_tokens", "largest_free_tokens"), 0
    ) | {"used_tokens": used * 4, "free_tokens": 40 - used * 4}
    state = {"running": 1, "waiting": 0, "slots_held": 0, "kv_used_blocks": used, "kv_used_tokens": used * 4,
             "kv_reserved_tokens": used * 4}  # fmt: skip
    return {**state, "kv": kv, "kv_events": events, "kv_commit_events": after}


def test_two_pools_read_as_one_and_a_lost_one_is_empty() -> None:
    books = Books(10, 4)
    books.enter(0, step([["take", "a", [0, 1]]], [["publish", "a", [0]]], 2))
    found = books.enter(1, step([["take", "b", [0, 3]]], [], 2))
    assert found["kv_events"] == [["take", "b", [10, 13]]] and found["kv_used_blocks"] == 4 and found["running"] == 2
    assert books.owners() == {0: ("a", 0), 1: ("a", 1), 10: ("b", 0), 13: ("b", 1)} and books.total == 20
    books.lose(0)
    found = books.enter(1, step([], [["drop", "b", [3]]], 2))
    assert found["kv_events"] == [["drop", "a", [0, 1]], ["evict", "", [0]]] and found["kv_used_blocks"] == 2
    assert books.owners() == {10: ("b", 0)} and books.held("a") == 0
    books.restate()
    assert books.after([(0, [["take", "c", [5]]])]) == [["take", "b", [10]], ["take", "c", [5]]]


# -- router --------------------------------------------------------------------------------------------------------


def session(name: str, tokens: int, index: int) -> Session:
    request = Request(name, index, [1] * tokens, tokens, SamplingParams(), 0, RequestLog(0, 0))
    return Session(request, None)  # type: ignore[arg-type]


def test_prefill_pauses_while_decode_takes_nothing_and_goes_on_after() -> None:
    router = Router(units=100, block_size=8, most_prefilling=4)
    for index in range(5):
        router.add(session(f"r{index}", 16, index))
    first, second = router.next(0), router.next(0)
    assert first is not None and second is not None
    router.copied(first)
    router.copied(second)
    assert router.next(1_000) is None and router.next(5_000) is None  # as many as may arrive are waiting for decode
    router.resumed(first)
    third = router.next(9_000)
    assert third is not None and third.request.id == "r2" and router.paused_ns["decode_full"] == 8_000
    router.check()


def test_a_request_waits_for_units_and_nobody_passes_it() -> None:
    router = Router(units=5, block_size=8, most_prefilling=4)
    for index, tokens in enumerate((24, 24, 8)):
        router.add(session(f"r{index}", tokens, index))
    first = router.next(0)
    assert first is not None and router.next(10) is None and [t.request.id for t in router.waiting] == ["r1", "r2"]
    router.end(first)
    assert router.next(20) is not None and router.paused_ns["area_full"] == 10
    router.check()


def test_who_begins_again_comes_before_who_came_later_and_units_of_an_aborted_one_wait_for_its_side() -> None:
    router = Router(units=4, block_size=8, most_prefilling=2)
    for index in range(3):
        router.add(session(f"r{index}", 16, index))
    first, second = router.next(0), router.next(0)
    assert first is not None and second is not None and second.lease is not None
    router.again(first)
    assert [ticket.request.id for ticket in router.waiting] == ["r0", "r2"] and router.leases.num_free == 2
    sequence = second.lease.sequence
    router.end(second, held_by=0)
    router.check()
    assert router.leases.num_free == 2
    router.gone(1)
    assert router.leases.num_free == 2
    router.released(sequence)
    assert router.leases.num_free == 4 and router.of(Phase.PREFILLING) == []
    router.check()


# -- from one engine's pool into another's --------------------------------------------------------------------------


def engines(loaded: LoadedModel, **settings: object) -> tuple[Engine, Engine]:
    config = EngineConfig.from_settings({**SIZES, **settings})
    return Engine(config, loaded), Engine(config, loaded)


def copied(prefill: Engine, prompt: list[int]) -> tuple[Request, KVArea, Leases]:
    """A request after its prefill, handed over into an area."""
    name = prefill.add(prompt, SamplingParams(max_tokens=12, ignore_eos=True))
    request = prefill.sessions.of(name)[0].request
    while not request.num_output_tokens:
        prefill.step()
    pool = prefill.pool
    unit = prefill.executor.kv_pool_bytes() // pool.num_blocks
    memory, leases = make_memory(), Leases(8)
    os.ftruncate(memory, area_bytes(8, unit))
    area = KVArea(memory, 8, unit)
    lease = leases.take(pool.blocks_for(request.num_computed))
    assert lease is not None
    copy_out(prefill.executor, request.blocks[: len(lease.units)], area, lease)  # type: ignore[arg-type]
    prefill.hand_over(request)
    assert prefill.pool.num_used == 0
    request.state, request.finish_reason = type(request.state).WAITING, None
    return request, area, leases


def finish(decode: Engine, request: Request) -> list[int]:
    while request.finish_reason is None:
        decode.step()
    return request.output_token_ids


@pytest.mark.parametrize(
    "layout", [{}, {"kv_layout": "contiguous", "prefix_cache": "off"}], ids=["paged", "contiguous"]
)
def test_a_request_goes_on_from_copied_kv_with_the_same_ids(tiny_loaded: LoadedModel, layout: dict) -> None:
    prefill, decode = engines(tiny_loaded, **layout)
    expected = engines(tiny_loaded)[0].generate([PROMPT], SamplingParams(max_tokens=12, ignore_eos=True))
    request, area, leases = copied(prefill, PROMPT)
    (lease,) = leases.held
    assert decode.resume(request, len(PROMPT), lambda at, to: _fill(decode, area, lease, at, to))
    assert finish(decode, request) == expected[0].token_ids
    assert all(count == 1 for _, kind, count in request.log.steps if kind == "decode")
    assert decode.pool.num_used == 0


def _fill(engine: Engine, area: KVArea, lease: object, at: int, to: tuple[int, ...]) -> None:
    copy_in(engine.executor, to, area, lease, at)  # type: ignore[arg-type]


def test_blocks_that_decode_knows_are_shared_and_not_copied(tiny_loaded: LoadedModel) -> None:
    prefill, decode = engines(tiny_loaded)
    decode.generate([PROMPT], SamplingParams(max_tokens=1, ignore_eos=True))
    request, area, leases = copied(prefill, PROMPT)
    filled: list[tuple[int, int]] = []
    assert decode.resume(
        request, len(PROMPT), lambda at, to: filled.append((at, len(to))) or _fill(decode, area, leases.held[0], at, to)
    )
    assert filled == [(len(PROMPT) // 8, 1)]
    expected = engines(tiny_loaded)[0].generate([PROMPT], SamplingParams(max_tokens=12, ignore_eos=True))
    assert finish(decode, request) == expected[0].token_ids


def test_what_can_not_be_copied_leaves_nothing_behind(tiny_loaded: LoadedModel) -> None:
    prefill, decode = engines(tiny_loaded)
    request, area, leases = copied(prefill, PROMPT)
    area.place(2)[0] ^= np.uint8(1)
    with pytest.raises(TornTransfer):
        decode.resume(request, len(PROMPT), lambda at, to: _fill(decode, area, leases.held[0], at, to))
    assert decode.pool.num_used == 0 and not decode.has_unfinished() and request.num_computed == 0
    decode.pool.check_each([])


def test_resuming_waits_for_a_slot_and_for_who_waits_already(tiny_loaded: LoadedModel) -> None:
    prefill, decode = engines(tiny_loaded, max_num_seqs=1)
    request, area, leases = copied(prefill, PROMPT)
    decode.add([5, 6, 7], SamplingParams(max_tokens=3, ignore_eos=True))

    def fill(at: int, to: tuple[int, ...]) -> None:
        _fill(decode, area, leases.held[0], at, to)

    assert not decode.resume(request, len(PROMPT), fill)  # it waits in the queue
    decode.step()
    assert not decode.resume(request, len(PROMPT), fill)  # it has the only slot
    while decode.has_unfinished():
        decode.step()
    assert decode.resume(request, len(PROMPT), fill)


# -- settings ------------------------------------------------------------------------------------------------------


def test_combinations_without_a_meaning_are_refused_in_one_line() -> None:
    with pytest.raises(InputError) as caught:
        EngineConfig.from_settings(
            {"disaggregation": "on", "batching": "static", "tensor_parallel": 2, "pipeline_parallel": 3,
             "kv_dtype": "int4", "speculation": "ngram", "device": "cuda"}
        )  # fmt: skip
    text = str(caught.value)
    named = ("batching", "tensor_parallel", "pipeline_parallel", "kv_dtype", "speculation", "device")
    assert "\n" not in text and all(name in text for name in named)


def test_the_sides_share_what_one_process_would_have(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "core_engine.disaggregation.sides"
    monkeypatch.setattr(f"{module}.physical_cores", lambda _: (0, 1, 2, 3))
    monkeypatch.setattr(f"{module}.cpu_quota", lambda: None)
    assert threads_of_sides(2) == ((1, 1), [(0,), (1,)])
    assert threads_of_sides(3) == ((2, 1), [(0, 1), (2,)])
    assert threads_of_sides(1) == ((1, 1), [(0,), (0,)])  # not a core more than one process
    assert threads_of_sides(8) == ((4, 4), [(), ()])
    monkeypatch.setattr(f"{module}.cpu_quota", lambda: 1.5)
    assert threads_of_sides(2) == ((1, 1), [(), ()])


def test_a_model_that_is_let_go_gives_its_shared_memory_back() -> None:
    memory, progress = make_memory(), make_memory()
    os.ftruncate(memory, 1 << 20)
    model = TwoSides(None, None, (), memory, progress)  # type: ignore[arg-type]
    model.close()
    assert os.fstat(memory).st_size == 0
    del model
    for descriptor in (memory, progress):
        with pytest.raises(OSError):
            os.fstat(descriptor)
