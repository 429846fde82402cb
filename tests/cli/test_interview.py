"""`trilemma interview` without a terminal: what it prints, stores and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.cli import run
from experiments.interview.items import item, names
from experiments.interview.progress import Progress

Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path))
    return tmp_path


def told(capsys: Out, *options: str) -> dict[str, Any]:
    assert run(["interview", *options, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def right(ref: str) -> str:
    numeric = item(ref).numeric
    assert numeric is not None
    return f"{numeric.answer:.8g}"


def test_a_question_is_asked_and_answered_in_two_calls(capsys: Out) -> None:
    asked = told(capsys, "ask", "--topic", "memory", "--seed", "5")
    assert asked == told(capsys, "ask", "--topic", "memory", "--seed", "5")
    assert asked["topic"] == "memory" and "solution" not in asked
    given = told(capsys, "ask", "--question", "kv_gqa:17", "--answer", right("kv_gqa:17"))
    assert given["passed"] and given["mistake"] is None
    numeric = item("kv_gqa:17").numeric
    assert numeric is not None
    wrong = told(capsys, "ask", "--question", "kv_gqa:17", "--answer", f"{numeric.answer / 2:.8g} GiB", "--lang", "zh")
    assert not wrong["passed"] and wrong["mistake"] == "k_without_v" and "只算了 K" in wrong["lines"][0]


def test_the_list_has_every_question_in_both_languages(capsys: Out) -> None:
    for lang in ("en", "zh"):
        rows = told(capsys, "list", "--lang", lang)["questions"]
        assert [row["name"] for row in rows] == names() and all(row["title"] for row in rows)
    assert run(["interview", "list", "--topic", "cost"]) == 0
    assert "month_cost" in capsys.readouterr().out


def test_a_mock_with_answers_from_a_file_ends_in_a_score_sheet(capsys: Out, tmp_path: Path) -> None:
    options = ["--seed", "4", "--questions", "6", "--topic", "speculation"]
    planned = told(capsys, "mock", "--plan", *options)["questions"]
    answers = [right(one["question"]) if one["form"] == "numeric" else None for one in planned]
    (tmp_path / "answers.json").write_text(json.dumps(answers))
    made = told(capsys, "mock", *options, "--answers", str(tmp_path / "answers.json"))
    count = sum(text is not None for text in answers)
    assert made["total"]["asked"] == 6 and made["total"]["passed"] == made["total"]["answered"] == count > 0
    sheet = told(capsys, "score")
    assert sheet["total"]["asked"] == count
    assert told(capsys, "reset", "--yes") == {"forgotten": count}
    assert told(capsys, "score")["total"]["asked"] == 0


def test_review_says_when_something_is_due(capsys: Out) -> None:
    assert told(capsys, "review")["next"] is None
    told(capsys, "ask", "--question", "kv_gqa:1", "--answer", "0.001")
    waiting = told(capsys, "review")
    assert waiting["due"] == 0 and waiting["next"] is not None
    assert told(capsys, "score")["boxes"][0]["box"] == 1


def test_people_read_a_question_its_verdict_and_the_solution(capsys: Out) -> None:
    assert run(["interview", "ask", "--question", "kv_gqa:1", "--answer", right("kv_gqa:1")]) == 0
    out = capsys.readouterr().out
    assert "Right:" in out and "Solution:" in out
    assert run(["interview", "ask", "--question", "f01_bottlenecks", "--answer", "解码带宽受限", "--lang", "zh"]) == 0
    out = capsys.readouterr().out
    assert "+ 解码" in out and "参考答案" in out
    assert run(["interview", "score"]) == 0 and "missed: f01_bottlenecks" in capsys.readouterr().out
    assert run(["interview", "ask", "--seed", "1"]) == 0
    assert capsys.readouterr().out.startswith("[")


@pytest.mark.parametrize(
    ("options", "code", "field"),
    [
        (["ask", "--lang", "fr"], 2, "lang"),
        (["ask", "--topic", "weather"], 2, "topic"),
        (["ask", "--seed", "x"], 2, "seed"),
        (["ask", "--question", "nothing"], 2, "question"),
        (["ask", "--question", "kv_gqa:1", "--seed", "2"], 2, "--question"),
        (["ask", "--question", "kv_gqa:1", "--answer", "16 G"], 2, "answer"),
        (["ask", "--question", "kv_gqa:1", "--answer", "many"], 2, "answer"),
        (["ask", "--judge", "ftp://x", "--seed", "1"], 2, "endpoint"),
        (["ask", "--key-env", "X", "--seed", "1"], 2, "--judge"),
        (["mock", "--questions", "0"], 2, "questions"),
        (["mock", "--minutes", "0"], 2, "minutes"),
        (["mock", "--answers", "/nowhere.json"], 2, "--answers"),
        (["mock"], 3, "interview"),
        (["reset"], 2, "--yes"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(capsys: Out, options: list[str], code: int, field: str) -> None:
    assert run(["interview", *options]) == code
    err = capsys.readouterr().err
    assert err.startswith(f"trilemma: {field}") and err.count("\n") == 1


def test_a_file_with_an_answer_that_is_none_begins_no_interview(capsys: Out, tmp_path: Path) -> None:
    options = ("--questions", "3", "--topic", "memory", "--seed", "1")
    planned = told(capsys, "mock", *options, "--plan")["questions"]
    place = next(at for at, one in enumerate(planned) if one["form"] == "numeric")
    answers = [None, None, None]
    answers[place] = "no number"
    (tmp_path / "answers.json").write_text(json.dumps(answers))
    assert run(["interview", "mock", *options, "--answers", str(tmp_path / "answers.json")]) == 2
    assert Progress().mocks() == []


def test_a_topic_is_accepted_by_its_name_in_either_language(capsys: Out) -> None:
    rows = told(capsys, "list", "--topic", "memory")["questions"]
    for said in ("显存", "Memory and KV cache", "显存与 KV 缓存"):
        assert told(capsys, "list", "--topic", said)["questions"] == rows
    assert run(["interview", "list", "--topic", "memry"]) == 2
    assert "did you mean memory?" in capsys.readouterr().err
    assert run(["interview", "list", "--topic", ""]) == 2


def test_a_question_may_be_named_without_its_option(capsys: Out) -> None:
    assert told(capsys, "ask", "kv_gqa:17") == told(capsys, "ask", "--question", "kv_gqa:17")
    assert run(["interview", "ask", "kv_gqa:17", "--question", "kv_mla:1"]) == 2


def test_a_reader_gets_tables_and_plans_in_their_language(capsys: Out) -> None:
    assert run(["interview", "mock", "--plan", "--questions", "2", "--seed", "3", "--lang", "zh"]) == 0
    shown = capsys.readouterr().out
    assert "同一个种子" in shown and "{" not in shown
    for command, heads in ((["list"], "题型"), (["score"], "得分")):
        assert run(["interview", *command, "--lang", "zh"]) == 0
        assert heads in capsys.readouterr().out


def test_an_answer_is_repeated_as_it_was_written(capsys: Out) -> None:
    assert run(["interview", "ask", "kv_gqa:17", "--answer", "16 GB"]) == 0
    assert "you gave 16 GB = 14.9 GiB" in capsys.readouterr().out
    assert run(["interview", "ask", "kv_gqa:17", "--answer", "16 GiB"]) == 0
    assert "you gave 16 GiB;" in capsys.readouterr().out
