"""Reading a user's text file: a regular one, of a bounded size, in UTF-8. Nothing of it is ever executed."""

from __future__ import annotations

from pathlib import Path

from ledger.errors import InputError

MOST_TEXT_BYTES = 64 * 2**20
MOST_SETTINGS_BYTES = 2**20  # of a file of settings, which a person writes


def read_text(field: str, path: Path, most_bytes: int = MOST_TEXT_BYTES) -> str:
    """A file's text. InputError for one that is larger, not UTF-8, or no regular file (a device may never end), OSError
    for one that is not there or can't be read."""
    if path.exists() and not path.is_file():
        raise InputError(field, str(path), "a regular file")
    with path.open("rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise InputError(field, str(path), f"a file of at most {most_bytes // 2**20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(field, str(path), f"a text file in UTF-8 (byte {error.start} is none)") from None
