"""The Runs page: finding, one run by its address, runs beside each other, going on, deleting, taking a file in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.i18n import catalogue, translate
from experiments import jobs
from experiments.metrics.translation import in_other_terms
from experiments.operators.spec import ProfileSpec
from experiments.report import FORMATS
from experiments.runs_view import facts
from experiments.spec import BenchSpec, CompareSpec
from experiments.store import Store
from tests.app.alone import page_alone, texts, used
from tests.experiments.records import record, request

HOSTILE = "<script>alert(1)</script>[x](http://evil)"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield from used(tmp_path)


@pytest.fixture
def store(home: Path) -> Store:
    return Store(home / "runs.sqlite3")


def bench(store: Store, workload: str = "chat", **fields: Any) -> str:
    spec = BenchSpec.from_dict({"workload": workload, "settings": {"max_num_seqs": 4}}).to_dict()
    return store.create_run("bench", spec, **{"state": "done", **fields})


def shown(app: Any, *ids: str) -> list[bool]:
    listed = "\n".join(str(item.value) for item in app.markdown)
    return [run_id in listed for run_id in ids]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_without_runs_the_page_says_so_and_offers_an_import(home: Path, lang: str) -> None:
    words = catalogue(lang)
    assert words["runs.empty"] in texts(page_alone("runs", lang=lang))
    assert words["runs.import_help"] in texts(page_alone("runs", lang=lang))


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_runs_of_every_state_are_listed_in_both_languages(store: Store, lang: str) -> None:
    ids = [bench(store, state=state, error="No Disk" if state == "failed" else None)
           for state in ("done", "failed", "cancelled")]  # fmt: skip
    app = page_alone("runs", lang=lang)
    assert all(shown(app, *ids)) and "No Disk" in texts(app)
    for state in ("done", "failed", "cancelled"):
        assert translate(lang, f"runs.state_{state}") in texts(app)


def test_the_list_is_filtered_by_the_boxes_and_by_the_address(store: Store) -> None:
    chat, code = bench(store), bench(store, "code", state="failed", error="No Disk")
    compared = store.create_run("compare", CompareSpec().to_dict(), state="done")
    everything = (chat, code, compared)
    assert shown(page_alone("runs", kind="compare"), *everything) == [False, False, True]
    assert shown(page_alone("runs", state="failed"), *everything) == [False, True, False]
    assert shown(page_alone("runs", workload="chat"), *everything) == [True, False, False]
    assert shown(page_alone("runs", text="no disk"), *everything) == [False, True, False]
    app = page_alone("runs")
    app.selectbox[0].set_value("compare").run()
    assert not app.exception and shown(app, *everything) == [False, False, True]
    assert app.query_params["kind"] in ("compare", ["compare"])
    app.text_input[0].set_value("nowhere at all").run()
    assert translate("en", "runs.none_found") in texts(app)


def test_a_long_list_has_pages(store: Store) -> None:
    ids = [bench(store) for _ in range(30)]
    assert shown(page_alone("runs"), ids[-1], ids[0]) == [True, False]
    assert shown(page_alone("runs", part="2"), ids[-1], ids[0]) == [False, True]
    assert shown(page_alone("runs", part="99"), ids[0]) == [True]
    assert shown(page_alone("runs", part="x"), ids[-1]) == [True]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_address_opens_one_run_with_verdict_and_facts(store: Store, lang: str) -> None:
    run_id = bench(store, code="c0de", version="0.1", environment={"cpu": "ours"})
    store.update_run(run_id, result={"output_tokens_per_s": 12.5, "completed": 3, "failed": 0})
    app = page_alone("runs", run=run_id, lang=lang)
    assert "12.5" in texts(app)
    table = app.table[0].value
    expected = {"workload", "settings.max_num_seqs", "environment.cpu", "code", "output_tokens_per_s"}
    assert expected <= set(table.iloc[:, 0])
    assert "deadbeef" in page_alone("runs", run="deadbeef", lang=lang).warning[0].value


def test_runs_beside_each_other_show_what_differs(store: Store) -> None:
    first = bench(store, environment={"cpu": "a", "cores": 2})
    second = bench(store, "code", environment={"cpu": "b", "cores": 2})
    app = page_alone("runs")
    app.multiselect[0].set_value([first, second]).run()
    assert not app.exception
    (frame,) = [item.value for item in app.dataframe]
    names = set(frame.iloc[:, 0])
    assert {"workload", "environment.cpu"} <= names and not {"environment.cores", "kind"} & names
    app.toggle[0].set_value(True).run()
    assert {"environment.cores", "kind"} <= set(app.dataframe[0].value.iloc[:, 0])


def test_a_run_is_deleted_only_by_the_second_button(store: Store) -> None:
    run_id, other = bench(store), bench(store)
    app = page_alone("runs", run=run_id)
    assert translate("en", "runs.delete_sure", id=run_id) in texts(app)
    app.button(key=f"one-delete-{run_id}").click().run()
    assert not app.exception and [run.id for run in store.list_runs()] == [other]
    assert "run" not in app.query_params


def test_a_stopped_run_of_a_kind_that_goes_on_can_be_resumed_and_others_not(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = store.create_run("profile", ProfileSpec().to_dict(), state="cancelled")
    other, done = bench(store, state="cancelled"), store.create_run("profile", ProfileSpec().to_dict(), state="done")
    resumed: list[str] = []
    monkeypatch.setattr(jobs, "resume", lambda run_id, *_: resumed.append(run_id))
    app = page_alone("runs")
    keys = {button.key for button in app.button}
    assert f"row-resume-{run_id}" in keys and not {f"row-resume-{other}", f"row-resume-{done}"} & keys
    app.button(key=f"row-resume-{run_id}").click().run()
    assert resumed == [run_id]


def test_what_went_wrong_is_one_line(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = bench(store)
    app = page_alone("runs")
    store.delete_run(run_id)  # in another window
    app.button(key=f"row-delete-{run_id}").click().run()
    assert not app.exception and run_id in app.error[0].value


def test_texts_of_users_stay_text(store: Store) -> None:
    run_id = store.create_run("bench", {**BenchSpec().to_dict(), "workload": HOSTILE}, state="failed")
    store.update_run(run_id, error=HOSTILE)
    app = page_alone("runs", run=run_id)
    assert "[x](http" not in "\n".join(str(item.value) for item in (*app.markdown, *app.caption))


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_run_is_offered_as_a_report_in_every_format_and_as_a_run_file(store: Store, lang: str) -> None:
    run_id = bench(store, result={"output_tokens_per_s": 12.5, "provenance": "measured"})
    app = page_alone("runs", lang=lang, run=run_id)
    app.session_state[f"one-export-{run_id}"] = True  # its box is open
    app.run()
    labels = {button.label for button in app.get("download_button")}
    assert {translate(lang, f"report.{name}") for name in FORMATS} | {translate(lang, "runs.run_file")} <= labels


def test_facts_leave_out_guesses_and_cut_long_texts(store: Store) -> None:
    spec = {"workload": "chat", "guess_pct": 5, "predictions": {"a": 1}, "note": "x" * 1000, "rate_rps": None}
    run_id = store.create_run("bench", spec)
    told = {fact.name: fact.values[0] for fact in facts([store.get_run(run_id)])}
    assert not {"guess_pct", "predictions.a", "rate_rps"} & set(told) and len(told["note"]) < 250


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_run_is_told_in_other_tools_terms_with_how_they_differ(store: Store, lang: str) -> None:
    terms = in_other_terms(record(request([(100, 1), (120, 1)])))
    run_id = bench(store)
    store.update_run(run_id, result={"in_other_terms": terms})
    app = page_alone("runs", lang=lang, run=run_id)
    assert translate(lang, "runs.other_terms") in [item.label for item in app.expander]
    (table,) = [frame.value for frame in app.dataframe if "vllm" in set(frame.value.iloc[:, 0])]
    assert len(table) == sum(map(len, terms.values()))
    assert any("发送" in text for text in table.iloc[:, -1]) == (lang == "zh")
