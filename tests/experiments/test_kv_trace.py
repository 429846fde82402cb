"""Blocks over time from the journal of a record: who held what, in how few pieces, and how fast."""

from __future__ import annotations

import pytest

from experiments.kv_trace import block_grid, blocks_at, has_blocks, kinds_over_time, pool_of
from experiments.memory_view import live_kv_bytes
from experiments.metrics.kv import KINDS
from tests.experiments.records import MS, contiguous_record, kv_record, kv_step, record, request, step


def block_cells(made, **options):
    return block_grid(made, **options).cells


def shape(cells):
    return [(c.first, c.last, round(c.start_s, 3), round(c.end_s, 3), c.state, c.request) for c in cells]


def test_a_reservation_is_one_rectangle_from_admission_to_release():
    cells = block_cells(contiguous_record(), columns=60)
    assert shape(cells) == [(0, 4, 0.0, 0.06, "running", "r00"), (5, 9, 0.01, 0.03, "running", "r01")]


def test_the_pool_is_read_from_the_record():
    pool = pool_of(contiguous_record())
    assert (pool.num_blocks, pool.block_size, pool.bytes_per_token, pool.end_s) == (12, 4, 100.0, 0.06)


def test_a_finished_request_that_keeps_its_slot_is_held_and_what_it_published_is_cached_afterwards():
    held = request([(10, 1)], id="r00", admit_ns=0, release_ns=20 * MS, steps=[(0, "prefill", 4)])
    other = request([(10, 1), (20, 1)], id="r01", arrival_ms=1, admit_ns=0, steps=[(0, "prefill", 4)])
    later = request([(50, 1)], id="r02", arrival_ms=30, admit_ns=40 * MS, steps=[(2, "prefill", 4)])
    steps = [
        kv_step(0, 0, [("take", "r00", [0]), ("take", "r01", [1])], [("r00", 0, 4, "prefill", True)],
                commit=[("publish", "r00", [0])], used=8),
        kv_step(1, 10, [], [("r01", 4, 1, "decode", True)],
                commit=[("drop", "r00", [0]), ("drop", "r01", [1])], used=5, held=4),
        kv_step(2, 40, [("share", "r02", [0])], [("r02", 4, 1, "prefill", True)], used=4),
    ]  # fmt: skip
    made = kv_record(held, other, later, steps=steps)
    made["steps"][1]["kv_commit_events"] += [["publish", "r01", [1]]]
    assert blocks_at(made, 1)["cached"] == []
    assert blocks_at(made, 2)["cached"] == [1]
    made["steps"][1]["kv_commit_events"].pop()
    cells = block_cells(made, columns=50)
    assert shape(cells) == [
        (0, 0, 0.0, 0.01, "running", "r00"),
        (0, 0, 0.01, 0.02, "held", "r00"),
        (0, 0, 0.02, 0.04, "cached", None),
        (0, 0, 0.04, 0.05, "running", "r02"),
        (1, 1, 0.0, 0.02, "running", "r01"),
    ]


def test_blocks_of_a_request_aborted_between_two_steps_are_free_from_its_release_on():
    gone = request([(10, 1)], id="r00", admit_ns=0, steps=[(0, "prefill", 4)], reason="abort")
    gone["finish_ns"] = gone["release_ns"] = 15 * MS
    other = request([(40, 1)], id="r01", admit_ns=0, steps=[(0, "prefill", 4), (1, "decode", 1)])
    steps = [
        kv_step(0, 0, [("take", "r00", [0]), ("take", "r01", [1])], [("r00", 0, 4, "prefill", True)], used=8),
        kv_step(1, 30, [("drop", "r00", [0])], [("r01", 4, 1, "decode", True)], used=4),
    ]
    cells = block_cells(kv_record(gone, other, steps=steps), columns=40)
    assert shape(cells) == [(0, 0, 0.0, 0.015, "running", "r00"), (1, 1, 0.0, 0.04, "running", "r01")]


def test_a_shared_block_stays_with_its_other_holder():
    one, two = (request([(30, 1)], id=name, admit_ns=0, steps=[(0, "prefill", 4)]) for name in ("r00", "r01"))
    one["finish_ns"] = one["release_ns"] = 10 * MS
    steps = [
        kv_step(0, 0, [("take", "r00", [3]), ("share", "r01", [3])], [("r00", 0, 4, "prefill", True)],
                commit=[("drop", "r00", [3])], used=4),
        kv_step(1, 10, [], [("r01", 4, 1, "decode", True)], commit=[("drop", "r01", [3])], used=4),
        kv_step(2, 20, [("evict", "", [3])], [], used=0),
    ]  # fmt: skip
    two["finish_ns"] = two["release_ns"] = 20 * MS
    cells = block_cells(kv_record(one, two, steps=steps), columns=30)
    assert [(c.state, c.request, round(c.end_s, 3)) for c in cells] == [
        ("running", "r00", 0.01),
        ("running", "r01", 0.02),
    ]


