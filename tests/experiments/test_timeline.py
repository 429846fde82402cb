"""Segments of the request timeline."""

from __future__ import annotations

from experiments.store import Store
from experiments.timeline import arm_timelines, last_token_s, request_segments
from tests.experiments.records import MS, record, request, step

STEPS = [step(i, 10 * i, 10 * i + 1, 10 * i + 9, 10 * i + 10) for i in range(8)]


def _kinds(served):
    segments = request_segments(record(served, steps=STEPS))
    return [(s["kind"], round(s["start_s"] * 1000, 3), round(s["end_s"] * 1000, 3)) for s in segments]


def test_neighbouring_steps_of_one_kind_are_one_segment():
    served = request(
        [(29, 1), (39, 1), (49, 1)],
        arrival_ms=4,
        steps=[(1, "prefill", 4), (2, "prefill", 2), (3, "decode", 1), (4, "decode", 1)],
    )
    assert _kinds(served) == [("queue", 4, 10), ("prefill", 10, 30), ("decode", 30, 49)]


def test_a_step_without_the_request_leaves_a_gap():
    served = request([(9, 1), (19, 1), (39, 1)], steps=[(0, "prefill", 4), (1, "decode", 1), (3, "decode", 1)])
    assert _kinds(served) == [("prefill", 0, 10), ("decode", 10, 20), ("decode", 30, 39)]


def test_a_preemption_is_a_queue_segment():
    served = request([(9, 1), (59, 1)], steps=[(0, "prefill", 4), (5, "prefill", 5)], preemptions_ms=[(20, 50)])
    assert _kinds(served) == [("prefill", 0, 10), ("queue", 20, 50), ("prefill", 50, 59)]


def test_a_slot_kept_after_the_end_is_held():
    served = request([(9, 1)], steps=[(0, "prefill", 4)], release_ns=40 * MS)
    assert _kinds(served) == [("prefill", 0, 9), ("held", 9, 40)]


def test_a_request_that_never_ran_only_queues():
    assert _kinds(request([], arrival_ms=5, reason="abort", finish_ns=25 * MS, release_ns=25 * MS)) == [
        ("queue", 5, 25)
    ]
    assert _kinds(request([], arrival_ms=5, reason=None, finish_ns=None, release_ns=None)) == []


def test_rows_are_numbered_by_arrival():
    late, early = (
        request([(29, 1)], id="late", arrival_ms=8, steps=[(2, "prefill", 4)]),
        request([(19, 1)], id="early", arrival_ms=2, steps=[(1, "prefill", 4)]),
    )
    rows = {s["request"]: s["row"] for s in request_segments(record(late, early, steps=STEPS))}
    assert rows == {"early": 0, "late": 1}
    assert last_token_s(record(late, early)) == 0.029
    assert last_token_s(record()) is None


def test_step_numbers_may_have_holes():
    served = request([(9, 1), (39, 1)], steps=[(10, "decode", 1), (14, "decode", 1)])
    steps = [step(10, 0, 1, 9, 10), step(14, 30, 31, 39, 40)]
    segments = request_segments(record(served, steps=steps))
    assert [s["kind"] for s in segments] == ["decode"]


def test_the_first_repeat_of_every_arm_is_drawn_and_no_other_is_read(tmp_path):
    store = Store(tmp_path / "runs.sqlite3")
    run_id = store.create_run("compare", {})
    for arm, repeat in ((0, 1), (1, 1), (0, 2), (1, 2)):
        served = request([(9 + repeat, 1)], steps=[(0, "prefill", 4)])
        store.add_record(run_id, arm, repeat, record(served, steps=STEPS))
    for path in (tmp_path / "events" / run_id).glob("*-2.*"):
        path.unlink()
    found = arm_timelines(run_id, store)
    assert [(one.arm, one.repeat, one.last_token_s) for one in found] == [(0, 1, 0.01), (1, 1, 0.01)]
    assert found[0].segments == request_segments(store.record(run_id, 0, 1))
