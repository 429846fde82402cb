"""The page when its store can't be used, or can't be written: it says so, or shows what is stored, and goes on."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app.i18n import translate
from experiments.spec import BenchSpec
from experiments.store import Store
from experiments.store.database import Database
from tests.app.alone import page_alone, texts, used
from tests.resilience.helpers import PATIENCE_S, ROOT


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield from used(tmp_path)


def test_a_damaged_store_is_one_line_and_the_page_is_there(home: Path) -> None:
    (home / "runs.sqlite3").write_bytes(b"no database at all " * 1000)
    app = AppTest.from_file(str(ROOT / "app" / "main.py"), default_timeout=PATIENCE_S)
    app.run()
    assert not app.exception
    (line,) = [error.value for error in app.error]
    assert "it is no run store or is damaged" in line and translate("en", "error.title") not in line
    assert app.sidebar.caption, "navigation and device are drawn all the same"


def test_on_a_full_disk_the_runs_are_listed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = BenchSpec.from_dict({"workload": "chat"}).to_dict()
    run_id = Store(home / "runs.sqlite3").create_run("bench", spec, state="done", result={"x": 1})

    def full(_: Database) -> sqlite3.Connection:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    monkeypatch.setattr(Database, "_connect", full)
    app = page_alone("runs")
    assert run_id in texts(app) and not app.error
