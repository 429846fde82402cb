"""One run in the words of vLLM's benchmark, GuideLLM and AIPerf; each expected value by their published formula."""

import pytest

from experiments.metrics import compute_metrics
from experiments.metrics.translation import in_other_terms, nearest_rank
from tests.experiments.records import MS, record, request


def found(made, tool, name):
    (row,) = [row for row in in_other_terms(made)[tool] if row["name"] == name]
    return row


def test_one_stream_has_a_tpot_of_10_ms_or_of_100_ms_depending_on_who_is_asked():
    """First token at 1.000 s, 11 tokens, ten gaps of 10 ms: E2E 1.100 s."""
    made = record(request([(1000 + 10 * k, 1) for k in range(11)]))
    assert compute_metrics(made)["tpot_s"]["p50"] == pytest.approx(0.010)
    assert found(made, "vllm", "tpot")["p50"] == pytest.approx(0.010)
    guidellm = found(made, "guidellm", "time_per_output_token")
    assert guidellm["p50"] == pytest.approx(0.100)
    assert "time to first token included" in guidellm["why"]
    assert found(made, "aiperf", "inter_token_latency")["p50"] == pytest.approx(0.010)


def test_chunks_of_two_tokens_part_the_tools_on_itl():
    """After a first chunk of one token, five of two tokens, 20 ms apart."""
    made = record(request([(1000, 1), *((1020 + 20 * k, 2) for k in range(5))]))
    assert found(made, "vllm", "itl")["p50"] == pytest.approx(0.020)
    assert found(made, "vllm", "tpot")["p50"] == pytest.approx(0.010)
    assert found(made, "guidellm", "inter_token_latency")["p50"] == pytest.approx(0.010)
    assert found(made, "aiperf", "inter_token_latency")["p50"] == pytest.approx(0.010)
    assert found(made, "aiperf", "inter_chunk_latency")["p50"] == pytest.approx(0.020)


def test_others_count_from_the_send_and_ours_from_the_schedule():
    made = record(request([(700, 1), (800, 1)], arrival_ms=0, send_ms=200))
    assert compute_metrics(made)["ttft_s"]["p50"] == pytest.approx(0.7)
    for tool, name in (("vllm", "ttft"), ("guidellm", "time_to_first_token"), ("aiperf", "time_to_first_token")):
        assert found(made, tool, name)["p50"] == pytest.approx(0.5)
        assert "from the send" in found(made, tool, name)["why"]


def test_an_empty_first_event_is_vllms_first_token_alone():
    made = record(request([(500, 1), (600, 1)], first_event_ns=100 * MS, end_ns=650 * MS, usage_tokens=2))
    assert found(made, "vllm", "ttft")["p50"] == pytest.approx(0.1)
    assert found(made, "aiperf", "time_to_first_token")["p50"] == pytest.approx(0.5)
    assert found(made, "vllm", "tpot")["p50"] == pytest.approx(0.5)
    assert found(made, "guidellm", "request_latency")["p50"] == pytest.approx(0.65)
    assert found(made, "aiperf", "request_latency")["p50"] == pytest.approx(0.60)


def test_guidellm_weights_by_tokens_and_takes_the_nearest_rank():
    """One request of 2 tokens at 100 ms, one of 11 at 10 ms: weights 1 and 10."""
    slow, fast = request([(100, 1), (200, 1)]), request([(100 + 10 * k, 1) for k in range(11)])
    itl = found(record(slow, fast), "guidellm", "inter_token_latency")
    assert itl["mean"] == pytest.approx((0.1 + 10 * 0.01) / 11)
    assert itl["p50"] == pytest.approx(0.01)
    assert found(record(slow, fast), "aiperf", "inter_token_latency")["mean"] == pytest.approx(0.055)
    assert nearest_rank([(1.0, 1), (2.0, 1), (3.0, 2)], 50) == 2.0
    assert nearest_rank([(1.0, 0)], 50) is None


def test_failed_requests_and_one_token_answers_have_no_gap():
    made = record(request([(10, 1)]), request([], reason="error", error="HTTP 500"))
    assert found(made, "vllm", "tpot")["mean"] is None
    assert found(made, "vllm", "ttft")["p50"] == pytest.approx(0.01)
    assert in_other_terms(record(request([], reason="error", error="x")))["vllm"] == []
