"""The Chrome trace of a record against the Trace Event Format's required fields, and its content."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from experiments.trace_export import chrome_trace
from tests.experiments.records import MS, contiguous_record, record, request, step


@pytest.fixture
def made():
    found = contiguous_record()
    found["host_ns"] = [[int(10.2 * MS), int(10.7 * MS)]]
    found["sender_ns"]["report"] = [[21 * MS, 22 * MS]]
    found["requests"][1]["preemptions"] = [[25 * MS, 27 * MS]]
    return found


def of(trace, phase, **fields):
    return [e for e in trace["traceEvents"] if e["ph"] == phase and all(e[k] == v for k, v in fields.items())]


def test_every_event_has_the_fields_the_format_requires(made):
    trace = chrome_trace(made)
    assert json.loads(json.dumps(trace, allow_nan=False)) == trace
    assert trace["displayTimeUnit"] in ("ms", "ns")
    for event in trace["traceEvents"]:
        assert event["ph"] in ("X", "C", "M", "i")
        assert isinstance(event["name"], str) and event["name"]
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert isinstance(event["ts"], int | float)
        if event["ph"] == "X":
            assert event["dur"] >= 0
        if event["ph"] == "C":
            assert event["args"] and all(isinstance(value, int | float) for value in event["args"].values())
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "process_sort_index", "thread_name", "thread_sort_index")
            assert set(event["args"]) <= {"name", "sort_index"}
        if event["ph"] == "i":
            assert event["s"] in ("t", "p", "g")


def test_times_are_microseconds(made):
    execute = of(chrome_trace(made), "X", name="execute")[2]
    assert (execute["ts"], execute["dur"]) == (20_000.0, 10_000.0)
    assert execute["args"]["index"] == 2


def test_each_request_has_a_track_with_its_phases_in_order_of_arrival(made):
    trace = chrome_trace(made)
    names = {e["tid"]: e["args"]["name"] for e in of(trace, "M", name="thread_name", pid=2)}
    assert names == {1: "r00", 2: "r01"}
    slices = [(e["name"], e["ts"], e["dur"]) for e in of(trace, "X", pid=2, tid=2)]
    assert ("queue", 5000.0, 5000.0) in slices and ("prefill", 10_000.0, 10_000.0) in slices
    assert of(trace, "i", name="preempted")[0]["ts"] == 25_000.0


def test_slices_of_one_track_never_overlap(made):
    trace = chrome_trace(made)
    for pid, tid in {(e["pid"], e["tid"]) for e in of(trace, "X")}:
        track = sorted(of(trace, "X", pid=pid, tid=tid), key=lambda e: e["ts"])
        for before, after in pairwise(track):
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-3


def test_host_work_between_steps_has_a_track_of_its_own(made):
    assert {(e["name"], e["ts"], e["dur"]) for e in of(chrome_trace(made), "X", pid=1, tid=2)} == {
        ("add", 10_200.0, 500.0),
        ("report", 21_000.0, 1_000.0),
    }


def test_counters_hold_requests_and_kv_by_kind(made):
    trace = chrome_trace(made)
    assert set(of(trace, "C", name="requests")[0]["args"]) == {"running", "waiting", "held"}
    kv = of(trace, "C", name="KV tokens")[2]
    assert kv["args"]["used"] == 11 and sum(kv["args"].values()) == 48


def test_a_record_without_kv_by_kind_still_has_its_steps_and_requests():
    old = record(request([(9, 1)], steps=[(0, "prefill", 4)]), steps=[step(0, 0, 1, 9, 10)])
    trace = chrome_trace(old)
    assert len(of(trace, "X", pid=1)) == 3 and of(trace, "X", pid=2)
    assert not of(trace, "C", name="KV tokens")
