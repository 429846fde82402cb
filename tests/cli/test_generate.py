"""`trilemma generate`: every option reaches the engine, wrong ones are one line, and the JSON keeps its keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.cli import run
from tests.core_engine.conftest import make_llama

TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}<assistant>"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options that run a tiny random model with a chat template."""
    directory = tmp_path_factory.mktemp("tiny")
    make_llama(directory)
    (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    values = {"model": directory, "dtype": "fp32", "device": "cpu", "threads": 1, "kv_memory_mib": 4}
    return [part for name, value in values.items() for part in ("--set", f"{name}={value}")]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path / "home"))


def answer(model: list[str], capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    line = ["generate", "--prompt", "abc", "--max-tokens", "6", "--ignore-eos", *options, *model, "--json"]
    assert run(line) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--top-k x", "--top-k"),
        ("--top-k -1", "top_k"),
        ("--top-p 0", "top_p"),
        ("--top-p nan", "--top-p"),
        ("--min-p 2", "min_p"),
        ("--repetition-penalty 0", "repetition_penalty"),
        ("--presence-penalty 3", "presence_penalty"),
        ("--frequency-penalty -3", "frequency_penalty"),
        ("--logit-bias 42", "--logit-bias"),
        ("--logit-bias a=1", "--logit-bias"),
        ("--logit-bias 4=1 --logit-bias 4=2", "logit_bias"),
        ("--logit-bias 4=101", "logit_bias"),
        ("--logprobs 21", "logprobs"),
        ("--n 0", "n:"),
        ("--n 2", "all answers would be the same"),
        ("--min-tokens 200", "min_tokens"),
        ("--system x", "--system"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(
    options: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["generate", "--prompt", "hi", *options.split()]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and named in captured.err


def test_options_that_change_the_choice_do(model: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    plain = answer(model, capsys)
    assert plain["finish_reason"] == "length" and plain["completion_tokens"] == 6
    drawn = ["--temperature", "5", "--seed", "3"]
    warm = answer(model, capsys, *drawn)
    assert warm["token_ids"] != plain["token_ids"]
    assert answer(model, capsys, *drawn)["token_ids"] == warm["token_ids"]
    for narrow in (["--top-k", "1"], ["--top-p", "0.0001"], ["--min-p", "1"]):
        assert answer(model, capsys, *drawn, *narrow)["token_ids"] == plain["token_ids"]
    forced = answer(model, capsys, "--logit-bias", "100=100", "--logit-bias", "101=-100")
    assert forced["token_ids"] == [100] * 6


def test_chat_takes_a_system_message(model: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    alone = answer(model, capsys, "--chat")
    assert alone["prompt_tokens"] == len("<user>abc<assistant>")
    both = answer(model, capsys, "--chat", "--system", "be brief")
    assert both["prompt_tokens"] == alone["prompt_tokens"] + len("<system>be brief")


def test_an_id_outside_the_vocabulary_is_refused(model: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", "--prompt", "hi", "--logit-bias", "999=1", *model]) == 2
    assert "logit_bias" in capsys.readouterr().err


def test_a_penalty_reaches_the_engine(model: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    forced = ["--logit-bias", "100=100", "--logit-bias", "101=80"]
    assert answer(model, capsys, *forced)["token_ids"] == [100] * 6
    assert answer(model, capsys, *forced, "--repetition-penalty", "50")["token_ids"][:2] == [100, 101]


def test_several_answers_are_choices_and_the_first_is_on_top(
    model: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--n", "3", "--temperature", "2", "--seed", "1"]
    found = answer(model, capsys, *options)
    assert len(found["choices"]) == 3
    assert all(found[key] == found["choices"][0][key] for key in ("text", "token_ids", "finish_reason"))
    assert len({tuple(choice["token_ids"]) for choice in found["choices"]}) == 3
    assert found["prompt_tokens"] == 3
    assert run(["generate", "--prompt", "abc", "--max-tokens", "6", "--ignore-eos", *options, *model]) == 0
    texts = [f"--- {i} of 3\n{choice['text']}\n" for i, choice in enumerate(found["choices"], 1)]
    assert capsys.readouterr().out == "".join(texts)


def test_logprobs_stand_beside_each_token(model: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(model, capsys, "--logprobs", "2")
    assert [entry["token_id"] for entry in found["logprobs"]] == found["token_ids"]
    for entry in found["logprobs"]:
        assert entry["logprob"] <= 0 and len(entry["top"]) == 2
        assert entry["top"][0] == {key: entry[key] for key in ("token_id", "token", "logprob")}  # greedy
    assert "logprobs" not in answer(model, capsys)


def test_min_tokens_keeps_end_tokens_and_stops_away(model: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    free = answer(model, capsys)
    stop = ["--stop", free["text"][0]]
    assert answer(model, capsys, *stop)["text"] == ""
    assert len(answer(model, capsys, *stop, "--min-tokens", "5")["token_ids"]) >= 6
