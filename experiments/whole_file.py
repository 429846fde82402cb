"""Writing a file whole or not at all: beside its place, then renamed. A full disk or a kill leaves what was there."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_whole(path: Path, body: bytes, *, lasting: bool = False) -> None:
    """Write `body` to `path`; OSError leaves the file that was there, if any, and nothing beside it.

    lasting: it is on the disk when this returns, also after a power cut. What is no ordinary file (a pipe, a terminal)
    is written to as it is.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(body)
        return
    place = path.resolve()  # a link stays one
    beside = _beside(place)
    try:
        with beside.open("wb") as file:
            file.write(body)
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        beside.replace(place)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def check_place(path: Path) -> None:
    """OSError when `write_whole` could not write there; nothing is changed."""
    if path.exists() and not path.is_file():
        with path.open("ab"):
            return
    beside = _beside(path.resolve())
    beside.open("xb").close()
    beside.unlink()


def _beside(place: Path) -> Path:
    return place.with_name(f".{place.name}.{secrets.token_hex(4)}.part")
