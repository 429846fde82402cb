"""Arithmetic and warnings of the ledger, which are written in English, in the language of the page.

The sentences are theirs; here are only their words. A phrase that is not listed stays as it is.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path


@cache
def _phrases(lang: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    path = Path(__file__).parent / f"phrases_{lang}.toml"
    if not path.exists():
        return ()
    found = tomllib.loads(path.read_text("utf-8"))
    whole = [(re.compile(english), chinese) for english, chinese in found["sentences"].items()]
    words = sorted(found["words"].items(), key=lambda pair: -len(pair[0]))
    return (
        *whole,
        *((re.compile(rf"(?<![\w.-]){re.escape(english)}(?![\w-]|\.\w)"), chinese) for english, chinese in words),
    )


def in_language(lang: str, text: str) -> str:
    """`text` with every phrase that is known in `lang` replaced, longest first; numbers, units and signs stay."""
    for pattern, replacement in _phrases(lang):
        text = pattern.sub(replacement, text)
    return text
