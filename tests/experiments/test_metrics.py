"""Metric definitions on hand-made records, with the numbers that products of this kind got wrong."""

from __future__ import annotations

import random

import pytest

from experiments.metrics import PARTS, compute_metrics, parse_slo, waterfall
from experiments.metrics.host import host_work
from experiments.metrics.latency import itl_gaps, tpot_s, ttft_s
from ledger.errors import InputError
from tests.experiments.records import MS, record, request, step


def test_tpot_leaves_the_first_token_out():
    """TTFT 1.0 s, 11 tokens, 10 ms gaps: TPOT is 10.0 ms."""
    metrics = compute_metrics(record(request([(1000 + 10 * i, 1) for i in range(11)])))
    assert metrics["ttft_s"]["mean"] == pytest.approx(1.0)
    assert metrics["tpot_s"]["mean"] == pytest.approx(0.010)
    assert metrics["e2e_s"]["mean"] == pytest.approx(1.1)


def test_one_long_gap_shows_in_the_itl_p99():
    """Nine 10 ms gaps and one of 1 s: ITL p99 shows about 1 s, the mean gap alone would say 0.1 s."""
    times = [100 + 10 * i for i in range(10)] + [1190]
    metrics = compute_metrics(record(request([(at, 1) for at in times])))
    assert metrics["itl_s"]["n"] == 10
    assert metrics["itl_s"]["p99"] == pytest.approx(1.0, rel=0.1)
    assert metrics["itl_s"]["p50"] == pytest.approx(0.010)


def test_gaps_are_pooled_over_requests_and_keep_their_token_count():
    slow, fast = request([(0, 1), (100, 1)]), request([(0, 1), (10, 3), (20, 2), (30, 1)])
    assert itl_gaps(fast) == [(0.01, 3), (0.01, 2), (0.01, 1)]
    assert compute_metrics(record(slow, fast))["itl_s"]["mean"] == pytest.approx(0.13 / 4)


def test_an_empty_chunk_is_not_the_first_token():
    """Empty chunk at 0.1 s, text at 0.5 s: TTFT 0.5 s."""
    assert ttft_s(request([(100, 0), (500, 1), (510, 1)])) == pytest.approx(0.5)
    assert ttft_s(request([(100, 0)])) is None


def test_a_first_chunk_of_five_tokens_leaves_the_divisor():
    assert tpot_s(request([(100, 5), (150, 5)])) == pytest.approx(0.010)
    assert tpot_s(request([(100, 5)])) is None
    assert tpot_s(request([(100, 1)])) is None


def test_the_peak_rate_is_never_under_the_mean():
    rng = random.Random(0)
    for _ in range(200):
        at, emitted = 0.0, []
        for _ in range(rng.randrange(2, 40)):
            at += rng.choice([1, 50, 400, 1500]) * rng.random() + 0.1
            emitted.append((at, rng.randrange(1, 6)))
        metrics = compute_metrics(record(request(emitted)))
        assert metrics["peak_output_tokens_per_s"] >= metrics["output_tokens_per_s"] * (1 - 1e-12)


def test_tokens_are_counted_and_not_chunks():
    metrics = compute_metrics(record(request([(500, 4), (1000, 4)])))
    assert metrics["output_tokens_per_s"] == pytest.approx(8.0)
    assert metrics["peak_output_tokens_per_s"] == pytest.approx(8.0)


def _queue_of(count):
    """A server that takes 0.5 s a request, one at a time, with 4 arrivals/s."""
    return record(
        *(
            request([(500 * (i + 1), 1)], id=f"r{i}", arrival_ms=250 * i, send_ms=max(250 * i, 500 * i))
            for i in range(count)
        )
    )


def test_latency_counts_from_the_schedule_so_an_overloaded_server_gets_worse_with_n():
    p99 = [compute_metrics(_queue_of(n))["ttft_s"]["p99"] for n in (10, 20, 40)]
    assert p99[0] < p99[1] < p99[2]
    assert p99[2] == pytest.approx(0.5 + 0.25 * 39, rel=0.02)


