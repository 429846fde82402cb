"""Records whose events are Parquet files: the same JSON back, and what is left when a file or a process is lost."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.store import DamagedRecord, Store, events
from experiments.store.columns import NotAsWritten, from_parquet, to_parquet
from experiments.store.identity import spec_hash
from ledger.errors import CannotRunError, InputError
from tests.experiments.records import contiguous_record

NOT_SURROGATES = st.characters(exclude_categories=["Cs"])
TEXT = st.text(NOT_SURROGATES, max_size=6)
KEYS = st.sampled_from(["a", "b", "time_ns", "_keys", "with space", "", "0"]) | TEXT
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)
PAIR = st.tuples(st.integers(0, 2**62), st.integers(0, 9)).map(list)
ROW = st.tuples(st.sampled_from(["r0", "r1"]), st.integers(), st.booleans()).map(list)
EVENT = st.fixed_dictionaries(
    {"id": TEXT, "emissions": st.lists(PAIR, max_size=4), "rows": st.lists(ROW, max_size=3)},
    optional={"admit_ns": st.none() | st.integers(), "kv": st.fixed_dictionaries({"used": NUMBERS}), "more": JSON},
)
LISTS = st.lists(JSON, max_size=5) | st.lists(EVENT, max_size=6)
RECORDS = st.fixed_dictionaries({"steps": LISTS}, optional={"requests": LISTS, "emissions": LISTS, "other": JSON})


def exactly(value: Any) -> str:
    """JSON text tells 1 from 1.0 and from true, and keeps the order of keys."""
    return json.dumps(value)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home" / "runs.sqlite3")


def files_of(store: Store) -> list[Path]:
    return sorted(path for path in (store.path.parent / "events").rglob("*") if path.is_file())


# -- columns -----------------------------------------------------------------------------------------------------------


@given(LISTS)
@settings(max_examples=80, deadline=None)
def test_columns_give_back_the_same_json(rows: list[Any]) -> None:
    assert exactly(from_parquet(to_parquet(rows))) == exactly(rows)


@given(RECORDS)
@settings(max_examples=15, deadline=None)
def test_a_record_comes_back_exactly(tmp_path_factory: pytest.TempPathFactory, record: dict[str, Any]) -> None:
    store = Store(tmp_path_factory.mktemp("store") / "runs.sqlite3")
    run_id = store.create_run("bench", {})
    store.add_record(run_id, 0, 1, record)
    assert exactly(store.record(run_id, 0, 1)) == exactly(record)
    assert exactly(store.records(run_id)[0].record) == exactly(record)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1.0, float("nan")], {"x": [float("-inf"), "a"]}])
def test_numbers_that_are_no_json_are_refused_and_leave_nothing(store: Store, value: Any) -> None:
    run_id = store.create_run("bench", {})
    with pytest.raises(ValueError, match="JSON"):
        store.add_record(run_id, 0, 1, {"steps": [{"x": value}]})
    assert store.record_keys(run_id) == [] and files_of(store) == []


def test_any_reader_of_parquet_sees_the_events(store: Store) -> None:
    run_id = store.create_run("bench", {})
    record = contiguous_record()
    store.add_record(run_id, 0, 1, record)
    by_key = {path.name.split(".")[1]: pq.read_table(path) for path in files_of(store)}
    assert set(by_key) == {"steps", "requests"}
    assert by_key["requests"]["id"].to_pylist() == ["r00", "r01"]
    assert by_key["requests"]["emissions"].to_pylist()[1] == record["requests"][1]["emissions"]
    assert by_key["steps"]["execute_start_ns"].to_pylist() == [s["execute_start_ns"] for s in record["steps"]]


@pytest.mark.parametrize("body", [b"", b"PAR1", b"not parquet at all" * 40])
def test_what_is_no_file_of_ours_is_said(body: bytes) -> None:
    with pytest.raises(NotAsWritten):
        from_parquet(body)


def test_a_file_larger_than_allowed_is_not_unpacked() -> None:
    with pytest.raises(NotAsWritten, match="unpacked"):
        from_parquet(to_parquet([{"x": "a" * 1000}] * 1000), most_bytes=100)


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_record_that_is_replaced_or_deleted_takes_its_files_along(store: Store) -> None:
    run_id, other = store.create_run("bench", {}), store.create_run("bench", {})
    for _ in range(2):
        store.add_record(run_id, 0, 1, {"steps": [{"x": 1}]})
    store.add_record(other, 0, 1, {"steps": [{"x": 2}]})
    assert len(files_of(store)) == 2
    store.delete_run(run_id)
    assert [path.parent.name for path in files_of(store)] == [other]
    assert store.record(other, 0, 1) == {"steps": [{"x": 2}]}


def test_a_record_of_an_unknown_run_leaves_no_file(store: Store) -> None:
    with pytest.raises(InputError):
        store.add_record("00000000", 0, 1, {"steps": [{"x": 1}]})
    assert files_of(store) == []


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _flip(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(bytes(body))


@pytest.mark.parametrize("damage", [Path.unlink, _cut, _flip])
def test_a_damaged_file_is_one_line_for_its_record_and_others_are_read(
    store: Store, damage: Callable[[Path], None]
) -> None:
    run_id, other = store.create_run("bench", {}), store.create_run("bench", {})
    store.add_record(run_id, 0, 1, {"steps": [{"x": 1}]})
    damage(files_of(store)[0])
    store.add_record(run_id, 1, 1, {"steps": [{"x": 2}]})
    store.add_record(other, 0, 1, {"steps": [{"x": 3}]})
    with pytest.raises(DamagedRecord) as error:
        store.record(run_id, 0, 1)
    assert "\n" not in str(error.value) and f"run {run_id}, arm 0, repeat 1" in str(error.value)
    with pytest.raises(CannotRunError):
        store.records(run_id)
    assert store.record(run_id, 1, 1) == {"steps": [{"x": 2}]} and store.record_keys(run_id) == [(0, 1), (1, 1)]
    assert store.record(other, 0, 1) == {"steps": [{"x": 3}]}
    store.add_record(run_id, 0, 1, {"steps": [{"x": 4}]})
    assert store.record(run_id, 0, 1) == {"steps": [{"x": 4}]}


def _killed_before_the_row(path: Path, run_id: str) -> None:
    store = Store(path)
    write = events.write

    def then_die(*arguments: Any) -> Any:
        write(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    events.write = then_die  # type: ignore[assignment]
    store.add_record(run_id, 0, 1, {"steps": [{"x": 1}], "requests": [{"x": 2}]})


def test_what_a_killed_writer_leaves_is_swept_and_nothing_else(store: Store) -> None:
    run_id = store.create_run("bench", {})
    store.add_record(run_id, 1, 1, {"steps": [{"x": 0}]})
    process = multiprocessing.get_context("spawn").Process(target=_killed_before_the_row, args=(store.path, run_id))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL and len(files_of(store)) == 3
    assert store.record_keys(run_id) == [(1, 1)]
    assert store.sweep() == 0, "what is young may be about to get its row"
    for path in files_of(store):
        os.utime(path, (0, 0))
    assert store.sweep() == 2
    assert store.record(run_id, 1, 1) == {"steps": [{"x": 0}]}


# -- older stores --------------------------------------------------------------------------------------------------

SCHEMA_2 = """
CREATE TABLE runs (
  id TEXT PRIMARY KEY, kind TEXT NOT NULL, state TEXT NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
  spec TEXT NOT NULL, result TEXT, error TEXT, pid INTEGER, pid_started REAL, cancel_requested INTEGER NOT NULL
);
CREATE INDEX runs_by_time ON runs (created_at);
CREATE TABLE records (
  run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE, arm INTEGER NOT NULL, repeat INTEGER NOT NULL,
  body BLOB NOT NULL, PRIMARY KEY (run_id, arm, repeat)
);
CREATE TABLE scores (number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, body BLOB NOT NULL);
PRAGMA user_version = 2;
"""
OLD_SPEC = {"variable": "batching", "values": ["static", "continuous"], "workload": "mixed", "guess_pct": 3.0}
OLD_RESULT = {"variable": "batching", "arms": [{"value": "static", "metrics": {"x": 1}}, {"value": "continuous"}]}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store as version 2 left it: a finished comparison with a record, and a queued run after it."""
    path = tmp_path / "runs.sqlite3"
    db = sqlite3.connect(path)
    db.executescript(SCHEMA_2)
    times = ("2026-01-01T00:00:00.000+00:00",) * 2
    for run_id, state, result in (("0000aaaa", "done", json.dumps(OLD_RESULT)), ("0000bbbb", "queued", None)):
        db.execute(
            "INSERT INTO runs VALUES (?, 'compare', ?, ?, ?, ?, ?, NULL, NULL, NULL, 0)",
            (run_id, state, *times, json.dumps(OLD_SPEC), result),
        )
    body = zlib.compress(json.dumps(contiguous_record()).encode())
    db.execute("INSERT INTO records VALUES ('0000aaaa', 0, 1, ?)", (body,))
    db.commit()
    db.close()
    return path


