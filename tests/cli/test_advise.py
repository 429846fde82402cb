"""`trilemma advise` on the command line: each kind of evidence, its table and JSON, and errors of one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.cli import run

PAGES = Path(__file__).parents[1] / "fixtures" / "metrics"
QUEUE = {
    "slo": "ttft_p95=1", "ttft_s": {"mean": 4.0, "p95": 9.0}, "latency_breakdown": {"queue_s": 3.8},
    "load": {"waiting": 40, "running": 64}, "config": {"max_num_seqs": 64}, "engine": "SGLang",
}  # fmt: skip


@pytest.fixture
def numbers(tmp_path: Path) -> str:
    path = tmp_path / "numbers.json"
    path.write_text(json.dumps(QUEUE))
    return str(path)


def test_typed_numbers_give_a_table_with_the_flag_of_that_engine(
    numbers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["advise", "--numbers", numbers]) == 0
    out = capsys.readouterr().out
    assert "1. queue-bound" in out and "SGLang --max-running-requests" in out and "--max-num-seqs" not in out
    assert "refuted if" in out and "C44" in out


def test_what_looks_like_markup_is_printed_as_it_was_typed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "numbers.json"
    path.write_text(json.dumps({"quality": {"slices": {"[/rare]": 0.2}}, "config": {"weights": "w4[/b]"}}))
    assert run(["advise", "--numbers", str(path)]) == 0
    out = capsys.readouterr().out
    assert "[/rare]" in out and "w4[/b]" in out


def test_an_objective_that_a_servers_page_does_not_judge_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    pages = [str(PAGES / f"vllm-healthy{part}.txt") for part in ("", "-later")]
    assert run(["advise", "--metrics", pages[0], "--metrics-later", pages[1], "--slo", "quality_drop=0.02"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "healthy" not in out.split(":")[0] and "not judged: quality_drop" in out and "trilemma eval" in out


def test_json_has_the_finding_its_changes_and_where_each_number_is_from(
    numbers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["advise", "--numbers", numbers, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "found" and found["findings"][0]["cause"] == "queue-bound"
    change = found["findings"][0]["changes"][0]
    assert set(change) == {"variable", "from", "to", "why", "effort", "refuted_by", "flags", "prediction"}
    assert found["evidence"]["waiting"] == {"value": 40.0, "from": "typed in"}
    assert found["provenance"] == "given"


def test_an_objective_on_the_command_line_goes_before_the_files(
    numbers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["advise", "--numbers", numbers, "--slo", "ttft_p95=20", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["objectives"] == [{"name": "ttft_p95", "limit": 20.0, "value": 9.0}]


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (["advise"], 2, "one of --run"),
        (["advise", "--run", "ffffffff", "--endpoint", "http://127.0.0.1:9"], 2, "one of --run"),
        (["advise", "--run", "ffffffff"], 2, "ffffffff"),
        (["advise", "--numbers", "nowhere.json"], 2, "nowhere.json"),
        (["advise", "--metrics", "nowhere.txt"], 2, "nowhere.txt"),
        (["advise", "--metrics", __file__], 2, "Prometheus"),
        (["advise", "--endpoint", "127.0.0.1:9"], 2, "address"),
        (["advise", "--endpoint", "http://127.0.0.1:9"], 3, "127.0.0.1:9"),
        (["advise", "--endpoint", "http://127.0.0.1:9", "--seconds", "0"], 2, "--seconds"),
        (["advise", "--run", "ffffffff", "--metrics-later", "x"], 2, "--metrics-later"),
    ],
)
def test_errors_are_one_line(
    command: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path))
    assert run(command) == code
    told = capsys.readouterr()
    assert told.out == "" and says in told.err and len(told.err.strip().splitlines()) == 1
