"""A run as one file: everything comes back, secrets stay here, and nothing that was tampered with is stored."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.run_file import export_run, import_run
from experiments.spec import BenchSpec, CompareSpec
from experiments.store import DamagedRecord, Run, Store
from experiments.store.columns import to_parquet
from experiments.withheld import WITHHELD, without_secrets
from ledger.errors import CannotRunError, InputError
from tests.experiments.records import contiguous_record

RESULT = {"arms": [{"value": "static", "metrics": {"x": 1}}, {"value": "continuous"}], "variable": "batching"}
Files = dict[str, bytes]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "here" / "runs.sqlite3")


@pytest.fixture
def there(tmp_path: Path) -> Store:
    return Store(tmp_path / "there" / "runs.sqlite3")


@pytest.fixture
def run_id(store: Store) -> str:
    made = {"state": "done", "code": "c0de", "version": "1", "environment": {"cpu": "a processor"}}
    run_id = store.create_run("compare", CompareSpec().to_dict(), **made)
    store.update_run(run_id, result=RESULT)
    for arm in (0, 1):
        store.add_record(run_id, arm, 1, {**contiguous_record(), "note": "结论"})
    return run_id


def exported(run_id: str, store: Store) -> Files:
    file = io.BytesIO()
    export_run(run_id, store, file)
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(files: Files, *, renew: bool = True, **entries: Any) -> io.BytesIO:
    """The files as one; with `renew` the manifest's checksums are those of what is in it."""
    manifest = json.loads(files["manifest.json"])
    if renew:
        manifest["files"] = {
            name: {"sha256": hashlib.sha256(body).hexdigest(), "bytes": len(body)}
            for name, body in files.items()
            if name != "manifest.json"
        }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in files.items():
            archive.writestr(name, json.dumps({**manifest, **entries}) if name == "manifest.json" else body)
    made.seek(0)
    return made


def changed(files: Files, name: str, change: Callable[[Any], None]) -> Files:
    found = json.loads(files[name])
    change(found)
    return {**files, name: json.dumps(found).encode()}


def test_a_run_comes_back_whole_in_another_store(run_id: str, store: Store, there: Store, tmp_path: Path) -> None:
    path = tmp_path / f"{run_id}.trilemma.zip"
    manifest = export_run(run_id, store, path)
    assert manifest["withheld"] == []
    run = import_run(path, there)
    assert isinstance(run, Run) and run.id == run_id
    before = store.get_run(run_id)
    for name in ("kind", "state", "created_at", "spec", "result", "code", "version", "environment", "spec_hash"):
        assert getattr(run, name) == getattr(before, name), name
    assert run.pid is None and there.ahead_of(run_id) == []
    assert there.records(run_id) == store.records(run_id)
    assert [(arm.variable, arm.value) for arm in there.arms(run_id)] == [
        ("batching", "static"),
        ("batching", "continuous"),
    ]
    assert exported(run_id, there) == exported(run_id, store)


def test_a_run_that_is_there_already_is_told(run_id: str, store: Store, there: Store) -> None:
    files = exported(run_id, store)
    with pytest.raises(InputError, match="not stored here yet"):
        import_run(packed(files), store)
    assert len(store.records(run_id)) == 2
    import_run(packed(files), there)
    with pytest.raises(InputError, match=run_id):
        import_run(packed(files), there)
    there.delete_run(run_id)
    assert import_run(packed(files), there).id == run_id


@pytest.mark.parametrize("state", ["queued", "running"])
def test_a_run_that_has_not_ended_is_not_exported(store: Store, state: str) -> None:
    run_id = store.create_run("bench", BenchSpec().to_dict(), state=state)
    with pytest.raises(InputError, match="ended"):
        export_run(run_id, store, io.BytesIO())


def test_a_place_that_cannot_be_written_is_one_line(run_id: str, store: Store, tmp_path: Path) -> None:
    with pytest.raises(CannotRunError) as error:
        export_run(run_id, store, tmp_path / "nowhere" / "x.zip")
    assert "\n" not in str(error.value)


