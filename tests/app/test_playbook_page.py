"""Playbook: the page without a run, with a climbed ladder, with a stopped one, in both languages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.i18n import catalogue
from experiments.kinds import kind_of
from experiments.playbook.recipes import RECIPES
from experiments.playbook.words import Says
from experiments.playbook_view import PlaybookChoice
from experiments.store import Store
from ledger.errors import InputError
from tests.app.alone import StoredJob, page_alone, texts, used
from tests.experiments.test_ladder_report import SPEC, made


@pytest.fixture(scope="module")
def climbed(tmp_path_factory: pytest.TempPathFactory) -> StoredJob:
    home = tmp_path_factory.mktemp("home")
    store, spec, result = Store(home / "runs.sqlite3"), kind_of("ladder").check(SPEC), made()
    run_id = store.create_run("ladder", spec)
    store.update_run(run_id, state="done", result=result)
    return StoredJob(home, "ladder", run_id, spec, result)


@pytest.fixture
def home(climbed: StoredJob) -> Iterator[Path]:
    yield from used(climbed.home)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Path]:
    yield from used(tmp_path)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_without_a_run_it_asks_and_offers_one_button(empty: Path, lang: str) -> None:
    app, words = page_alone("playbook", lang=lang), catalogue(lang)
    assert app.title[0].value == words["playbook.question"] and words["playbook.intro"] in texts(app)
    assert not app.button(key="run").disabled
    assert Says(lang).scenario("rollout") in texts(app)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_of_the_address_brings_its_steps_and_its_traffic(empty: Path, recipe: str) -> None:
    app = page_alone("playbook", recipe=recipe)
    assert app.session_state[f"playbook-steps_{recipe}"] == list(RECIPES[recipe].steps)
    assert app.session_state[f"playbook-workload_{recipe}"] == RECIPES[recipe].workload


def test_an_address_without_objectives_is_taken_as_it_is(empty: Path) -> None:
    app = page_alone("playbook", slo="", settings="")
    assert not app.warning and app.session_state["playbook-slo"] == ""


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_climbed_ladder_shows_verdict_steps_reasons_and_returns(home: Path, climbed: StoredJob, lang: str) -> None:
    app, words, says = page_alone("playbook", lang=lang), catalogue(lang), Says(lang)
    shown = texts(app)
    for key in (
        "playbook.rule",
        "playbook.whole",
        "playbook.returns",
        "playbook.why",
        "playbook.trap",
        "measured",
        "computed",
        "assumed",
        "simulated",
    ):
        assert words[key] in shown, key
    for row in climbed.result["steps"]:
        assert says.outcome(row["outcome"]) in shown
    assert "None" not in shown
    # A table a measured step, one of the whole, one of the returns.
    measured = [row for row in climbed.result["steps"] if row["comparison"]]
    assert len(app.table) == len(measured) + 2
    assert any("--set batching=continuous" in block.value for block in app.code)


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_a_stopped_ladder_offers_to_go_on(home: Path, climbed: StoredJob, state: str) -> None:
    run_id = climbed.add(state=state)
    app = page_alone("playbook", run=run_id)
    assert any(button.label == catalogue("en")["playbook.resume"] for button in app.button)
    climbed.store.delete_run(run_id)


def test_a_cancelled_ladder_with_steps_shows_them_and_goes_on(home: Path, climbed: StoredJob) -> None:
    part = {**climbed.result, "steps": climbed.result["steps"][:1], "overall": None, "cancelled": True}
    run_id = climbed.add(state="cancelled", result=part)
    app = page_alone("playbook", run=run_id)
    assert catalogue("en")["playbook.part"] in texts(app) and app.button(key="resume")
    climbed.store.delete_run(run_id)


def test_what_the_page_asks_for_is_a_ladder() -> None:
    spec = PlaybookChoice("long-documents", ["kv-int8"], slo="ttft_p95=2", settings="max_num_seqs=4, threads=1").spec()
    checked = kind_of("ladder").check(spec)
    assert checked["settings"] == {"max_num_seqs": 4, "threads": 1} and checked["workload"] == "long-doc"
    for wrong in (PlaybookChoice("rollout", []), PlaybookChoice("rollout", ["w8a8"], settings="fast")):
        with pytest.raises(InputError):
            wrong.spec()
