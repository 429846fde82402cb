"""Pages of /metrics as evidence: gauges, what rose between two pages, percentiles from buckets; real pages of vLLM."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.advisor.diagnose import HEALTHY, diagnose
from experiments.advisor.metrics_page import Histogram, evidence_from_pages, parse_page
from ledger.errors import InputError

PAGES = Path(__file__).parents[1] / "fixtures" / "metrics"
INF = float("inf")


def vllm(running: float = 4, waiting: float = 0, kv: float = 0.3, *, preempted: int = 0, ended: int = 10) -> str:
    """A page of one engine with the names of vLLM's V1 engine; a request waits 1 s and takes 3 s."""
    of = 'engine="0",model_name="m"'
    return "\n".join([
        "# HELP vllm:num_requests_running Number of requests in model execution batches.",
        "# TYPE vllm:num_requests_running gauge",
        f"vllm:num_requests_running{{{of}}} {running}",
        "# TYPE vllm:num_requests_waiting gauge",
        f"vllm:num_requests_waiting{{{of}}} {waiting}",
        "# TYPE vllm:num_requests_waiting_by_reason gauge",
        f'vllm:num_requests_waiting_by_reason{{{of},reason="capacity"}} {waiting}',
        "# TYPE vllm:kv_cache_usage_perc gauge",
        f"vllm:kv_cache_usage_perc{{{of}}} {kv}",
        "# TYPE vllm:num_preemptions_total counter",
        f"vllm:num_preemptions_total{{{of}}} {preempted}",
        f"vllm:num_preemptions_created{{{of}}} 1.788e+09",
        "# TYPE vllm:request_success_total counter",
        f'vllm:request_success_total{{{of},finished_reason="stop"}} {ended - 1}',
        f'vllm:request_success_total{{{of},finished_reason="length"}} 1',
        "# TYPE vllm:cache_config_info gauge",
        f'vllm:cache_config_info{{block_size="16",cache_dtype="auto",enable_prefix_caching="False",{of},'
        'num_gpu_blocks="100"} 1.0',
        "# TYPE vllm:request_queue_time_seconds histogram",
        f'vllm:request_queue_time_seconds_bucket{{{of},le="0.3"}} 0',
        f'vllm:request_queue_time_seconds_bucket{{{of},le="+Inf"}} {ended}',
        f"vllm:request_queue_time_seconds_sum{{{of}}} {1.0 * ended}",
        f"vllm:request_queue_time_seconds_count{{{of}}} {ended}",
        "# TYPE vllm:time_to_first_token_seconds histogram",
        f'vllm:time_to_first_token_seconds_bucket{{{of},le="1.0"}} 0',
        f'vllm:time_to_first_token_seconds_bucket{{{of},le="2.0"}} {ended}',
        f'vllm:time_to_first_token_seconds_bucket{{{of},le="+Inf"}} {ended}',
        f"vllm:time_to_first_token_seconds_sum{{{of}}} {1.5 * ended}",
        f"vllm:time_to_first_token_seconds_count{{{of}}} {ended}",
        "",
    ])  # fmt: skip


SGLANG = """# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m",tp_rank="0"} 32.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{model_name="m",tp_rank="0"} 7.0
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="m",tp_rank="0"} 0.98
# TYPE sglang:cache_hit_rate gauge
sglang:cache_hit_rate{model_name="m",tp_rank="0"} 0.12
# TYPE sglang:num_retracted_requests_total counter
sglang:num_retracted_requests_total{model_name="m",tp_rank="0"} 9.0
# TYPE sglang:num_requests_total counter
sglang:num_requests_total{model_name="m"} 100.0
# TYPE sglang:spec_accept_length gauge
sglang:spec_accept_length{model_name="m",tp_rank="0"} 0.0
# TYPE sglang:max_total_num_tokens gauge
sglang:max_total_num_tokens{model_name="m",tp_rank="0"} 40000.0
# TYPE sglang:queue_time_seconds histogram
sglang:queue_time_seconds_bucket{le="1.0",model_name="m"} 10.0
sglang:queue_time_seconds_bucket{le="+Inf",model_name="m"} 100.0
sglang:queue_time_seconds_sum{model_name="m"} 400.0
sglang:queue_time_seconds_count{model_name="m"} 100.0
"""


