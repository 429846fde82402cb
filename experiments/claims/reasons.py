"""What the checks of claims say, which is written in English, in the language of the reader.

The sentences are theirs; here are only their words (reasons_zh.toml). A phrase that is not listed stays as it is.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from experiments.claims.catalogue import claim_texts


@cache
def _reasons(lang: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    path = Path(__file__).with_name(f"reasons_{lang}.toml")
    if not path.exists():
        return ()
    found = tomllib.loads(path.read_text("utf-8"))["phrases"]
    return tuple((re.compile(english), chinese) for english, chinese in found)


def reason_in_language(lang: str, text: str) -> str:
    """`text` with every phrase that is known in `lang` replaced, in their order; numbers, units and signs stay."""
    for pattern, replacement in _reasons(lang):
        text = pattern.sub(replacement, text)
    return text


def result_in_language(lang: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """A check's result with its statement, trap and reason in `lang`; the verdict and the evidence stay."""
    if lang == "en":
        return dict(result)
    own, reason = result.get(f"reason_{lang}"), str(result.get("reason") or "")
    told: dict[str, Any] = {**result, "reason": own or reason_in_language(lang, reason)}
    texts = claim_texts(lang).get(str(result.get("id")))
    return told if texts is None else told | {"statement": texts.statement, "trap": texts.trap}
