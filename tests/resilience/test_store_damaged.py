"""A store that is cut, overwritten or of another version: one line, nothing changed, and no events of any run lost."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from experiments.store import Store
from experiments.store.events import DamagedRecord
from experiments.store.schema import SCHEMA_VERSION
from ledger.errors import CannotRunError, InputError

RUNS = 40


@pytest.fixture
def filled(tmp_path: Path) -> Store:
    """Some runs with events, all of it in the one file."""
    store = Store(tmp_path / "runs.sqlite3")
    for number in range(RUNS):
        run_id = store.create_run("bench", {"workload": "equal", "seed": number}, state="done", result={"n": number})
        if number < 3:
            store.add_record(run_id, 0, 1, {"steps": [{"x": number}], "text": "y" * 500})
    return store


def read_all(path: Path) -> str:
    """Read whatever there is as a page does; the line when it can't be, which must be one of ours and one line."""
    try:
        store = Store(path)
        for run in store.list_runs(2 * RUNS):
            store.get_run(run.id)
            store.records(run.id)
    except (CannotRunError, InputError) as error:
        assert "\n" not in str(error)
        return str(error)
    return ""


@pytest.mark.parametrize("share", [0.001, 0.05, 0.3, 0.6])
def test_a_file_that_was_cut_is_told_and_left_as_it_is(filled: Store, share: float) -> None:
    whole = filled.path.read_bytes()
    filled.path.write_bytes(whole[: int(len(whole) * share)])
    cut = filled.path.read_bytes()
    said = read_all(filled.path)
    assert "it is no run store or is damaged" in said and "move it away" in said
    assert filled.path.read_bytes() == cut


def test_garbage_is_told_and_left_as_it_is(filled: Store) -> None:
    garbage = random.Random(0).randbytes(filled.path.stat().st_size)
    filled.path.write_bytes(garbage)
    assert "it is no run store or is damaged" in read_all(filled.path)
    assert filled.path.read_bytes() == garbage


@pytest.mark.parametrize("seed", range(12))
def test_garbage_anywhere_inside_never_is_a_fault_of_ours(filled: Store, seed: int) -> None:
    draw = random.Random(seed)
    body = bytearray(filled.path.read_bytes())
    place = draw.randrange(100, len(body) - 600)
    body[place : place + 500] = draw.randbytes(500)
    filled.path.write_bytes(bytes(body))
    read_all(filled.path)


def test_a_file_without_its_last_pages_is_never_a_fault_of_ours(filled: Store) -> None:
    whole = filled.path.read_bytes()
    for missing in range(1, 6):
        filled.path.write_bytes(whole[: -missing * 4096])
        read_all(filled.path)


def test_a_store_of_a_newer_version_is_refused_and_not_changed_by_a_byte(filled: Store) -> None:
    with closing(sqlite3.connect(filled.path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    newer = filled.path.read_bytes()
    with pytest.raises(CannotRunError, match=f"schema {SCHEMA_VERSION + 1}; this one reads {SCHEMA_VERSION}"):
        Store(filled.path)
    assert filled.path.read_bytes() == newer


def test_events_outlive_a_store_that_was_moved_away_and_put_back(filled: Store, tmp_path: Path) -> None:
    aside = tmp_path / "aside.sqlite3"
    shutil.move(filled.path, aside)
    new = Store(filled.path)
    new.sweep()
    for path in (tmp_path / "events").rglob("*"):
        path.touch()
    assert new.list_runs() == [] and new.sweep() == 0
    filled.path.unlink()
    shutil.move(aside, filled.path)
    records = [record for run in filled.list_runs(RUNS) for record in filled.records(run.id)]
    assert len(records) == 3


def test_a_run_whose_deletion_was_cut_short_is_gone_after_a_sweep(
    filled: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = next(run.id for run in filled.list_runs(RUNS) if filled.record_keys(run.id))
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)  # killed before the files went
        filled.delete_run(run_id)
    assert len(list((tmp_path / "events").iterdir())) == 3
    assert filled.sweep() == 1 and len(list((tmp_path / "events").iterdir())) == 2


def test_a_row_that_is_damaged_is_one_line_for_its_record(filled: Store) -> None:
    ids = [run.id for run in filled.list_runs(RUNS) if filled.record_keys(run.id)]
    with closing(sqlite3.connect(filled.path)) as db:
        db.execute("UPDATE records SET body = x'00ff' WHERE run_id = ?", (ids[0],))
        db.commit()
    with pytest.raises(DamagedRecord, match="its row is not as it was written; other runs are intact"):
        filled.record(ids[0], 0, 1)
    assert filled.record(ids[1], 0, 1)["steps"]


def test_one_damaged_run_hides_no_other(filled: Store) -> None:
    first, *others = [run.id for run in filled.list_runs(RUNS)]
    with closing(sqlite3.connect(filled.path)) as db:
        db.execute("UPDATE runs SET spec = 'x' WHERE id = ?", (first,))
        db.commit()
    assert [run.id for run in filled.list_runs(RUNS, workload="equal")] == others
    assert [run.id for run in filled.list_runs(RUNS)] == others and filled.workloads() == ["equal"]
    with pytest.raises(CannotRunError, match=f"run {first}: its spec is not as it was written"):
        filled.get_run(first)
    filled.delete_run(first)
