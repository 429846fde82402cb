"""Taking secrets out of what leaves this machine: run files and reports.

Owns which names and which texts count as secret. The name of an environment variable that holds a key is no secret.
"""

from __future__ import annotations

import re
from typing import Any

WITHHELD = "[withheld]"
NAMES = re.compile(
    r"(.*[-_])?(api[-_]?keys?|authorization|password|passwd|passphrase|secret|access[-_]?token|auth[-_]?token|bearer|"
    r"bearer[-_]?token|hf[-_]?token|credentials?|private[-_]?key|access[-_]?key|(set[-_]?)?cookies?)",
    re.IGNORECASE,
)
# Each keeps what its first group has found.
TEXTS = (
    re.compile(r"(://)[^/\s]+(?=@)"),  # user:password@ of an address; a password may have an @ of its own
    re.compile(r"(?i)(\bbearer )[^\s\"',;]+"),
    re.compile(r"(?i)(\bauthorization[\"']?\s*[:=]\s*[\"']?(?:basic|digest|token|key)\s+)[^\s\"',;]+"),
    re.compile(
        r"(?i)([?&](?:[\w-]*[-_])?(?:key|apikey|token|secret|password|passwd|pwd|sig|signature|auth)=)[^&#\s\"']+"
    ),
    re.compile(
        r"(?i)(\b(?:api[-_]?key|access[-_]?token|auth[-_]?token|password|passwd|client[-_]?secret)[\"']?\s*[:=]\s*"
        r"[\"']?)[^\s\"',;&]+"
    ),
    re.compile(
        r"()\b(?:(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{16,}|nvapi-[A-Za-z0-9_-]{16,}|gh[opsu]_[A-Za-z0-9]{20,}"
        r"|AIza[A-Za-z0-9_-]{20,}|AKIA[A-Z0-9]{16})"
    ),
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
            text = pattern.sub(rf"\1{WITHHELD}", text)
        if text != value:
            found.append(path)
        return text
    return value


def _clean_field(name: str, value: Any, path: str, found: list[str]) -> Any:
    if value and isinstance(value, str | list | dict) and NAMES.fullmatch(name):
        found.append(path)
        return WITHHELD
    return _clean(value, path, found)