def test_a_sender_that_falls_behind_is_reported():
    load = compute_metrics(_queue_of(20))["offered_load"]
    assert load["offered_rps"] == pytest.approx(4.0)
    assert load["achieved_rps"] == pytest.approx(2.0)
    assert load["lateness_s"]["p95"] > 4
    assert "2 of the 4" in load["warning"]
    kept = compute_metrics(record(*(request([(100 * i + 50, 1)], arrival_ms=100 * i) for i in range(5))))
    assert kept["offered_load"]["warning"] is None
    burst = compute_metrics(record(request([(10, 1)]), request([(20, 1)])))["offered_load"]
    assert (burst["offered_rps"], burst["achieved_rps"], burst["warning"]) == (None, None, None)


def test_failed_requests_are_no_throughput():
    failed = [request([(100, 1), (900, 50)], id=f"r{i}", reason="error", error="boom") for i in range(4)]
    metrics = compute_metrics(record(*failed), slo="ttft_p95=10")
    assert metrics["output_tokens_per_s"] == 0
    assert metrics["requests_per_s"] == 0
    assert metrics["goodput_rps"] == 0
    assert metrics["slo_attainment"] == 0
    assert (metrics["completed"], metrics["failed"], metrics["error_rate"]) == (0, 4, 1.0)
    assert metrics["ttft_s"] == {"mean": None, "p50": None, "p95": None, "p99": None, "n": 0}
    assert metrics["cost_per_request"] is None
    assert metrics["requests_per_device_hour"] == 0


