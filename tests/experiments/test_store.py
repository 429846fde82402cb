"""The run store: several writers, a full disk, WAL, plain errors."""

from __future__ import annotations

import multiprocessing
import os
import resource
import sqlite3
import sys

import pytest

from experiments.store import Store, data_home
from ledger.errors import CannotRunError, InputError


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs.sqlite3")


def test_a_run_goes_through_its_states(store):
    run_id = store.create_run("compare", {"variable": "batching", "values": ["static", "continuous"]})
    assert len(run_id) == 8
    assert int(run_id, 16) >= 0
    run = store.get_run(run_id)
    assert (run.state, run.kind, run.result, run.cancel_requested) == ("queued", "compare", None, False)
    assert store.update_run(run_id, state="running", pid=42, pid_started=1.5)
    store.update_run(run_id, cancel_requested=True)
    store.update_run(run_id, state="done", result={"curves": [], "text": "结论"})
    done = store.get_run(run_id)
    assert (done.state, done.pid, done.pid_started, done.cancel_requested) == ("done", 42, 1.5, True)
    assert done.result == {"curves": [], "text": "结论"}
    assert done.updated_at >= done.created_at
    assert done.to_json()["id"] == run_id


def test_records_come_back_as_they_went_in_and_in_order(store):
    run_id = store.create_run("compare", {})
    for repeat in (2, 1):
        for arm in (1, 0):
            store.add_record(run_id, arm, repeat, {"steps": [{"index": arm}], "at": 2**62, "none": None})
    store.add_record(run_id, 0, 1, {"again": True})
    got = store.records(run_id)
    assert [(r.repeat, r.arm) for r in got] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert got[0].record == {"again": True}
    assert got[1].record == {"steps": [{"index": 1}], "at": 2**62, "none": None}


def test_list_is_newest_first_and_by_kind(store):
    ids = [store.create_run(kind, {}) for kind in ("bench", "compare", "bench")]
    assert [run.id for run in store.list_runs()] == ids[::-1]
    assert [run.id for run in store.list_runs(kind="bench")] == [ids[2], ids[0]]
    assert len(store.list_runs(limit=1)) == 1


def test_delete_takes_the_records_along(store):
    run_id = store.create_run("bench", {})
    store.add_record(run_id, 0, 1, {})
    store.delete_run(run_id)
    with pytest.raises(InputError):
        store.get_run(run_id)
    assert store.records(run_id) == []


def test_an_unknown_run_field_or_state_is_refused_in_one_line(store):
    run_id = store.create_run("bench", {})
    calls = [
        lambda: store.get_run("00000000"),
        lambda: store.update_run("00000000", state="done"),
        lambda: store.add_record("00000000", 0, 1, {}),
        lambda: store.delete_run("00000000"),
        lambda: store.update_run(run_id, state="finished"),
        lambda: store.update_run(run_id, created_at="now"),
        lambda: store.create_run("walk", {}),
    ]
    for call in calls:
        with pytest.raises(InputError) as error:
            call()
        assert "\n" not in str(error.value)
    assert store.get_run(run_id).state == "queued"


def test_of_two_that_end_a_run_only_the_first_succeeds(store):
    run_id = store.create_run("bench", {})
    store.update_run(run_id, state="running")
    assert store.update_run(run_id, only_if_state="running", state="cancelled")
    assert not store.update_run(run_id, only_if_state="running", state="done")
    assert store.get_run(run_id).state == "cancelled"


def test_the_file_is_in_wal_mode_and_a_reader_does_not_block_a_writer(store):
    run_id = store.create_run("bench", {})
    reader = sqlite3.connect(store.path)
    assert reader.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM runs").fetchall()
    store.update_run(run_id, state="running")
    reader.close()
    assert store.get_run(run_id).state == "running"