def test_a_damaged_record_leaves_the_file_that_was_there(run_id: str, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "a.trilemma.zip"
    path.write_bytes(b"before")
    next((store.path.parent / "events").rglob("*.parquet")).unlink()
    with pytest.raises(DamagedRecord):
        export_run(run_id, store, path)
    assert path.read_bytes() == b"before" and [item.name for item in tmp_path.glob("*.part")] == []


SECRETS = {
    "api_key": "hunter2-plain",
    "headers": {"Authorization": "Bearer abc.def-ghi"},
    "endpoint": "https://me:pass-word@host:8000/v1?api_key=q1w2e3r4",
    "text": "curl -H 'Authorization: Bearer zzz-yyy' with sk-abcdefghijklmnopqrstuv",
    "max_tokens": 7,
    "token_ids": [1, 2],
    "api_key_env": "MY_KEY",
    "password": "",
}
NEVER = ("hunter2", "abc.def-ghi", "pass-word", "q1w2e3r4", "zzz-yyy", "sk-abcdef")


def test_secrets_are_never_inside(store: Store) -> None:
    run_id = store.create_run("bench", {**BenchSpec().to_dict(), "note": SECRETS}, state="failed")
    store.update_run(run_id, error=f"refused {SECRETS['endpoint']}", result=SECRETS)
    store.add_record(run_id, 0, 1, {"environment": SECRETS, "requests": [{"id": "r0", "error": SECRETS["text"]}]})
    file = io.BytesIO()
    manifest = export_run(run_id, store, file)
    with zipfile.ZipFile(file) as archive:
        inside = [archive.read(name) for name in archive.namelist()]
    for secret in NEVER:
        assert not any(secret.encode() in body for body in inside), secret
    assert "run.spec.note.api_key" in manifest["withheld"]
    assert "records/0-1.requests[0].error" in manifest["withheld"]


def test_what_is_no_secret_stays() -> None:
    clean, found = without_secrets(SECRETS)
    assert clean["max_tokens"] == 7 and clean["token_ids"] == [1, 2] and clean["api_key_env"] == "MY_KEY"
    assert clean["endpoint"].startswith(f"https://{WITHHELD}@host:8000/v1?api_key={WITHHELD}")
    assert sorted(found) == ["api_key", "endpoint", "headers.Authorization", "text"]


# -- what an import refuses -----------------------------------------------------------------------------------------


def _set(path: str, value: Any) -> Callable[[Any], None]:
    def change(found: Any) -> None:
        *way, last = path.split(".")
        for name in way:
            found = found[int(name) if name.isdigit() else name]
        found[last] = value

    return change


WRONG: dict[str, Callable[[Files], io.BytesIO]] = {
    "checksum": lambda f: packed({**f, "run.json": f["run.json"].replace(b"static", b"statik")}, renew=False),
    "events changed": lambda f: packed({**f, _events(f): f[_events(f)][:-4] + b"PAR2"}),
    "events of another shape": lambda f: packed({**f, _events(f): to_parquet([{"x": 1}])}),
    "no manifest": lambda f: _zip({k: v for k, v in f.items() if k != "manifest.json"}),
    "a newer version": lambda f: packed(f, version=2),
    "another format": lambda f: packed(f, format="other"),
    "manifest is a list": lambda f: _zip({**f, "manifest.json": b"[]"}),
    "manifest is no JSON": lambda f: _zip({**f, "manifest.json": b"{"}),
    "path traversal": lambda f: packed({**f, "../evil.json": b"{}"}),
    "absolute path": lambda f: packed({**f, "/etc/evil": b"{}"}),
    "backslashes": lambda f: packed({**f, "events\\..\\evil.parquet": b"{}"}),
    "a pickle": lambda f: packed({**f, "records/0-1.pkl": b"x"}),
    "a file beside": lambda f: packed({**f, "records/7-7.json": b"{}"}),
    "a file is missing": lambda f: packed({k: v for k, v in f.items() if k != "records/0-1.json"}),
    "in the manifest only": lambda f: packed({k: v for k, v in f.items() if k != "records/0-1.json"}, renew=False),
    "another id": lambda f: packed(changed(f, "run.json", _set("id", "deadbeef"))),
    "an id that is a path": lambda f: packed(changed(f, "run.json", _set("id", "../../aa")), run_id="../../aa"),
    "an unknown kind": lambda f: packed(changed(f, "run.json", _set("kind", "nope"))),
    "a running run": lambda f: packed(changed(f, "run.json", _set("state", "running"))),
    "a wrong spec": lambda f: packed(changed(f, "run.json", _set("spec.values", ["static"]))),
    "a spec of another shape": lambda f: packed(changed(f, "run.json", _set("spec.settings", [1, 2]))),
    "a time that is none": lambda f: packed(changed(f, "run.json", _set("created_at", "yesterday"))),
    "a result that is a list": lambda f: packed(changed(f, "run.json", _set("result", [1]))),
    "a field more": lambda f: packed(changed(f, "run.json", _set("pid", 1))),
    "not a number": lambda f: packed({**f, "run.json": f["run.json"].replace(b'"x":1', b'"x":NaN')}),
    "records no list": lambda f: packed(f, records={}),
    "a record twice": lambda f: packed(f, records=json.loads(f["manifest.json"])["records"] * 2),
    "an arm that is text": lambda f: packed(f, records=[{"arm": "../0", "repeat": 1, "events": []}]),
    "cut off": lambda f: io.BytesIO(packed(f).getvalue()[:-40]),
    "no ZIP": lambda f: io.BytesIO(b"hello" * 100),
    "nothing": lambda f: io.BytesIO(b""),
}


def _events(files: Files) -> str:
    return min(name for name in files if name.startswith("events/"))


def _zip(files: Files) -> io.BytesIO:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    made.seek(0)
    return made


@pytest.fixture
def files(run_id: str, store: Store) -> Files:
    return exported(run_id, store)


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_file_is_refused_in_one_line_and_nothing_is_stored(wrong: str, files: Files, there: Store) -> None:
    assert import_run(packed(files), there).state == "done"  # it is the change that is refused
    (run,) = there.list_runs()
    there.delete_run(run.id)
    with pytest.raises(InputError) as error:
        import_run(WRONG[wrong](files), there)
    assert "\n" not in str(error.value) and len(str(error.value)) < 400
    assert there.list_runs() == []
    assert not any(path.is_file() for path in (there.path.parent / "events").rglob("*"))


@pytest.mark.parametrize(("name", "value"), [("MOST_BYTES", 1000), ("MOST_JSON_BYTES", 100), ("MOST_FILES", 3),
                                             ("MOST_EVENT_BYTES", 10)])  # fmt: skip
def test_a_file_that_is_too_large_is_refused(
    files: Files, there: Store, monkeypatch: pytest.MonkeyPatch, name: str, value: int
) -> None:
    monkeypatch.setattr(f"experiments.run_file.{name}", value)
    with pytest.raises(InputError):
        import_run(packed(files), there)
    assert there.list_runs() == []


def test_a_file_that_is_not_there_is_said(there: Store, tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.zip", tmp_path):
        with pytest.raises(InputError) as error:
            import_run(path, there)
        assert "\n" not in str(error.value)


def test_a_file_damaged_inside_is_refused_in_one_line(files: Files, there: Store) -> None:
    """What is packed does not unpack: another error than a wrong checksum."""
    whole = packed(files).getvalue()
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        start = archive.getinfo("run.json").header_offset + 30 + len("run.json")
    spoiled = whole[:start] + bytes(byte ^ 0xFF for byte in whole[start : start + 20]) + whole[start + 20 :]
    with pytest.raises(InputError) as error:
        import_run(io.BytesIO(spoiled), there)
    assert error.value.field == "file" and there.list_runs() == []


def test_a_run_of_a_trace_comes_to_a_machine_without_the_trace(store: Store, there: Store, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,10,5\n", "utf-8")
    spec = BenchSpec.from_dict({"workload": f"trace:azure:{trace}"}).to_dict()
    run_id = store.create_run("bench", spec, state="done")
    there_too = packed(exported(run_id, store))
    trace.unlink()
    assert import_run(there_too, there).spec["workload"] == f"trace:azure:{trace}"
    wrong = changed(exported(run_id, store), "run.json", _set("spec.num_requests", -1))
    there.delete_run(run_id)
    with pytest.raises(InputError):
        import_run(packed(wrong), there)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("https://me:pa@ss-word@host/v1", "ss-word"),
        ("Authorization: Basic bWU6c2VjcmV0", "bWU6c2VjcmV0"),
        ("https://host/v1?access_token=q1w2e3&n=1", "q1w2e3"),
        ("https://host/v1?a=1&sig=q1w2e3", "q1w2e3"),
        ("{'x-api-key': 'q1w2e3'}", "q1w2e3"),
        ('{"password": "q1w2e3"}', "q1w2e3"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123", "ghp_abc"),
    ],
)
def test_a_secret_within_a_text_is_withheld_and_the_rest_stays(text: str, secret: str) -> None:
    clean, found = without_secrets({"error": f"before {text} behind"})
    assert secret not in clean["error"] and found == ["error"]
    assert clean["error"].startswith("before ") and clean["error"].endswith(" behind")
    assert without_secrets(clean) == (clean, []), "what was withheld stays so"


@pytest.mark.parametrize("name", ["Cookie", "Set-Cookie", "AWS_SECRET_ACCESS_KEY", "api_keys", "X-Api-Key"])
def test_a_field_with_the_name_of_a_secret_is_withheld(name: str) -> None:
    assert without_secrets({name: "q1w2e3"})[0] == {name: WITHHELD}


@pytest.mark.parametrize("text", ["max_tokens=8 on http://host:80/v1?max_tokens=5", "basic assumptions", "a@b.c"])
def test_what_only_looks_like_one_stays(text: str) -> None:
    assert without_secrets({"x": text}) == ({"x": text}, [])
