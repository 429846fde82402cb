"""One run as one file to give away: a ZIP of JSON and Parquet with a manifest of checksums.

Owns the format and everything that is asked of a file before any of it is stored: nothing in it is trusted, nothing in
it is executed, no name in it becomes a path. Secrets never go in (withheld.py).

    manifest.json              format, version, run, SHA-256 and size of the other files, records, what was withheld
    run.json                   the run: kind, spec, result, state, code, environment
    records/ARM-REPEAT.json    a record with null for its long lists
    events/ARM-REPEAT.KEY.parquet  those lists
"""

from __future__ import annotations

import hashlib
import json
import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from experiments.kinds import kind_of
from experiments.store import events
from experiments.store.columns import NotAsWritten, from_parquet, to_parquet
from experiments.store.store import STATES, Run, Store, pack
from experiments.version import version
from experiments.withheld import without_secrets
from experiments.workloads.builtin import WORKLOADS
from ledger.errors import CannotRunError, InputError

FORMAT, VERSION = "trilemma-run", 1
SUFFIX = ".trilemma.zip"
MANIFEST, RUN = "manifest.json", "run.json"
NAMES = re.compile(
    r"run\.json|records/\d{1,6}-\d{1,6}\.json|events/\d{1,6}-\d{1,6}\.[A-Za-z_][A-Za-z0-9_]{0,40}\.parquet"
)
ENDED = ("done", "failed", "cancelled")
# What an import takes at most: bytes in all, bytes of one JSON file, files, and unpacked bytes of one Parquet file.
MOST_BYTES, MOST_JSON_BYTES, MOST_FILES, MOST_EVENT_BYTES = 2**30, 2**28, 20_000, 2**31
# What the standard library raises for a ZIP that is damaged, whichever way it was packed.
BROKEN = (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, NotImplementedError, RuntimeError, zlib.error,
          lzma.LZMAError, struct.error, ValueError)  # fmt: skip
# Fields of a spec that name files, which only the machine has that the run was made on.
OF_FILES = ("workload", "items", "items_hash", "slices", "texts")
GIVEN = ("id", "kind", "state", "created_at", "updated_at", "spec", "result", "error", "code", "version", "environment")
RUN_ID = re.compile(r"[0-9a-f]{8}")


def export_run(run_id: str, store: Store, to: Path | IO[bytes]) -> dict[str, Any]:
    """Write a run that has ended, with all its records, as one file; returns its manifest.

    InputError for a run that is unknown or has not ended, DamagedRecord when a record can't be read, CannotRunError
    when the file can't be written.
    """
    run = store.get_run(run_id)
    if run.state not in ENDED:
        raise InputError("run", run_id, "a run that has ended")
    told, withheld = without_secrets({name: getattr(run, name) for name in GIVEN})
    manifest: dict[str, Any] = {
        "format": FORMAT, "version": VERSION, "written_by": version(), "run_id": run.id, "kind": run.kind,
        "files": {}, "records": [], "withheld": [f"run.{path}" for path in withheld],
    }  # fmt: skip
    # A file is written beside its place, so that one that can't be finished leaves what was there.
    beside = to.with_name(f".{to.name}.part") if isinstance(to, Path) else to
    try:
        with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive:
            _add(archive, manifest, RUN, _json(told))
            for arm, repeat in store.record_keys(run_id):
                _add_record(archive, manifest, store, run_id, arm, repeat)
            archive.writestr(MANIFEST, _json(manifest))
        if isinstance(to, Path) and isinstance(beside, Path):
            beside.replace(to)
    except OSError as error:
        raise CannotRunError(f"{to} can't be written: {error.strerror or error}") from None
    finally:
        if isinstance(beside, Path):
            beside.unlink(missing_ok=True)
    return manifest


def _add_record(
    archive: zipfile.ZipFile, manifest: dict[str, Any], store: Store, run_id: str, arm: int, repeat: int
) -> None:
    place = f"{arm}-{repeat}"
    rest, files = store.record_parts(run_id, arm, repeat)
    clean, withheld = without_secrets(rest)
    listed = []
    for file in files:
        body = store.event_file(run_id, arm, repeat, file)
        rows, more = without_secrets(from_parquet(body))
        name = f"events/{place}.{file['key']}.parquet"
        _add(archive, manifest, name, to_parquet(rows) if more else body, zipfile.ZIP_STORED)
        listed.append({"key": file["key"], "name": name, "rows": file["rows"]})
        withheld += [f"{file['key']}{path}" for path in more]
    _add(archive, manifest, f"records/{place}.json", _json(clean))
    manifest["records"].append({"arm": arm, "repeat": repeat, "events": listed})
    manifest["withheld"] += [f"records/{place}.{path}" for path in withheld]