def test_many_blocks_share_rows_and_the_majority_shows():
    made = contiguous_record()
    grid = block_grid(made, columns=6, rows=4)  # 3 of the 10 blocks ever held a row: [0-2], [3-5], [6-8], [9]
    assert {(c.first, c.last, c.request) for c in grid.cells} == {(0, 5, "r00"), (6, 9, "r01")}
    assert (grid.top, grid.group) == (10, 3)


def test_kinds_over_time_are_bytes_that_fill_the_pool():
    series = kinds_over_time(contiguous_record(), points=6)
    assert [row["t_s"] for row in series] == pytest.approx([0.005, 0.015, 0.025, 0.035, 0.045, 0.055])
    assert [row["used"] for row in series] == [400, 900, 1100, 700, 800, 900]
    assert [row["external"] for row in series] == [0, 0, 0, 800, 0, 0]
    assert all(sum(row[kind] for kind in KINDS) == pytest.approx(4800) for row in series)


def test_while_nobody_runs_only_cached_and_free_are_left():
    first = request([(10, 1)], id="r00", admit_ns=0, steps=[(0, "prefill", 4)])
    later = request([(50, 1)], id="r01", arrival_ms=40, admit_ns=40 * MS, steps=[(1, "prefill", 4)])
    steps = [
        kv_step(0, 0, [("take", "r00", [0, 1])], [("r00", 0, 8, "prefill", True)],
                commit=[("publish", "r00", [0]), ("drop", "r00", [1, 0])], used=8),
        kv_step(1, 40, [("take", "r01", [1])], [("r01", 0, 4, "prefill", True)], used=4, cached=4),
    ]  # fmt: skip
    series = kinds_over_time(kv_record(first, later, steps=steps), points=5)
    assert [row["used"] for row in series] == [800, 0, 0, 0, 400]
    assert [row["cached"] for row in series] == [0, 400, 400, 400, 400]


def test_blocks_of_one_step_have_owners_and_fill():
    blocks = blocks_at(contiguous_record(), 2)
    assert blocks["owners"] == [0] * 5 + [1] * 5 + [-1] * 2
    assert blocks["fill"][:10] == [4, 2, 0, 0, 0, 4, 1, 0, 0, 0]
    assert (blocks["total"], blocks["used"], blocks["free"], blocks["step"]) == (12, 10, 2, 2)
    assert blocks["cached"] == []
    assert blocks_at(contiguous_record(), 3)["owners"] == [0] * 5 + [-1] * 7
    with pytest.raises(ValueError, match="step 6 of 6"):
        blocks_at(contiguous_record(), 6)


def test_runs_recorded_before_the_journal_are_told_apart():
    assert has_blocks(contiguous_record())
    assert not has_blocks(record(request([(10, 1)]), steps=[step(0, 0, 1, 2, 3)]))
    assert not has_blocks(record())


def test_a_hundred_thousand_events_are_a_small_picture():
    requests, steps = [], []
    for index in range(10_000):
        name = f"r{index:02d}"
        requests.append(request([(10 * index + 10, 1)], id=name, arrival_ms=10 * index, admit_ns=10 * index * MS))
        taken = [(index * 5 + place) % 12 for place in range(5)]
        events, gone = ([(what, name, [block]) for block in taken] for what in ("take", "drop"))
        rows = [(name, 0, 4, "prefill", True)]
        steps.append(kv_step(index, 10 * index, events, rows, commit=gone, used=20))
    made = kv_record(*requests, steps=steps)
    assert sum(len(s["kv_events"]) + len(s["kv_commit_events"]) for s in steps) == 100_000
    cells, series = block_cells(made), kinds_over_time(made)
    assert len(cells) <= 160 * 12
    assert len(series) == 240


def test_the_live_strip_has_kinds_in_bytes_and_leaves_out_what_is_nothing():
    kv = {"used_tokens": 8, "held_tokens": 0, "internal_tokens": 4, "unused_tokens": 0, "cached_tokens": 0}
    snapshot = {"kv": {**kv, "free_tokens": 36}, "blocks": {"total": 12, "block_size": 4},
                "ledger": {"kv_pool_bytes": 4800}}  # fmt: skip
    assert live_kv_bytes(snapshot) == {"used": 800, "internal": 400, "free": 3600}
    assert live_kv_bytes({"kv": None}) == {}
