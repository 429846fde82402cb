"""What may be named from a page: files within chosen folders, and keys in chosen environment variables.

Whoever uses the command line may read what they may read. A page may be used by others, and a run that it starts may
have been made by others (an imported one), so the page's server is started with what it may name; in any other process
nothing is confined. Symbolic links are resolved before a path is judged, and a path outside is refused whether or not
something is there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ledger.errors import InputError

# Set by `trilemma ui` for the page's server; what it starts inherits them.
FILES_ENV, KEYS_ENV = "TRILEMMA_UI_FILES", "TRILEMMA_UI_KEYS"
TRACE = "trace:"


def environment(files: Sequence[Path], keys: Sequence[str]) -> dict[str, str]:
    """The variables that confine a process to folders and to names of environment variables."""
    return {FILES_ENV: os.pathsep.join(str(folder.resolve()) for folder in files), KEYS_ENV: ",".join(keys)}


def require_allowed(spec: Mapping[str, Any]) -> None:
    """InputError for the first path or key of a spec, at any depth, that this process may not name."""
    if FILES_ENV not in os.environ:
        return
    for field, text in _texts(spec, ""):
        if field.rpartition(".")[2] == "key_env":
            require_key(text)
        elif (path := _path_in(text)) is not None and not any(path.is_relative_to(root) for root in _roots()):
            raise InputError(field, text, "a path within the folders of the page (trilemma ui --files DIR adds one)")


def require_key(name: str) -> None:
    """InputError for an environment variable whose value this process may not send to a server."""
    if FILES_ENV in os.environ and name not in os.environ.get(KEYS_ENV, "").split(","):
        raise InputError("key_env", name, "a variable that the page was started with (trilemma ui --key-env NAME)")


def _roots() -> list[Path]:
    from core_engine.model.embedded import cache_root
    from experiments.store.store import data_home

    given = [Path(folder) for folder in os.environ.get(FILES_ENV, "").split(os.pathsep) if folder]
    return [*given, data_home().resolve(), cache_root().resolve()]


def _texts(value: Any, field: str) -> Iterator[tuple[str, str]]:
    """(field, text) of every text in a value, under the name that leads to it."""
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _texts(item, f"{field}.{name}" if field else str(name))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item, field)


def _path_in(text: str) -> Path | None:
    """The path that a text may name, resolved; None for one that names none, or one of the program's own folder.

    What leads out of that folder counts whether or not it is there, else the answer would tell.
    """
    named = text.removeprefix(TRACE).partition(":")[2] if text.startswith(TRACE) else text
    if "://" in named:
        return None
    with suppress(OSError, ValueError, RuntimeError):  # too long, a NUL, no such user: nothing can open it either
        path = Path(named).expanduser()
        resolved = path.resolve()
        own = not path.is_absolute() and resolved.is_relative_to(Path.cwd().resolve())
        return None if own else resolved
    return None
