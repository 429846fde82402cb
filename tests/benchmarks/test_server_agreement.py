"""A client's figures beside the server's: the translation of terms, and when two agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from server_agreement import agreement, guidellm_requests, ours_beside, paired, server_figures

MS = 1_000_000


def line(name: str = "x", received: int = 0, first: int = 100, gap: int = 10, sends: int = 11) -> dict[str, Any]:
    """Sends of one token each, in ms; as the server's log has them."""
    times = [[(received + first + gap * place) * MS, 1] for place in range(sends)]
    return {
        "id": name, "received_ns": received * MS, "sends": times, "completion_tokens": sends,
        "first_send_ns": times[0][0], "last_send_ns": times[-1][0],
    }  # fmt: skip


def test_figures_are_in_the_peers_terms() -> None:
    figures = server_figures(line())
    assert figures["time_to_first_token_ms"] == 100 and figures["inter_token_latency_ms"] == 10
    assert figures["time_per_output_token_ms"] == pytest.approx(200 / 11)  # contains the first token


def test_tokens_of_the_first_send_leave_the_divisor() -> None:
    bundled = line(sends=3)
    bundled["sends"][0][1], bundled["completion_tokens"] = 5, 7
    assert server_figures(bundled)["inter_token_latency_ms"] == 10
    alone = line(sends=1)
    assert server_figures(alone)["inter_token_latency_ms"] is None


@pytest.mark.parametrize(("late", "agree"), [(1.9, True), (2.1, True), (2.9, True), (3.1, False)])
def test_they_agree_within_3_percent_or_2_ms(late: float, agree: bool) -> None:
    figures = server_figures(line())
    client = {**figures, "time_to_first_token_ms": 100 + late}
    found = {row["figure"]: row["agree"] for row in agreement([(client, figures)])}
    assert found["time_to_first_token_ms"] is agree and found["inter_token_latency_ms"]
    slow = {**figures, "inter_token_latency_ms": 10 + late}  # 3 % of 10 ms is less than 2 ms
    found = {row["figure"]: row["agree"] for row in agreement([(slow, figures)])}
    assert found["inter_token_latency_ms"] is (late <= 2)


def test_requests_are_paired_by_the_response_id(tmp_path: Path) -> None:
    log, report = tmp_path / "log.jsonl", tmp_path / "report.json"
    refused = {**line("c"), "sends": []}
    log.write_text("".join(json.dumps(entry) + "\n" for entry in (line("a"), line("b", first=300), refused)))
    answers = [{"response_id": "b", "time_to_first_token_ms": 301.0}, {"response_id": "unknown"}]
    report.write_text(json.dumps({"benchmarks": [{"requests": {"successful": answers}}]}))
    pairs = paired(guidellm_requests(report), log, lambda request: str(request["response_id"]))
    assert len(pairs) == 1 and pairs[0][1]["time_to_first_token_ms"] == 300
    with pytest.raises(SystemExit):
        paired([], log, str)


def test_our_figures_stand_beside_the_last_requests(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    lines = [line("warm", 0, first=900), *(line(str(n), 1000 * n, first=100) for n in range(1, 4))]
    log.write_text("".join(json.dumps(entry) + "\n" for entry in lines))
    metrics = {"completed": 3, "ttft_s": {"p50": 0.101, "p99": 0.2}, "tpot_s": {"p50": 0.01, "p99": 0.0101}}
    rows = ours_beside(metrics, log)
    assert [row["agree"] for row in rows] == [True, False, True, True] and rows[0]["server_ms"] == 100