def test_runs_and_records_of_an_older_store_stay_and_get_what_is_new(old: Path) -> None:
    store = Store(old)
    assert store.record("0000aaaa", 0, 1) == contiguous_record()
    assert store.get_run("0000aaaa").result == OLD_RESULT
    assert [(arm.variable, arm.value, arm.metrics) for arm in store.arms("0000aaaa")] == [
        ("batching", "static", {"x": 1}),
        ("batching", "continuous", None),
    ]
    assert [run.id for run in store.ahead_of("0000bbbb")] == [] and store.get_run("0000bbbb").ticket == 2
    new = store.create_run("bench", {})
    assert [run.id for run in store.ahead_of(new)] == ["0000bbbb"]
    assert [run.id for run in store.find("compare", spec_hash(OLD_SPEC))] == ["0000aaaa"]
    store.add_record("0000aaaa", 0, 1, {"steps": [{"x": 1}]})
    assert Store(old).record("0000aaaa", 0, 1) == {"steps": [{"x": 1}]}


def _killed_while_migrating(path: Path) -> None:
    from experiments.store import schema

    schema._FILL[3] = lambda _: os.kill(os.getpid(), signal.SIGKILL)
    Store(path)


def test_a_migration_that_was_killed_loses_nothing(old: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_killed_while_migrating, args=(old,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    with sqlite3.connect(old) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
    test_runs_and_records_of_an_older_store_stay_and_get_what_is_new(old)


# -- questions to the store ----------------------------------------------------------------------------------------


def test_runs_are_found_by_spec_code_and_machine(store: Store) -> None:
    here, there = {"cpu": "a", "cores": 2}, {"cpu": "b", "cores": 2}
    spec = {"workload": "mixed", "seed": 0}
    first = store.create_run("bench", spec, state="done", code="c1", environment=here)
    second = store.create_run("bench", {**spec, "guess_pct": 5}, state="done", code="c1", environment=there)
    third = store.create_run("bench", spec, state="failed", code="c1", environment=here)
    fourth = store.create_run("bench", {**spec, "seed": 1}, state="done", code="c2", environment=here)
    alike = spec_hash(spec)
    assert [run.id for run in store.find("bench", alike)] == [second, first]
    assert [run.id for run in store.find("bench", alike, "c1", {"cores": 2, "cpu": "a"})] == [first]
    assert [run.id for run in store.find("bench", code="c2")] == [fourth]
    assert [run.id for run in store.find("bench", alike, state="failed")] == [third]
    assert store.find("compare", alike) == [] and store.find("bench", alike, "c2") == []


def test_arms_are_found_by_variable_and_value(store: Store) -> None:
    ids = [store.create_run("compare", {}) for _ in range(2)]
    for run_id, value in zip(ids, ("dynamic", "continuous"), strict=True):
        arms = [{"value": "static", "metrics": {}}, {"value": value, "metrics": {"ttft_s": 1.5}}]
        store.update_run(run_id, state="done", result={"variable": "batching", "arms": arms})
    assert [arm.run_id for arm in store.arms(variable="batching", value="static")] == ids[::-1]
    (found,) = store.arms(variable="batching", value="dynamic")
    assert (found.run_id, found.arm, found.metrics) == (ids[0], 1, {"ttft_s": 1.5})
    store.delete_run(ids[0])
    assert store.arms(variable="batching", value="dynamic") == []


@pytest.mark.parametrize("result", [None, {}, {"arms": None}, {"arms": [1, 2]}, {"arms": {"a": 1}}])
def test_a_result_without_arms_has_none(store: Store, result: Any) -> None:
    run_id = store.create_run("profile", {})
    store.update_run(run_id, state="done", result=result)
    assert store.arms(run_id) == []


def test_a_list_is_filtered_counted_and_paged(store: Store) -> None:
    chat = store.create_run("bench", {"workload": "chat"})
    code = store.create_run("compare", {"workload": "code", "note": "100%_Sure"}, state="done", result={"a": 1})
    failed = store.create_run("bench", {"workload": "chat"}, state="failed", error="No Disk")

    def listed(**asked: Any) -> list[str]:
        found = [run.id for run in store.list_runs(**asked)]
        assert store.count_runs(**{k: v for k, v in asked.items() if k not in ("limit", "offset")}) >= len(found)
        return found

    assert listed(workload="chat") == [failed, chat] and listed(state="done") == [code]
    assert listed(text="no disk") == [failed] and listed(text="0%_s") == [code] and listed(text=chat) == [chat]
    assert listed(kind="bench", state="queued", workload="chat", text="CHAT") == [chat]
    assert listed(text="%") == [code], "what is typed is no pattern"
    assert listed(limit=1, offset=1) == [code] and listed(text="nowhere") == []
    assert store.count_runs(workload="chat") == 2 and store.workloads() == ["chat", "code"]
    assert [run.result for run in store.list_runs(state="done", results=False)] == [None]