def _add(
    archive: zipfile.ZipFile, manifest: dict[str, Any], name: str, body: bytes, how: int = zipfile.ZIP_DEFLATED
) -> None:
    archive.writestr(name, body, how)
    manifest["files"][name] = {"sha256": hashlib.sha256(body).hexdigest(), "bytes": len(body)}


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def import_run(source: Path | IO[bytes], store: Store) -> Run:
    """Check a file of `export_run` and store its run under its own id; returns it.

    InputError (one line that says what is wrong) for a file that is not such a file, is damaged, too large or of a
    newer version, or whose run is stored already. Nothing is stored then.
    """
    try:
        with zipfile.ZipFile(source) as archive:
            return _Import(archive).into(store)
    except (InputError, CannotRunError):
        raise
    except BROKEN as error:
        raise _refused(str(error).splitlines()[0] if str(error) else "it is damaged") from None
    except FileNotFoundError:
        raise InputError("file", str(source), "a file that is there") from None
    except OSError as error:
        raise InputError("file", str(source), f"a file that can be read ({error.strerror or error})") from None


def _refused(why: str) -> InputError:
    return InputError("file", why, f"a whole {SUFFIX} file that `trilemma runs export` has written")


def _check(kind: str, spec: Mapping[str, Any]) -> None:
    """Check a spec. The files that it names need not be here: it is shown all the same, and told when it is run."""
    try:
        kind_of(kind).check(spec)
    except (InputError, CannotRunError):
        elsewhere = {name: value for name, value in spec.items() if name not in OF_FILES}
        if len(elsewhere) == len(spec) or not _names_a_file(spec):
            raise
        kind_of(kind).check(elsewhere)


def _names_a_file(spec: Mapping[str, Any]) -> bool:
    named = [spec.get("workload"), *(spec.get("items") or ()), *(spec.get("texts") or ())]
    return any(isinstance(name, str) and name not in WORKLOADS and Path(name).suffix != "" for name in named)