def test_one_page_gives_the_moment_and_everything_since_the_start() -> None:
    evidence = evidence_from_pages(vllm(running=4, waiting=3, preempted=6))
    assert (evidence.running, evidence.waiting, evidence.kv_used_share) == (4, 3, 0.3)
    assert (evidence.preemptions, evidence.completed, evidence.queue_s) == (6, 10, 1.0)
    assert evidence.engine == "vLLM" and evidence.setting("prefix_cache") == "off"
    assert evidence.setting("block_size") == 16 and evidence.setting("max_num_seqs") is None
    assert evidence.source_of("waiting") == "vllm:num_requests_waiting"
    assert evidence.served_rps is None and evidence.growing is None


def test_two_pages_give_what_happened_between_them() -> None:
    first, later = vllm(waiting=2, preempted=6, ended=10), vllm(waiting=30, kv=0.5, preempted=7, ended=30)
    evidence = evidence_from_pages(first, later, seconds=10, settings={"max_num_seqs": 4})
    assert (evidence.preemptions, evidence.completed, evidence.served_rps) == (1, 20, 2.0)
    assert evidence.waiting == 16 and evidence.growing is True
    assert (evidence.kv_used_share, evidence.kv_peak_share) == (0.4, 0.5)
    assert evidence.seats == 4


def test_a_server_that_was_started_again_between_them_counts_from_zero() -> None:
    evidence = evidence_from_pages(vllm(ended=50, preempted=9), vllm(ended=5, preempted=1), seconds=10)
    assert (evidence.completed, evidence.preemptions, evidence.queue_s) == (5, 1, 1.0)


def test_percentiles_lie_in_their_bucket_and_are_unknown_beyond_the_last_bound() -> None:
    found = Histogram({1.0: 0, 2.0: 80, INF: 100}, 160.0, 100)
    assert found.quantile(0.4) == pytest.approx(1.5) and found.quantile(0.8) == pytest.approx(2.0)
    assert found.quantile(0.95) is None
    assert Histogram().quantile(0.5) is None and Histogram().mean is None
    assert found.since(Histogram({1.0: 0, 2.0: 40, INF: 50}, 100.0, 50)).mean == pytest.approx(1.2)


def test_engines_of_one_page_are_summed_and_their_shares_averaged() -> None:
    two = vllm(running=4, kv=0.2) + "".join(
        line.replace('engine="0"', 'engine="1"') + "\n"
        for line in vllm(running=6, kv=0.4).splitlines()
        if line[:1] != "#"
    )
    page = parse_page(two)
    assert page.values["vllm:num_requests_running"] == 10
    assert page.shares["vllm:kv_cache_usage_perc"] == [0.2, 0.4]


def test_a_page_of_sglang_that_retracts_is_kv_memory() -> None:
    evidence = evidence_from_pages(SGLANG)
    assert (evidence.running, evidence.waiting, evidence.preemptions) == (32, 7, 9)
    assert (evidence.kv_used_share, evidence.prefix_hit_rate, evidence.queue_s) == (0.98, 0.12, 4.0)
    assert evidence.tokens_per_pass is None  # speculation is off, which its gauge shows as 0
    found = diagnose(evidence)
    assert found.top is not None and found.top.cause == "kv-memory-bound"
    assert found.top.changes[0].flags()["SGLang"] == "--kv-cache-dtype"


def test_drafts_give_alpha_by_position() -> None:
    of = 'engine="0",model_name="m"'
    drafts = "\n".join([
        "# TYPE vllm:spec_decode_num_drafts_total counter", f"vllm:spec_decode_num_drafts_total{{{of}}} 100",
        "# TYPE vllm:spec_decode_num_draft_tokens_total counter",
        f"vllm:spec_decode_num_draft_tokens_total{{{of}}} 200",
        "# TYPE vllm:spec_decode_num_accepted_tokens_total counter",
        f"vllm:spec_decode_num_accepted_tokens_total{{{of}}} 75",
        "# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_total counter",
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{of},position="0"}} 50',
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{of},position="1"}} 25', "",
    ])  # fmt: skip
    evidence = evidence_from_pages(vllm() + drafts)
    assert evidence.draft_k == 2 and evidence.acceptance_rate == 0.375
    assert evidence.alpha == pytest.approx(75 / 150)  # 100 first positions and 50 second ones were tested
    assert evidence.tokens_per_pass == pytest.approx(1.75)


