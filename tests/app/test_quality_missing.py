"""The red sentence of a comparison that can change outputs and has no quality."""

from __future__ import annotations

from typing import Any

import pytest

from app.components import results
from app.i18n import translate
from app.i18n.phrases import in_language

MISSING = {"measured": False, "reason": "it was skipped", "mean_logprob": {"baseline": None, "candidate": None}}
MEASURED = {"measured": True, "reason": None, "mean_logprob": {"baseline": -1.0, "candidate": -1.0}}


@pytest.mark.parametrize(
    ("variable", "quality", "shown"),
    [("dtype", MISSING, True), ("dtype", None, True), ("dtype", MEASURED, False), ("threads", MISSING, False)],
)
@pytest.mark.parametrize(
    ("lang", "words"), [("en", ":red[Quality not measured: it was skipped"), ("zh", ":red[未测量质量：已跳过")]
)
def test_it_is_there_only_where_outputs_can_change_unmeasured(
    lang: str, words: str, variable: str, quality: Any, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(results.st, "markdown", drawn.append)
    monkeypatch.setattr(results, "t", lambda key, **values: translate(lang, key, **values))
    monkeypatch.setattr(results, "translated", lambda text: in_language(lang, text))
    results.quality_sentence({"variable": variable, "quality": quality})
    assert [text.startswith(words) for text in drawn] == [True] * shown
