"""KV by kind, held slots and admitted concurrency on hand-made records whose values can be read off."""

from __future__ import annotations

import pytest

from experiments.metrics import compute_metrics
from experiments.metrics.kv import KINDS, kinds_by_step, kv_waste
from experiments.metrics.slots import concurrency, prefix, slots
from tests.experiments.records import MS, contiguous_record, kv_record, kv_step, record, request, step


def test_reserved_room_is_split_by_whether_tokens_came():
    kinds = kinds_by_step(contiguous_record())
    # Step 2: r00 has 2 blocks begun of 9 tokens it will hold: 1 token more to come; r01 holds all it ever will.
    assert (kinds[2]["reserved_ahead"], kinds[2]["reserved_unused"]) == (1, 23)
    # Step 0: r00 has 4 of its 9 tokens: 5 to come, 11 of the 16 reserved never.
    assert (kinds[0]["reserved_ahead"], kinds[0]["reserved_unused"]) == (5, 11)
    assert (kinds[5]["reserved_ahead"], kinds[5]["reserved_unused"]) == (0, 8)
    assert all(sum(row[kind] for kind in KINDS) == 48 for row in kinds)


def test_free_memory_outside_of_the_longest_run_is_external():
    kinds = kinds_by_step(contiguous_record())
    assert [row["external"] for row in kinds] == [0, 0, 0, 8, 0, 0]


def test_kv_waste_is_a_mean_over_execution_time_in_bytes_and_share():
    made = contiguous_record()
    waste = kv_waste(made)
    assert waste["bytes_per_token"] == 100
    assert waste["used"]["tokens"] == pytest.approx((4 + 9 + 11 + 7 + 8 + 9) / 6)
    assert waste["internal"]["bytes"] == pytest.approx(100 * (3 + 5 + 1 + 3) / 6)
    assert waste["external"]["share"] == pytest.approx(8 / 6 / 48)
    assert sum(waste[kind]["share"] for kind in KINDS) == pytest.approx(1.0)
    parts = sum(waste[kind]["bytes"] for kind in ("internal", "reserved_unused", "external"))
    assert waste["wasted"]["bytes"] == pytest.approx(parts)
    # A step that takes twice as long counts twice.
    made["steps"][-1]["execute_end_ns"] += 10 * MS
    assert kv_waste(made)["used"]["tokens"] == pytest.approx((4 + 9 + 11 + 7 + 8 + 2 * 9) / 7)


def test_a_run_recorded_before_kv_by_kind_has_none():
    metrics = compute_metrics(record(request([(10, 1)]), steps=[step(0, 0, 1, 2, 3)]))
    assert metrics["kv_waste"] is None
    assert metrics["prefix"] == {"hit_rate": None, "hit_tokens": None, "prefill_tokens": 0}


def _static_record():
    """A batch of three under static batching: they end after steps 1, 3 and 5; all are released at 60 ms."""
    ends = {"r00": 1, "r01": 3, "r02": 5}
    members = [
        request([(10 * (i + 1), 1) for i in range(last + 1)], id=name, admit_ns=0, release_ns=60 * MS,
                steps=[(i, "prefill" if i == 0 else "decode", 1) for i in range(last + 1)])
        for name, last in ends.items()
    ]  # fmt: skip
    rows = [[(name, i, 1, "decode", True) for name, last in ends.items() if i <= last] for i in range(6)]
    return kv_record(*members, steps=[kv_step(i, 10 * i, [], rows[i], used=4) for i in range(6)])


def test_slots_of_finished_requests_are_counted_until_their_batch_ends():
    found = slots(_static_record())
    assert found["busy_slot_steps"] == 2 + 4 + 6
    assert found["idle_slot_steps"] == 4 + 2  # r00 in steps 2 to 5, r01 in 4 and 5
    assert found["idle_share"] == pytest.approx(6 / 18)


def test_a_request_released_when_it_ends_holds_no_slot():
    assert slots(contiguous_record()) == {"idle_slot_steps": 0, "busy_slot_steps": 8, "idle_share": 0.0}
    assert slots(record()) == {"idle_slot_steps": None, "busy_slot_steps": None, "idle_share": None}


def test_concurrency_counts_admitted_requests_weighted_by_time():
    made = contiguous_record()
    assert concurrency(made) == {"mean": pytest.approx((1 + 2 + 2 + 1 + 1 + 1) / 6), "peak": 2}
    made["steps"][1]["execute_end_ns"] += 60 * MS
    assert concurrency(made)["mean"] == pytest.approx((1 + 2 * 7 + 2 + 1 + 1 + 1) / 12)
    assert concurrency(record()) == {"mean": None, "peak": None}


def test_a_preempted_request_is_not_running():
    gone = request([(10, 1), (60, 1)], admit_ns=0, preemptions_ms=[(10, 50)], steps=[(0, "prefill", 4)])
    steps = [kv_step(i, 10 * i, [], [("r00", 0, 4, "prefill", True)], used=4) for i in range(6)]
    assert concurrency(kv_record(gone, steps=steps)) == {"mean": pytest.approx(2 / 6), "peak": 1}
    never_back = request([(10, 1)], admit_ns=0, preemptions_ms=[(10, None)], finish_ns=40 * MS)
    assert concurrency(kv_record(never_back, steps=steps))["mean"] == pytest.approx(1 / 6)


def test_prefix_hits_are_summed_beside_the_prompt_tokens_still_computed():
    made = contiguous_record()
    for place, served in enumerate(made["requests"]):
        served["prefix_hit_tokens"] = 4 * place
    made["counters"]["prefix_hit_rate"] = 0.5
    assert prefix(made) == {"hit_rate": 0.5, "hit_tokens": 4, "prefill_tokens": 8}
