"""Ten browsers at one engine: jobs queue, everyone sees their own, and nobody cancels another's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.i18n import translate
from experiments.jobs import ACTIVE
from experiments.store import Store
from tests.app.test_e2e import START_S, address, browser, home, run_id_of
from tests.app.test_pages_browser import Visit

__all__ = ["address", "browser", "home"]
pytestmark = pytest.mark.slow
PEOPLE = 10
STARTERS = 5  # the others watch
END_S = 120


@pytest.fixture
def people(browser: Any) -> Iterator[list[Visit]]:
    contexts = [browser.new_context(viewport={"width": 1200, "height": 900}) for _ in range(PEOPLE)]
    for context in contexts:
        context.set_default_timeout(START_S * 1000)
    yield [Visit(context.new_page(), "en") for context in contexts]
    for context in contexts:
        context.close()


def requests_of(visit: Visit) -> str:
    """How many requests the experiment has that this browser is at."""
    return visit.page.evaluate("new URL(location.href).searchParams.get('requests')")


def test_ten_people_share_one_engine(people: list[Visit], address: str, home: Path) -> None:
    store = Store(home / "runs.sqlite3")
    starters, watchers = people[:STARTERS], people[STARTERS:]
    for place, visit in enumerate(people):
        visit.page.goto(f"{address}/?variable=seed&a=0&b=1&requests={60 + place}&repeats=20")
        visit.button("picker.run").wait_for()
    ids = []
    for visit in starters:
        visit.button("picker.run").click()
        visit.button("picker.cancel").wait_for()
        ids.append(run_id_of(visit.page))
    assert len(set(ids)) == STARTERS
    assert [store.get_run(run_id).spec["num_requests"] for run_id in ids] == [60 + n for n in range(STARTERS)]
    assert len({store.get_run(run_id).started_by for run_id in ids}) == STARTERS

    # Everyone is where they were, and comes back there.
    assert [requests_of(visit) for visit in people] == [str(60 + n) for n in range(PEOPLE)]
    starters[-1].sees(translate("en", "live.ahead", n=STARTERS - 1))
    for visit, run_id in zip(starters, ids, strict=True):
        visit.page.goto(address)
        visit.button("picker.cancel").wait_for()
        assert run_id_of(visit.page) == run_id
    for visit in watchers:
        visit.page.goto(address)
        visit.button("picker.run").wait_for()
        assert "run=" not in visit.page.url

    # One engine: at most one of them computes.
    states = [store.get_run(run_id).state for run_id in ids]
    assert states.count("running") <= 1 and set(states) <= set(ACTIVE)

    # A watcher follows the first one's run, and can't cancel it: neither there nor in the list.
    watcher = watchers[0]
    watcher.page.goto(f"{address}/?run={ids[0]}")
    watcher.button("picker.run_again").wait_for()
    assert watcher.page.get_by_role("button", name="Cancel").count() == 0
    watcher.page.goto(f"{address}/runs?text={ids[0]}")
    cancel = watcher.button("runs.cancel")
    cancel.wait_for()
    assert cancel.is_disabled()
    assert not store.get_run(ids[0]).cancel_requested

    for visit, run_id in reversed(list(zip(starters, ids, strict=True))):
        visit.button("picker.cancel").click()
        ends_cancelled(store, run_id)


def ends_cancelled(store: Store, run_id: str) -> None:
    until = time.monotonic() + END_S
    while (state := store.get_run(run_id).state) in ACTIVE:
        assert time.monotonic() < until, f"{run_id} is still {state}"
        time.sleep(0.2)
    assert state == "cancelled"