class _Import:
    """One opened file; every method raises InputError for what is wrong with it."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._entries = self._checked_entries()
        self._manifest = self._read_manifest()

    def into(self, store: Store) -> Run:
        run = self._run()
        # Every file is read and checked before the first is stored.
        records = [self._record(one) for one in self._list("records")]
        if len({(arm, repeat) for arm, repeat, _, _ in records}) != len(records):
            raise _refused("a record is there twice")
        named = {RUN, *(f"records/{arm}-{repeat}.json" for arm, repeat, _, _ in records)}
        named |= {f"events/{arm}-{repeat}.{key}.parquet" for arm, repeat, _, lists in records for key in lists}
        if named != set(self._files):
            raise _refused(f"{min(named ^ set(self._files))} belongs to no record")

        def keep(folder: Path) -> list[tuple[int, int, bytes, list[Any]]]:
            kept = []
            for arm, repeat, rest, lists in records:
                bodies = {(f"{arm}-{repeat}", key): held for key, held in lists.items()}
                files = events.keep(folder, bodies)
                kept.append((arm, repeat, pack(rest), [file.to_json() for file in files]))
            return kept

        store.insert_run(run, keep)
        return store.get_run(run.id)

    def _checked_entries(self) -> dict[str, zipfile.ZipInfo]:
        infos = self._archive.infolist()
        if len(infos) > MOST_FILES:
            raise _refused(f"{len(infos):,} files, more than {MOST_FILES:,}")
        if sum(info.file_size for info in infos) > MOST_BYTES:
            raise _refused(f"more than {MOST_BYTES:,} bytes unpacked")
        found: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            name = info.filename
            if name != MANIFEST and not NAMES.fullmatch(name):
                raise _refused(f"a file named {name[:80]!r} in it")
            if name in found:
                raise _refused(f"{name} is in it twice")
            if not name.endswith(".parquet") and info.file_size > MOST_JSON_BYTES:
                raise _refused(f"{name} has more than {MOST_JSON_BYTES:,} bytes")
            found[name] = info
        if MANIFEST not in found:
            raise _refused(f"no {MANIFEST} in it")
        return found

    def _read_manifest(self) -> dict[str, Any]:
        manifest = self._object(self._body(MANIFEST), MANIFEST)
        if manifest.get("format") != FORMAT:
            raise _refused("its manifest is of another format")
        if manifest.get("version") != VERSION:
            raise InputError("file", f"version {str(manifest.get('version'))[:20]}",
                             f"version {VERSION} of the run file, which this Trilemma ({version()}) reads")  # fmt: skip
        files = manifest.get("files")
        if not isinstance(files, dict) or set(files) != set(self._entries) - {MANIFEST}:
            raise _refused("the files in it are not those of its manifest")
        self._files: Mapping[str, Any] = files
        return manifest

    def _list(self, name: str) -> list[Any]:
        found = self._manifest.get(name)
        if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
            raise _refused(f"{name} of its manifest are no list")
        return found

    def _body(self, name: str) -> bytes:
        info = self._entries[name]
        with self._archive.open(info) as file:
            body = file.read(info.file_size + 1)
        if len(body) != info.file_size:
            raise _refused(f"{name} has not the size that it states")
        if name != MANIFEST:
            told = self._files[name]
            if not isinstance(told, dict) or told.get("sha256") != hashlib.sha256(body).hexdigest():
                raise _refused(f"{name} does not have the checksum of the manifest")
        return body

    def _object(self, body: bytes, name: str) -> dict[str, Any]:
        def no_constant(text: str) -> Any:
            raise ValueError(text)

        try:
            found = json.loads(body, parse_constant=no_constant)
        except (ValueError, RecursionError):
            raise _refused(f"{name} is no JSON") from None
        if not isinstance(found, dict):
            raise _refused(f"{name} is no JSON object")
        return found

    def _run(self) -> Run:
        told = self._object(self._body(RUN), RUN)
        if set(told) != set(GIVEN):
            raise _refused(f"{RUN} has not the fields {', '.join(GIVEN)}")
        for name in ("id", "kind", "state", "created_at", "updated_at"):
            if not isinstance(told[name], str):
                raise _refused(f"{name} of {RUN} is no text")
        for name, kind in (("error", str), ("code", str), ("version", str), ("result", dict), ("environment", dict)):
            if told[name] is not None and not isinstance(told[name], kind):
                raise _refused(f"{name} of {RUN} is of another type")
        if not RUN_ID.fullmatch(told["id"]) or told["id"] != self._manifest.get("run_id"):
            raise _refused("the run's id is none, or not that of the manifest")
        if told["state"] not in ENDED or told["state"] not in STATES:
            raise InputError("state", told["state"], ", ".join(ENDED))
        for name in ("created_at", "updated_at"):
            try:
                if datetime.fromisoformat(told[name]).tzinfo is None:
                    raise ValueError
            except ValueError:
                raise _refused(f"{name} of {RUN} is no time with a zone") from None
        if not isinstance(told["spec"], dict):
            raise _refused(f"the spec of {RUN} is no object")
        try:
            _check(told["kind"], told["spec"])
        except (InputError, CannotRunError):
            raise
        except Exception as error:  # a spec of another shape than any check expects
            raise _refused(f"the spec of {RUN} is not one of a {told['kind']} ({type(error).__name__})") from None
        return Run(**told)

    def _record(self, entry: Mapping[str, Any]) -> tuple[int, int, dict[str, Any], dict[str, tuple[bytes, int]]]:
        arm, repeat, listed = entry.get("arm"), entry.get("repeat"), entry.get("events")
        if type(arm) is not int or type(repeat) is not int or not isinstance(listed, list):
            raise _refused("a record of its manifest has no arm, repeat or events")
        name = f"records/{arm}-{repeat}.json"
        if name not in self._files:
            raise _refused(f"no {name} in it")
        rest = self._object(self._body(name), name)
        lists: dict[str, tuple[bytes, int]] = {}
        for file in listed:
            key = file.get("key") if isinstance(file, dict) else None
            where = f"events/{arm}-{repeat}.{key}.parquet"
            if where not in self._files or key not in rest or rest[key] is not None or key in lists:
                raise _refused(f"{where[:80]} is not in it, or its record has no place for it")
            body = self._body(where)
            try:
                rows = from_parquet(body, most_bytes=MOST_EVENT_BYTES)
            except NotAsWritten as error:
                raise _refused(f"{where}: {error}") from None
            if len(rows) != file.get("rows"):
                raise _refused(f"{where} has not as many rows as its manifest says")
            lists[key] = (body, len(rows))
        return arm, repeat, rest, lists
