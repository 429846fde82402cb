"""Scores that need not be computed twice: which key a score is kept under, and where.

A key names everything a score follows from: the model's files, all settings, the engine's own code, this processor, and
the text itself. So a baseline is computed once, a killed evaluation goes on where it was, and a change to any of these
computes anew.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import core_engine
from core_engine.config import EngineConfig
from core_engine.model.embedded import ENLARGED, find_gguf
from ledger.errors import unknown_name


class Kept(Protocol):
    """Where scores are kept: experiments.store.Store, or InMemory."""

    def scores(self, keys: Sequence[str]) -> dict[str, Any]:
        """What is there under these keys."""

    def keep_scores(self, scores: Mapping[str, Any]) -> None:
        """Keep JSON values under their keys."""


class InMemory:
    """Keeps scores as long as it lives."""

    def __init__(self) -> None:
        self._found: dict[str, Any] = {}

    def scores(self, keys: Sequence[str]) -> dict[str, Any]:
        """What is there under these keys."""
        return {key: self._found[key] for key in keys if key in self._found}

    def keep_scores(self, scores: Mapping[str, Any]) -> None:
        """Keep JSON values under their keys."""
        self._found.update(scores)


def key_of(*parts: Any) -> str:
    """32 hexadecimal digits of anything whose repr says all of it."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def engine_key(config: EngineConfig) -> str:
    """Of all that scores follow from besides the text. CannotRunError or InputError where there is no such model."""
    return key_of(_model_files(config.model), sorted(config.settings().items()), _code(), _processor())


def _model_files(model: str) -> list[tuple[str, int, int]]:
    """Names, sizes and times of change: reading gigabytes to compare them would take longer than to score."""
    path = find_gguf() if model in ("embedded", ENLARGED) else Path(model).expanduser()
    if not path.exists():
        accepted = f"embedded, {ENLARGED}, or the path of a model directory or .gguf file"
        raise unknown_name("model", model, ("embedded", ENLARGED), accepted)
    found = sorted(path.iterdir()) if path.is_dir() else [path]
    return [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in found if file.is_file()]


@cache
def _code() -> str:
    """The engine's source: scores of other kernels are other scores."""
    root = Path(core_engine.__file__).parent
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(path for suffix in ("py", "h", "cpp", "txt") for path in root.rglob(f"*.{suffix}")):
        digest.update(file.relative_to(root).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()


def _processor() -> str:
    from core_engine.environment import cpu_flags

    return key_of(platform.machine(), sorted(cpu_flags()))