@pytest.mark.parametrize("text", ["", "hello", "<html>", "# TYPE go_goroutines gauge\ngo_goroutines 7\n", "a{b= 3"])
def test_what_is_no_page_of_a_known_server_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError) as caught:
        evidence_from_pages(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "line",
    [
        "# TYPE vllm:request_queue_time_seconds histogram\nvllm:request_queue_time_seconds_bucket{} 3",
        '# TYPE vllm:request_queue_time_seconds histogram\nvllm:request_queue_time_seconds_bucket{le="wide"} 3',
        "# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_total counter\n"
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="first"} 3',
    ],
)
def test_a_sample_whose_labels_make_no_sense_is_refused_in_one_line(line: str) -> None:
    with pytest.raises(InputError, match="--metrics") as caught:
        evidence_from_pages(line + "\n")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("told", ["NaN", None])
def test_a_sum_that_the_page_does_not_have_is_unknown_and_not_zero(told: str | None) -> None:
    kept = [line for line in vllm().splitlines() if "queue_time_seconds_sum" not in line]
    found = [] if told is None else [f'vllm:request_queue_time_seconds_sum{{engine="0",model_name="m"}} {told}']
    evidence = evidence_from_pages("\n".join([*kept, *found, ""]))
    assert evidence.queue_s is None and evidence.ttft_mean_s == pytest.approx(1.5)


def test_where_nothing_ended_between_two_pages_no_latency_is_known() -> None:
    """A server that hangs: what it took to answer before says nothing of now."""
    evidence = evidence_from_pages(vllm(waiting=2), vllm(waiting=40), seconds=10, slo="ttft_p95=5")
    assert evidence.completed == 0 and evidence.growing is True
    assert evidence.ttft_mean_s is None and evidence.ttft_p95_s is None and evidence.queue_s is None
    assert diagnose(evidence).verdict != HEALTHY


def test_the_hit_rate_of_several_ranks_is_their_mean() -> None:
    line = 'sglang:cache_hit_rate{model_name="m",tp_rank="0"} 0.12'
    two = SGLANG.replace(line, f"{line}\n{line.replace(chr(34) + '0' + chr(34), chr(34) + '1' + chr(34))}")
    assert evidence_from_pages(two).prefix_hit_rate == pytest.approx(0.12)


def test_pages_of_two_servers_are_refused() -> None:
    with pytest.raises(InputError, match="metrics-later"):
        evidence_from_pages(vllm(), SGLANG)


def test_the_page_of_our_own_server_is_read_with_its_host_share() -> None:
    from experiments.server.metrics import Metrics

    made = Metrics("m", 1)
    engine = made.engines[0]
    engine.step_s.inc(10.0)
    engine.execute_s.inc(4.0)
    engine.queue.observe(0.2)
    evidence = evidence_from_pages(made.text().decode())
    assert evidence.engine == "trilemma" and evidence.host_share == pytest.approx(0.6)
    assert evidence.queue_s == pytest.approx(0.2)
    assert evidence.ttft_mean_s is None  # nothing was observed


# -- pages of a real server (benchmarks/capture_metrics.py) -----------------------------------------------------------

CAPTURED: dict[str, str | None] = {"healthy": None, "kv-full": "kv-memory-bound", "queue-bound": "queue-bound"}


@pytest.mark.parametrize(("state", "cause"), CAPTURED.items())
@pytest.mark.parametrize("both", [True, False], ids=["two pages", "one page"])
def test_captured_pages_of_vllm_give_the_state_they_were_made_in(state: str, cause: str | None, both: bool) -> None:
    first = (PAGES / f"vllm-{state}.txt").read_text("utf-8")
    later = (PAGES / f"vllm-{state}-later.txt").read_text("utf-8")
    found = diagnose(evidence_from_pages(first, later, seconds=15) if both else evidence_from_pages(later))
    assert (None if found.top is None else found.top.cause) == cause
    if cause is None:
        assert found.verdict == HEALTHY
