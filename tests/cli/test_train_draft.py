"""`trilemma train-draft`: exit codes, one JSON object, and a draft that the engine generates with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.cli import run
from tests.core_engine.conftest import make_llama


def test_a_trained_draft_is_used_by_generate_and_changes_no_id(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRILEMMA_CACHE", str(tmp_path / "cache"))
    make_llama(tmp_path / "model")
    text, out = tmp_path / "text.txt", tmp_path / "draft.safetensors"
    text.write_text("What a model repeats, a draft may guess. " * 50)
    model = ["--set", f"model={tmp_path / 'model'}", "--set", "dtype=fp32"]
    words = ["train-draft", "draft", "--text", str(text), "--steps", "2", "--out", str(out), "--json", *model]
    assert run(words) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["bytes"] == out.stat().st_size and result["cost"]["steps"] == 2
    assert result["acceptance"]["tokens_per_pass"] >= 1 and len(result["acceptance"]["alpha_by_position"]) == 4
    ids = []
    for sets in ([], ["speculation=draft", f"draft_model={out}", "draft_control=fixed"]):
        options = [word for setting in [*sets, "kv_memory_mib=4"] for word in ("--set", setting)]
        prompt = ["generate", "--prompt", "Hello there", "--max-tokens", "16", "--ignore-eos", "--json"]
        assert run([*prompt, *model, *options]) == 0
        ids.append(json.loads(capsys.readouterr().out)["token_ids"])
    assert ids[0] == ids[1]
    assert run(["generate", "--prompt", "x", *model, "--set", "speculation=medusa"]) == 2
    assert "trilemma train-draft medusa" in capsys.readouterr().err
    other = ["--set", "speculation=medusa", "--set", f"draft_model={out}"]
    assert run(["generate", "--prompt", "x", *model, *other]) == 2
    assert "a draft draft" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["lookahead"], "kind"),
        (["eagle", "--steps", "0"], "steps"),
        (["eagle", "--steps", "many"], "steps"),
        (["eagle", "--prompts", "0"], "prompts"),
        (["eagle", "--text", "x.txt"], "text"),
        (["draft", "--prompts", "5"], "prompts"),
        (["draft", "--seed", "-1"], "seed"),
        (["eagle", "--exit-layers", "2"], "exit_layers"),
        (["self", "--exit-layers", "few"], "exit_layers"),
        (["draft", "--out", "x.bin"], "out"),
        (["draft", "--text", "nothing.txt"], "text"),
        (["eagle", "--set", "model=nowhere"], "model"),
    ],
)
def test_wrong_input_is_exit_2_and_one_line(words: list[str], field: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train-draft", *words]) == 2
    caught = capsys.readouterr()
    assert caught.out == ""
    assert caught.err.startswith(f"trilemma: {field}") and caught.err.count("\n") == 1
