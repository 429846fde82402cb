"""The example of the engine's Python interface runs as it is printed."""

from __future__ import annotations

import contextlib
import io

import pytest

from core_engine.model.embedded import find_gguf
from ledger.errors import CannotRunError
from tests.docs.markdown import ROOT, blocks


@pytest.mark.slow
def test_the_example_streams_one_answer_and_gives_two_for_each_prompt() -> None:
    try:
        find_gguf()
    except CannotRunError as error:
        pytest.skip(str(error))
    example = next(
        block.text for block in blocks((ROOT / "docs" / "cli.md").read_text("utf-8")) if block.language == "python"
    )
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(compile(example, "docs/cli.md", "exec"), {})
    lines = shown.getvalue().splitlines()
    assert "Paris" in lines[0] and len(lines) >= 5