def _write(path, label, count):
    own = Store(path)
    for i in range(count):
        run_id = own.create_run("bench", {"label": label, "i": i})
        own.add_record(run_id, 0, 1, {"i": i, "text": "x" * 2000})
        own.update_run(run_id, state="done", result={"i": i})


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    path = tmp_path / "new" / "runs.sqlite3"  # the schema is created by both, too
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(path, label, 40)) for label in ("a", "b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    runs = Store(path).list_runs(limit=1000)
    assert sorted((run.spec["label"], run.spec["i"]) for run in runs) == [(x, i) for x in "ab" for i in range(40)]
    assert all(run.state == "done" and run.result == {"i": run.spec["i"]} for run in runs)


class _SmallDiskStore(Store):
    """A store whose file may not grow beyond 20 pages of 4 KiB."""

    def _connect(self):
        db = super()._connect()
        db.execute("PRAGMA max_page_count = 20")
        return db


def _random_record(size):
    return {"noise": os.urandom(size).hex()}


def test_a_full_disk_is_one_line_and_leaves_the_store_intact(tmp_path):
    small = _SmallDiskStore(tmp_path / "runs.sqlite3")
    run_id = small.create_run("bench", {"a": 1})
    small.add_record(run_id, 0, 1, {"kept": True})
    with pytest.raises(CannotRunError, match="disk is full") as error:
        small.add_record(run_id, 0, 2, _random_record(200_000))
    assert "\n" not in str(error.value)
    again = Store(small.path)
    assert [r.record for r in again.records(run_id)] == [{"kept": True}]
    again.add_record(run_id, 0, 2, _random_record(200_000))
    assert len(again.records(run_id)) == 2
    assert sqlite3.connect(small.path).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def _fill_limited(path, run_id):
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))
    try:
        Store(path).add_record(run_id, 0, 1, _random_record(400_000))
    except CannotRunError as error:
        assert "\n" not in str(error)
        sys.exit(7)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a file size limit")
def test_a_write_the_system_refuses_leaves_the_store_intact(store):
    run_id = store.create_run("bench", {})
    process = multiprocessing.get_context("spawn").Process(target=_fill_limited, args=(store.path, run_id))
    process.start()
    process.join()
    assert process.exitcode == 7
    assert store.records(run_id) == []
    store.add_record(run_id, 0, 1, {"after": True})
    assert [r.record for r in store.records(run_id)] == [{"after": True}]
    assert sqlite3.connect(store.path).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_path_that_cannot_be_used_is_one_line(tmp_path):
    (tmp_path / "file").write_text("this is not a database, and it is longer than the header of one would be" * 20)
    for path in (tmp_path / "file" / "runs.sqlite3", tmp_path / "file", tmp_path):
        with pytest.raises(CannotRunError) as error:
            Store(path)
        assert "\n" not in str(error.value)


def test_a_store_of_a_newer_version_is_not_touched(store):
    with sqlite3.connect(store.path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(CannotRunError, match="newer"):
        Store(store.path)


def test_numbers_other_readers_cannot_parse_are_refused(store):
    with pytest.raises(ValueError, match="JSON"):
        store.create_run("bench", {"x": float("nan")})


def test_the_place_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path / "home"))
    assert data_home() == tmp_path / "home"
    assert Store().path == tmp_path / "home" / "runs.sqlite3"
    monkeypatch.delenv("TRILEMMA_HOME")
    assert data_home().name == "trilemma"


def test_scores_are_kept_for_any_run_and_the_oldest_go(tmp_path, monkeypatch):
    store = Store(tmp_path / "runs.sqlite3")
    store.keep_scores({"a": [-1.5, -2.25], "b": {"kl": [0.0]}})
    assert Store(store.path).scores(["b", "c", "a"]) == {"b": {"kl": [0.0]}, "a": [-1.5, -2.25]}
    monkeypatch.setattr("experiments.store.store.MOST_SCORES", 2)
    store.keep_scores({"a": [-3.0]})
    store.keep_scores({"d": [0.0]})
    assert store.scores(["a", "b", "d"]) == {"a": [-3.0], "d": [0.0]}


def test_a_store_of_the_first_schema_gets_what_is_new(tmp_path):
    store = Store(tmp_path / "runs.sqlite3")
    run_id = store.create_run("bench", {})
    with sqlite3.connect(store.path) as db:
        db.execute("DROP TABLE scores")
        db.execute("PRAGMA user_version = 1")
    again = Store(store.path)
    again.keep_scores({"a": 1})
    assert again.scores(["a"]) == {"a": 1} and again.get_run(run_id).id == run_id


def test_every_kind_of_run_can_be_stored(store: Store) -> None:
    from experiments.kinds import KINDS

    assert {store.get_run(store.create_run(kind, {})).kind for kind in KINDS} == set(KINDS)
