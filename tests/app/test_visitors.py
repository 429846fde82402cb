"""Several people at one engine: each comes back to their own run, and leaves others' alone unless that is allowed."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app import own_jobs, visitor
from app.visitor_cookie import COOKIE, Visitors, name_in
from experiments.lanes import ahead
from experiments.processes import process_started
from experiments.spec import CompareSpec
from experiments.store import Store
from ledger.errors import CannotRunError
from tests.app.alone import PATIENCE_S, used

ANN, BO = "a" * 32, "b" * 32
SPEC = CompareSpec.from_dict({"num_requests": 3, "repeats": 2}).to_dict()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield from used(tmp_path)


def known_as(name: str) -> str:
    """The hash by which the runs of a browser of that name are known."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def queued(home: Path, name: str | None, state: str = "queued") -> str:
    """A run that waits in a living process, started from a browser of that name."""
    store, started_by = Store(home / "runs.sqlite3"), None if name is None else known_as(name)
    mine = {"pid": os.getpid(), "pid_started": process_started(), "lanes": ["cpu"], "started_by": started_by}
    return store.create_run("compare", SPEC, **mine, state=state)


def page_of(name: str, page: str = "workbench", **params: str) -> AppTest:
    app = AppTest.from_string(f"from app.views import {page}\n{page}.page()\n", default_timeout=PATIENCE_S)
    app.session_state[visitor.KEPT] = name
    for key, value in params.items():
        app.query_params[key] = value
    app.run()
    assert not app.exception
    return app


def labels(app: AppTest) -> list[str]:
    return [button.label for button in app.button]


def test_each_comes_back_to_their_own_run(home: Path) -> None:
    run_id = queued(home, ANN)
    assert page_of(ANN).query_params["run"] in (run_id, [run_id])
    other = page_of(BO)
    assert "run" not in other.query_params
    assert "Run" in labels(other) and "Cancel" not in labels(other)


def test_another_watches_and_can_start_but_not_cancel(home: Path) -> None:
    run_id = queued(home, ANN)
    assert "Cancel" in labels(page_of(ANN, run=run_id))
    other = page_of(BO, run=run_id)
    assert "Cancel" not in labels(other) and "Run again" in labels(other)
    listed = page_of(BO, "runs")
    assert listed.button(key=f"row-cancel-{run_id}").disabled
    assert not page_of(ANN, "runs").button(key=f"row-cancel-{run_id}").disabled


@pytest.mark.parametrize("act", [own_jobs.cancel, own_jobs.resume, own_jobs.delete])
def test_what_is_anothers_is_refused_whatever_the_page_draws(
    home: Path, monkeypatch: pytest.MonkeyPatch, act: object
) -> None:
    run_id = queued(home, ANN)
    monkeypatch.setattr(visitor, "visitor", lambda: known_as(BO))
    with pytest.raises(CannotRunError, match="another browser"):
        act(run_id)  # type: ignore[operator]
    assert not Store(home / "runs.sqlite3").get_run(run_id).cancel_requested


@pytest.mark.parametrize(("name", "shared"), [(ANN, ""), (BO, "1")])
def test_one_cancels_their_own_and_with_the_setting_anyones(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str, shared: str
) -> None:
    run_id = queued(home, ANN)
    monkeypatch.setattr(visitor, "visitor", lambda: known_as(name))
    monkeypatch.setenv(visitor.SHARED, shared)
    own_jobs.cancel(run_id)
    assert Store(home / "runs.sqlite3").get_run(run_id).cancel_requested


def test_a_run_of_the_command_line_is_open_to_all(home: Path) -> None:
    run_id = queued(home, None)
    assert "Cancel" in labels(page_of(BO, run=run_id))


def test_a_waiting_run_says_how_many_are_before_it(home: Path) -> None:
    queued(home, ANN, "running")
    ids = [queued(home, name) for name in (ANN, BO)]
    store = Store(home / "runs.sqlite3")
    assert [ahead(store.get_run(run_id), store) for run_id in ids] == [1, 2]
    assert "Before it: 2." in [caption.value for caption in page_of(BO, run=ids[1]).caption]


def test_a_new_run_is_its_visitors(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}
    monkeypatch.setattr("experiments.jobs._start_worker", lambda run_id, store: seen.update(id=run_id))
    page_of(BO).button(key="run").click().run()
    run = Store(home / "runs.sqlite3").get_run(seen["id"])
    assert run.started_by == known_as(BO)


def answer_to(path: str, **headers: str) -> dict[str, str]:
    """The headers of the answer to a browser's request, through the middleware that names browsers."""
    sent: list[dict[str, Any]] = []

    async def page(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})

    async def send(message: Any) -> None:
        sent.append(message)

    given = [(name.encode(), value.encode()) for name, value in headers.items()]
    asyncio.run(Visitors(page)({"type": "http", "path": path, "headers": given}, send, send))
    return {name.decode(): value.decode() for name, value in sent[0]["headers"]}


def test_a_browser_without_a_name_gets_one_with_its_first_page_and_keeps_it() -> None:
    made = answer_to("/", accept="text/html")["set-cookie"]
    name = name_in(made.split(";")[0])
    assert name is not None and made.endswith("HttpOnly; SameSite=Lax")
    assert name_in(answer_to("/", accept="text/html")["set-cookie"].split(";")[0]) != name
    assert "set-cookie" not in answer_to("/", accept="text/html", cookie=f"{COOKIE}={name}")
    assert "set-cookie" not in answer_to("/_stcore/health", accept="*/*")
    assert "set-cookie" in answer_to("/", accept="text/html", cookie=f"{COOKIE}=../../x")