def test_only_successful_tokens_count_beside_failures():
    mixed = record(request([(1000, 10)]), request([(2000, 100)], reason="abort"), request([(500, 7)], reason=None))
    metrics = compute_metrics(mixed)
    assert metrics["output_tokens_per_s"] == pytest.approx(10 / 2)
    assert metrics["error_rate"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("n", [1, 2, 3, 20])
def test_percentiles_are_ordered_and_within_the_values(n):
    rng = random.Random(n)
    firsts = [rng.uniform(10, 2000) for _ in range(n)]
    stats = compute_metrics(record(*(request([(at, 1)]) for at in firsts)))["ttft_s"]
    assert min(firsts) / 1000 - 1e-6 <= stats["p50"] <= stats["p95"] <= stats["p99"] <= max(firsts) / 1000 + 1e-6
    assert stats["n"] == n


def test_a_record_without_requests_has_no_values_rather_than_zeros():
    metrics = compute_metrics(record(), slo="ttft_p95=1")
    for name in (
        "output_tokens_per_s",
        "requests_per_s",
        "duration_s",
        "cost_per_request",
        "error_rate",
        "goodput_rps",
    ):
        assert metrics[name] is None, name
    assert set(metrics["latency_breakdown"].values()) == {None}
    assert metrics["objectives"] == [{"name": "ttft_p95", "limit": 1.0, "value": None, "met": None}]


def test_cost_is_device_time_at_the_assumed_price():
    metrics = compute_metrics(record(request([(36_000, 100)])), price_per_device_hour=2.0)
    assert metrics["cost_per_request"] == pytest.approx(0.02)
    assert metrics["cost_per_million_output_tokens"] == pytest.approx(200.0)
    assert metrics["requests_per_device_hour"] == pytest.approx(100.0)
    assert (metrics["price_per_device_hour"], metrics["price_provenance"]) == (2.0, "assumed")


def test_the_keys_of_the_metrics_json_are_all_there():
    metrics = compute_metrics(record(request([(10, 1)])))
    assert set(metrics) >= {
        "ttft_s", "tpot_s", "itl_s", "e2e_s", "output_tokens_per_s", "requests_per_s", "goodput_rps", "slo_attainment",
        "completed", "failed", "duration_s", "latency_breakdown", "memory", "counters", "quality", "config",
        "cost_per_million_output_tokens", "cost_per_request", "requests_per_device_hour", "environment", "provenance",
    }  # fmt: skip
    assert set(metrics["ttft_s"]) == {"mean", "p50", "p95", "p99", "n"}
    assert set(metrics["latency_breakdown"]) == set(PARTS)
    assert set(metrics["memory"]) >= {
        "weights_bytes",
        "kv_reserved_bytes",
        "kv_peak_used_bytes",
        "activation_peak_bytes",
    }
    assert metrics["goodput_rps"] is None
    assert metrics["slo_attainment"] is None
    assert metrics["quality"] is None
    assert metrics["counters"]["alpha"] is None


def test_goodput_counts_the_requests_that_meet_every_objective():
    fast, late, jumpy = (
        request([(100, 1), (120, 1)], id="fast"),
        request([(900, 1), (920, 1)], id="late"),
        request([(100, 1), (1000, 1)], id="jumpy"),
    )
    failed = request([(50, 1)], id="failed", reason="error", error="boom")
    metrics = compute_metrics(record(fast, late, jumpy, failed), slo="ttft_p95=0.5, itl_p99=0.05, error_rate=0.01")
    assert metrics["goodput_rps"] == pytest.approx(1 / 1.0)
    assert metrics["slo_attainment"] == pytest.approx(1 / 4)
    assert [(row["name"], row["met"]) for row in metrics["objectives"]] == [
        ("ttft_p95", False),
        ("itl_p99", False),
        ("error_rate", False),
    ]


def test_a_request_of_one_token_cannot_miss_a_gap_objective():
    metrics = compute_metrics(record(request([(100, 1)])), slo="itl_p99=0.001,tpot_mean=0.001")
    assert metrics["slo_attainment"] == 1.0


def test_objectives_are_read_from_text():
    names = [
        o.name for o in parse_slo("ttft_p95=0.5,itl_p99=0.05,error_rate=0.01,cost_per_request=1,quality_drop=0.01")
    ]
    assert names == ["ttft_p95", "itl_p99", "error_rate", "cost_per_request", "quality_drop"]
    assert parse_slo(None) == parse_slo("") == ()


@pytest.mark.parametrize(
    "text",
    ["ttft=0.5", "ttft_p95", "ttft_p95=fast", "ttft_p95=-1", "ttft_p95=nan", "speed_p95=1", "itl_p50=1,itl_p50=2"],
)
def test_a_wrong_objective_is_one_line_that_names_it(text):
    with pytest.raises(InputError) as error:
        parse_slo(text)
    assert error.value.field == "slo"
    assert "\n" not in str(error.value)


# Steps of 10 ms: 1 ms plan, 8 ms execute, 1 ms commit; 2 ms pass between steps.
STEPS = [step(i, 12 * i, 12 * i + 1, 12 * i + 9, 12 * i + 10) for i in range(8)]


def test_waterfall_gives_each_piece_of_time_one_owner():
    # Arrives at 5 ms, first step is step 1 (12..22), then it sits out step 2, and decodes in 3 and 4 (ends 57 ms).
    served = request(
        [(33 - 12, 1), (45, 1), (57, 1)], arrival_ms=5, steps=[(1, "prefill", 4), (3, "decode", 1), (4, "decode", 1)]
    )
    parts = waterfall(record(served, steps=STEPS), served)
    ms = {name: round(value * 1000, 6) for name, value in parts.items()}
    assert ms["queue_s"] == 7  # 5..12
    assert ms["prefill_s"] == 8
    assert ms["decode_s"] == 16
    assert ms["overhead_s"] == 2 + 2 + 1  # the last commit is after the last token
    assert ms["stalled_s"] == 10  # all of step 2
    assert ms["unexplained_s"] == 6  # three gaps between steps
    assert ms["e2e_s"] == 52
    assert sum(parts[name] for name in PARTS) == pytest.approx(parts["e2e_s"])


def test_waterfall_counts_the_wait_after_a_preemption_as_queue():
    # Decodes in step 1, is preempted while step 2 is planned (24 ms), comes back in step 5 (60 ms) with its prefill.
    served = request(
        [(9, 1), (21, 1), (69, 1)],
        steps=[(0, "prefill", 4), (1, "decode", 1), (5, "prefill", 6)],
        preemptions_ms=[(24.5, 60)],
    )
    parts = waterfall(record(served, steps=STEPS), served)
    assert parts["queue_s"] == pytest.approx(0.060 - 0.0245)
    assert parts["prefill_s"] == pytest.approx(0.016)
    assert parts["stalled_s"] == pytest.approx(0.0005)  # step 2's first half millisecond
    assert sum(parts[name] for name in PARTS) == pytest.approx(parts["e2e_s"])


def test_a_preemption_inside_an_own_step_is_not_counted_twice():
    served = request([(9, 1), (45, 1)], steps=[(0, "prefill", 4), (3, "prefill", 5)], preemptions_ms=[(9.5, 36)])
    parts = waterfall(record(served, steps=STEPS), served)
    assert parts["queue_s"] == pytest.approx(0.026)  # 10..36
    assert parts["unexplained_s"] == pytest.approx(0.0)
    assert sum(parts[name] for name in PARTS) == pytest.approx(parts["e2e_s"])


def test_host_work_between_steps_is_overhead_wherever_it_came_from():
    """Gaps of 2 ms follow steps 0 to 3: taking in a request, reporting, looking for a cancel; one is on no timer."""
    served = request([(45, 1)], steps=[(0, "prefill", 4), (3, "decode", 1)])
    made = record(served, steps=STEPS)
    made["host_ns"] = [[10 * MS, 12 * MS]]
    made["sender_ns"] = {"send": [[int(9.9 * MS), 12 * MS]], "report": [[22 * MS, 23 * MS]],
                         "cancel": [[23 * MS, int(23.5 * MS)]], "sleep": []}  # fmt: skip
    parts = waterfall(made, served)
    assert parts["overhead_s"] == pytest.approx(0.002 + 0.001 + 0.002 + 0.0015)  # an add within a send counts once
    assert parts["unexplained_s"] == pytest.approx(0.0005 + 0.002)
    assert sum(parts[name] for name in PARTS) == pytest.approx(parts["e2e_s"])


def test_sleep_of_the_load_generator_is_stalled_for_an_admitted_request_and_queue_for_a_waiting_one():
    running = request([(21, 1)], id="r00", steps=[(0, "prefill", 4), (1, "decode", 1)])
    waiting = request([(21, 1)], id="r01", steps=[(1, "prefill", 4)])
    made = record(running, waiting, steps=STEPS)
    made["sender_ns"] = {"send": [], "report": [], "cancel": [], "sleep": [[10 * MS, 12 * MS]]}
    assert waterfall(made, running)["stalled_s"] == pytest.approx(0.002)
    assert waterfall(made, waiting)["queue_s"] == pytest.approx(0.012)
    assert waterfall(made, waiting)["stalled_s"] == 0


def test_the_share_of_unexplained_time_is_told_at_the_median_and_at_p99():
    clean = [request([(9, 1)], id=f"r{i}", steps=[(0, "prefill", 4)]) for i in range(3)]
    gaps = request([(21, 1)], id="r3", steps=[(0, "prefill", 4), (1, "decode", 1)])
    share = compute_metrics(record(*clean, gaps, steps=STEPS))["unexplained_share"]
    assert share["p50"] == 0 and share["n"] == 4
    assert share["p99"] == pytest.approx(2 / 21, rel=0.05)
    assert compute_metrics(record())["unexplained_share"] == {"p50": None, "p99": None, "n": 0}


@pytest.mark.parametrize("seed", range(20))
def test_the_parts_of_any_record_sum_to_e2e_and_none_is_negative(seed):
    rng = random.Random(seed)
    steps, at = [], 0
    host, sleep = [], []
    for index in range(30):
        at += rng.choice([0, 0, 3])
        if rng.random() < 0.4:
            host.append([(at - 1) * MS, (at + rng.choice([1, 2])) * MS])
            at += 2
        elif rng.random() < 0.2:
            sleep.append([at * MS, (at + 2) * MS])
            at += 2
        steps.append(step(index, at, at + 1, at + 6, at + 7))
        at += 7
    mine = sorted(rng.sample(range(30), rng.randrange(2, 15)))
    own = [(i, rng.choice(["prefill", "decode"]), 1) for i in mine]
    ends = [steps[i]["execute_end_ns"] / MS for i in mine]
    out = steps[mine[0]]["commit_end_ns"] / MS
    back = steps[mine[1]]["plan_start_ns"] / MS
    arrival = max(0, steps[mine[0]]["plan_start_ns"] / MS - rng.randrange(20))
    served = request([(end, 1) for end in ends], arrival_ms=arrival, steps=own,
                     preemptions_ms=[(out, back)] if rng.random() < 0.5 else [])  # fmt: skip
    made = record(served, steps=steps)
    made["host_ns"], made["sender_ns"] = host, {"sleep": sleep}
    parts = waterfall(made, served)
    assert sum(parts[name] for name in PARTS) == pytest.approx(parts["e2e_s"])
    assert all(parts[name] >= -1e-12 for name in PARTS), parts


def test_breakdown_is_the_mean_over_successful_requests_and_leaves_out_what_it_cannot_split():
    one = request([(9, 1)], steps=[(0, "prefill", 4)])
    two = request([(21, 1)], steps=[(1, "prefill", 4)])
    lost = request([(33, 1)], steps=[(2, "prefill", 4)], reason="error", error="boom")
    without_steps = request([(33, 1)])
    parts = compute_metrics(record(one, two, lost, without_steps, steps=STEPS))["latency_breakdown"]
    assert parts["queue_s"] == pytest.approx((0 + 0.012) / 2)
    assert parts["prefill_s"] == pytest.approx(0.008)
    assert parts["decode_s"] == 0
    assert waterfall(record(steps=STEPS), without_steps) is None


def test_host_work_is_the_step_without_the_model_and_only_of_steps_that_tell():
    told = [{**step(i, 100 * i, 100 * i + 2, 100 * i + 50, 100 * i + 60), "model_s": 0.045} for i in range(3)]
    silent = [step(3, 300, 301, 380, 390), {**step(4, 400, 401, 480, 490), "model_s": None}]
    found = host_work(record(request([(50, 1)]), steps=[*told, *silent]))
    assert found["host_s"]["n"] == 3 and found["host_s"]["p50"] == pytest.approx(0.015)
    assert found["share"]["p50"] == pytest.approx(15 / 60)


def test_host_work_of_a_run_without_model_times_is_unknown_and_not_zero():
    found = host_work(record(request([(50, 1)]), steps=[step(0, 0, 2, 50, 60)]))
    assert found["host_s"] == found["share"] == {"mean": None, "p50": None, "p95": None, "p99": None, "n": 0}


def test_a_percentile_of_the_few_that_were_answered_meets_no_objective():
    """Two of three refused at once: the one that is answered is fast, and no load is met."""
    refused = [request([], id=f"no{n}", reason="error", error="429") for n in range(2)]
    answered = request([(100, 1), (120, 1)], id="yes")
    (row,) = compute_metrics(record(answered, *refused), slo="ttft_p95=0.5")["objectives"]
    assert (row["value"], row["met"], row["reason"]) == (pytest.approx(0.1), False, "2 of 3 requests failed")
    assert compute_metrics(record(*refused), slo="e2e_mean=9")["objectives"][0]["met"] is False
    many = [request([(100, 1), (120, 1)], id=f"yes{n}") for n in range(39)]
    assert compute_metrics(record(*many, refused[0]), slo="ttft_p95=0.5")["objectives"][0]["met"]


def test_an_error_rate_of_ones_own_judges_failures_alone():
    refused = request([], id="no", reason="error", error="429")
    answered = request([(100, 1)], id="yes")
    found = compute_metrics(record(answered, refused), slo="ttft_p95=0.5,error_rate=0.6")["objectives"]
    assert [row["met"] for row in found] == [True, True]
