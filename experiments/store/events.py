"""The bulky lists of raw records as Parquet files beside the database.

Owns which parts of a record become files, their names, checksums and removal. A file is written whole beside its place
and renamed, before the row that names it; so a killed process leaves at most files that no row names, and `sweep`
takes those. Knows no SQL.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments.store.columns import NotAsWritten, from_parquet, to_parquet
from experiments.whole_file import write_whole
from ledger.errors import CannotRunError

# Lists of events always become files; other lists of a record from this length on.
EVENTS = ("steps", "requests", "emissions")
LONG = 1_000
# A file that no row names is left alone for this long: its row may be about to be written.
ORPHAN_AGE_S = 3_600.0
# How the name of a folder ends whose run was deleted.
REMOVED = ".removed"
KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,40}")
FILE_NAME = re.compile(r"\d{1,9}-\d{1,9}\.[A-Za-z_][A-Za-z0-9_]{0,40}\.[0-9a-f]{8}\.parquet")


@dataclass(frozen=True)
class EventFile:
    """One list of a record: `name` within the run's folder, SHA-256 and size of the file, how many items."""

    key: str
    name: str
    sha256: str
    bytes: int
    rows: int

    def to_json(self) -> dict[str, Any]:
        """The entry of the record's row."""
        return asdict(self)


class DamagedRecord(CannotRunError):
    """The events of one record can't be read; every other record and run is as it was."""


def set_apart(record: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """(the record with null in the place of its long lists, those lists by key)."""
    lists = {key: value for key, value in record.items() if _is_long(key, value)}
    return {key: None if key in lists else value for key, value in record.items()}, lists


def _is_long(key: Any, value: Any) -> bool:
    if not isinstance(value, list) or not isinstance(key, str) or not KEY.fullmatch(key):
        return False
    return len(value) >= LONG or (key in EVENTS and bool(value))


def write(folder: Path, arm: int, repeat: int, lists: Mapping[str, list[Any]]) -> list[EventFile]:
    """Write the lists of one record into the run's folder; OSError leaves none of them behind."""
    return keep(folder, {(f"{arm}-{repeat}", key): (to_parquet(rows), len(rows)) for key, rows in lists.items()})


def keep(folder: Path, bodies: Mapping[tuple[str, str], tuple[bytes, int]]) -> list[EventFile]:
    """Keep finished files by (place "ARM-REPEAT", key); OSError leaves none of them behind."""
    made: list[EventFile] = []
    try:
        for (place, key), (body, rows) in bodies.items():
            name = f"{place}.{key}.{secrets.token_hex(4)}.parquet"
            made.append(EventFile(key, name, hashlib.sha256(body).hexdigest(), len(body), rows))
            folder.mkdir(parents=True, exist_ok=True)
            # The row that names the file may be on disk before it otherwise, after a power cut.
            write_whole(folder / name, body, lasting=True)
    except BaseException:
        remove(folder, made)
        raise
    return made


def read(folder: Path, files: Iterable[Mapping[str, Any]], where: str) -> dict[str, list[Any]]:
    """The lists of one record by key; FileNotFoundError for a missing file, DamagedRecord (one line) for a changed one.

    where: names the record in that line.
    """
    found: dict[str, list[Any]] = {}
    for file in files:
        body = body_of(folder, file, where)
        try:
            rows = from_parquet(body)
        except NotAsWritten as error:
            raise DamagedRecord(f"{where}: {file['name']} can't be read ({error}); other runs are intact") from None
        found[file["key"]] = rows
    return found


def body_of(folder: Path, file: Mapping[str, Any], where: str) -> bytes:
    """The bytes of one file, checked; errors as `read`."""
    body = (folder / file["name"]).read_bytes()
    if len(body) != file["bytes"] or hashlib.sha256(body).hexdigest() != file["sha256"]:
        raise DamagedRecord(f"{where}: {file['name']} is not as it was written (checksum); other runs are intact")
    return body


def missing(where: str, error: FileNotFoundError) -> DamagedRecord:
    """The line for a file that is not there."""
    return DamagedRecord(f"{where}: {Path(str(error.filename)).name} is missing; other runs are intact")


def remove(folder: Path, files: Iterable[EventFile | Mapping[str, Any]]) -> None:
    """Remove files of a run's folder that no row names any more."""
    for file in files:
        with suppress(OSError):
            (folder / (file.name if isinstance(file, EventFile) else file["name"])).unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Remove all files of a run. It is marked first, so that `sweep` ends what a killed process has begun."""
    marked = folder.with_name(folder.name + REMOVED)
    with suppress(OSError):  # there is none, or one that is marked is not empty yet
        folder.rename(marked)
    shutil.rmtree(marked, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def sweep(root: Path, named: Mapping[str, set[str]], older_than_s: float = ORPHAN_AGE_S) -> int:
    """Remove what no row names: `named` has, by run, the names of its files. Returns how many files went.

    What is younger than `older_than_s` stays, since its row may be about to be written. So does a folder of no run in
    `named`, unless `remove_folder` marked it.
    """
    gone = 0
    before = time.time() - older_than_s
    for folder in _entries(root):
        if folder.name.endswith(REMOVED):
            gone += len(_entries(folder))
            shutil.rmtree(folder, ignore_errors=True)
        for file in _entries(folder) if folder.name in named else ():
            with suppress(OSError):
                if file.name not in named[folder.name] and file.stat().st_mtime < before:
                    file.unlink()
                    gone += 1
    return gone


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
