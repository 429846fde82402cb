"""`trilemma quantize`: exit codes, one JSON object, and a directory that the engine loads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.cli import run
from tests.core_engine.quant.models import make


def test_a_checkpoint_is_written_and_generates_the_same_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make("llama", tmp_path / "model")
    out = tmp_path / "out"
    common = ["--set", f"model={tmp_path / 'model'}", "--set", "dtype=fp32", "--json"]
    assert run(["quantize", "--weights", "w4a16-rtn", "--out", str(out), *common]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["format"] == "compressed-tensors, pack-quantized" and result["quantizing"]["calibration_tokens"] == 0
    ids = []
    for model, weights in ((tmp_path / "model", "w4a16-rtn"), (out, "as-stored")):
        sets = [f"model={model}", f"weights={weights}", "dtype=fp32", "kv_memory_mib=4"]
        options = [word for setting in sets for word in ("--set", setting)]
        assert (
            run(["generate", "--prompt", "Hello there", "--max-tokens", "12", "--ignore-eos", "--json", *options]) == 0
        )
        ids.append(json.loads(capsys.readouterr().out)["token_ids"])
    assert ids[0] == ids[1] and len(set(ids[0])) > 1


@pytest.mark.parametrize(
    "words",
    [
        ["--weights", "none", "--out", "x"],
        ["--weights", "w9", "--out", "x"],
        ["--out", "x"],
        ["--weights", "w8a16", "--out", "x", "--calibration", "nothing.txt"],
        ["--weights", "w4a16-gptq", "--out", "x", "--set", "weight_group=128"],
    ],
)
def test_wrong_input_is_exit_2_and_one_line(
    words: list[str], capsys: pytest.CaptureFixture[str], embedded: None
) -> None:
    assert run(["quantize", *words]) == 2
    caught = capsys.readouterr()
    assert caught.out == "" and caught.err.count("\n") == 1


@pytest.fixture
def embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded model has to be there for a setting that needs it; x is written to a directory of the test's."""
    from core_engine.model.embedded import find_gguf
    from ledger.errors import CannotRunError

    try:
        find_gguf()
    except CannotRunError as error:
        pytest.skip(str(error))
    monkeypatch.chdir(tmp_path)
