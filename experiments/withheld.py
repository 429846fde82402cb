"""Taking secrets out of what leaves this machine: run files and reports.

Owns which names and which texts count as secret. The name of an environment variable that holds a key is no secret.
"""

from __future__ import annotations

import re
from typing import Any

WITHHELD = "[withheld]"
NAMES = re.compile(
    r"(.*[-_])?(api[-_]?key|apikey|authorization|password|passwd|secret|access[-_]?token|auth[-_]?token|bearer|"
    r"bearer[-_]?token|hf[-_]?token|credentials?|private[-_]?key)",
    re.IGNORECASE,
)
TEXTS = (
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]*(?=@)"),  # user:password@ of an address
    re.compile(r"(?<=://)[^/\s:@]+(?=@)"),
    re.compile(r"(?i)(?<=bearer )[^\s\"',;]+"),
    re.compile(r"(?i)(?<=[?&]key=)[^&\s\"']+|(?<=[?&]token=)[^&\s\"']+|(?<=[?&]api_key=)[^&\s\"']+"),
    re.compile(r"(?i)(?<=api[-_]key[:=])\s*[^\s\"',;&]+"),
    re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}|\bhf_[A-Za-z0-9]{16,}|\bnvapi-[A-Za-z0-9_-]{16,}"),
)


def without_secrets(value: Any) -> tuple[Any, list[str]]:
    """(the JSON value without secrets, the paths of what was withheld, as spec.settings.api_key)."""
    found: list[str] = []
    return _clean(value, "", found), found


def _clean(value: Any, path: str, found: list[str]) -> Any:
    if isinstance(value, dict):
        return {key: _clean_field(str(key), item, f"{path}.{key}" if path else str(key), found)
                for key, item in value.items()}  # fmt: skip
    if isinstance(value, list):
        return [_clean(item, f"{path}[{i}]", found) for i, item in enumerate(value)]
    if isinstance(value, str):
        text = value
        for pattern in TEXTS:
            text = pattern.sub(WITHHELD, text)
        if text != value:
            found.append(path)
        return text
    return value


def _clean_field(name: str, value: Any, path: str, found: list[str]) -> Any:
    if value and isinstance(value, str | list | dict) and NAMES.fullmatch(name):
        found.append(path)
        return WITHHELD
    return _clean(value, path, found)
