"""The Speculation page: with no run, predictions before results, a stored run in both languages, and what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt
import pytest

from app.charts import batch_chart, break_even_chart
from app.i18n import catalogue, translate
from experiments import speculation_view as view
from experiments.speculation.expected import lock_in
from experiments.speculation.run import run_speculation
from experiments.speculation.spec import SpeculationSpec
from experiments.speculation_setup import Choice
from experiments.store import Store
from ledger.errors import InputError
from tests.app.alone import StoredJob, page_alone, texts, used
from tests.experiments.fakes import FakeRig, VirtualClock

SPEC: dict[str, Any] = {
    "forms": ["ngram"], "tasks": ["chat", "copy"], "prompts": 2, "max_tokens": 48, "repeats": 2, "batches": [1, 4],
}  # fmt: skip
WORDS = {lang: {**catalogue(lang), **{k.removeprefix("chart."): v for k, v in catalogue(lang).items()}}
         for lang in ("en", "zh")}  # fmt: skip


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> StoredJob:
    home, clock = tmp_path_factory.mktemp("home"), VirtualClock()
    store, spec = Store(home / "runs.sqlite3"), SpeculationSpec.from_dict(SPEC).to_dict()
    run_id = store.create_run("speculation", spec)
    result = json.loads(json.dumps(run_speculation(spec, store, run_id, rig=FakeRig(clock), spend=clock.sleep)))
    store.update_run(run_id, state="done", result=result)
    return StoredJob(home, "speculation", run_id, spec, result)


@pytest.fixture
def home(measured: StoredJob) -> Iterator[Path]:
    yield from used(measured.home)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Path]:
    yield from used(tmp_path)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_without_a_run_the_page_asks_and_offers_one_button(empty: Path, lang: str) -> None:
    app, words = page_alone("speculation", lang=lang), catalogue(lang)
    assert app.title[0].value == words["spec.question"] and words["spec.intro"] in texts(app)
    assert not app.button(key="run").disabled


def test_no_task_can_not_be_run(empty: Path) -> None:
    app = page_alone("speculation", tasks="-")
    assert app.button(key="run").disabled and translate("en", "spec.choose_one") in texts(app)
    with pytest.raises(InputError):
        Choice(tasks=()).spec()


def test_results_are_hidden_until_predictions_are_entered(home: Path, measured: StoredJob) -> None:
    run_id = measured.add(result=measured.result)
    app = page_alone("speculation", run=run_id)
    assert translate("en", "spec.predict_ready") in texts(app) and not app.table
    {field.key: field for field in app.number_input}[f"predict-{run_id}-0-alpha"].set_value(0.6)
    next(b for b in app.button if b.label == translate("en", "quant.lock_in_show")).click().run()
    assert not app.exception
    assert measured.store.get_run(run_id).spec["predictions"] == {"ngram": {"alpha": 0.6, "speedup": None}}
    assert translate("en", "quant.compared") in texts(app)
    with pytest.raises(InputError):
        lock_in(run_id, {}, measured.store)
    measured.store.delete_run(run_id)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_finished_run_shows_verdict_table_charts_and_export(home: Path, measured: StoredJob, lang: str) -> None:
    run_id = measured.add(result=measured.result, predictions={})
    app, words = page_alone("speculation", run=run_id, lang=lang), catalogue(lang)
    shown = texts(app)
    for key in ("spec.pays", "spec.table", "spec.break_even", "spec.batches", "spec.formula", "spec.why", "spec.trap"):
        assert words[key] in shown, key
    table = app.table[0].value
    assert len(table) == 4  # two tasks, plain decoding and one form each
    assert "≈" not in shown and "None" not in shown
    assert any("trilemma speculation" in code.value for code in app.code)
    measured.store.delete_run(run_id)


def test_a_form_that_could_not_run_is_named_with_its_reason(home: Path, measured: StoredJob) -> None:
    result = {**measured.result, "unavailable": [{"form": "ngram", "reason": "draft_model: no draft for this model"}]}
    run_id = measured.add(result=result, predictions={})
    assert "no draft for this model" in texts(page_alone("speculation", run=run_id))
    measured.store.delete_run(run_id)


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_a_stopped_run_offers_to_go_on(home: Path, measured: StoredJob, state: str) -> None:
    run_id = measured.add(state, predictions={})
    app = page_alone("speculation", run=run_id)
    assert any(button.label == translate("en", "spec.resume") for button in app.button)
    measured.store.delete_run(run_id)


def test_refusals_are_said_with_the_figure_that_stands_in_the_way(home: Path, measured: StoredJob) -> None:
    result = json.loads(json.dumps(measured.result))
    for part in result["tasks"]:
        for row in part["rows"]:
            row["advice"] = {**row["advice"], "verdict": "refuses", "reason": "acceptance", "needed_alpha": 0.77}
    run_id = measured.add(result=result, predictions={})
    shown = texts(page_alone("speculation", run=run_id))
    assert translate("en", "spec.refused") in shown and "0.77" in shown
    assert translate("en", "spec.sentence_none") in shown
    measured.store.delete_run(run_id)


def test_figures_of_the_view_are_those_of_the_result(measured: StoredJob) -> None:
    tables = view.task_tables(measured.result)
    assert [table.task for table in tables] == ["chat", "copy"]
    constructed = view.constructed_rows(measured.result)
    assert [row.made[0] for row in constructed if row.made] == [0.3, 0.3, 0.5, 0.7, 0.9, 1.0]
    choices = view.curve_choices(measured.result)
    assert choices[0].form == "ngram" and len(choices) == 3
    curve = view.curve_of(choices[1])
    assert curve is not None and curve.needed is not None
    assert min(s for a, s in curve.points if a > curve.needed) > 1 > max(s for a, s in curve.points if a < curve.needed)
    poor = next(row for row in constructed if row.made and row.made[2])
    assert view.arithmetic(poor)[-1].endswith(f"= {poor.predicted:.3f} x")
    assert view.batch_where_gain_ends(measured.result, "ngram") is None


def test_the_command_says_what_differs_from_the_defaults(measured: StoredJob) -> None:
    assert view.speculation_command(SpeculationSpec().to_dict()) == "trilemma speculation"
    command = view.speculation_command({**measured.spec, "settings": {"dtype": "fp32"}, "constructed": False})
    assert "--set dtype=fp32" in command and "--tasks chat,copy" in command and "--batches 1,4" in command
    assert command.endswith("--no-constructed")


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_charts_are_valid_and_keep_every_point(mode: str, lang: str) -> None:
    marks: list[dict[str, Any]] = [
        {"form": form, "name": form, "alpha": 0.2 + 0.2 * place, "speedup": 0.8 + 0.3 * place, "predicted": 1.0,
         "ci95": (0.7, 2.0) if place else None, "kind": kind}
        for place, (form, kind) in enumerate((("ngram", "chosen"), ("eagle", "other"), ("made", "constructed")))
    ]  # fmt: skip
    chart = break_even_chart([(0.0, 0.6), (1.0, 2.4)], 0.4, marks, mode, WORDS[lang])
    spec = json.loads(json.dumps(chart.to_dict(validate=False)))
    alt.LayerChart.from_dict(spec)
    drawn = [value for layer in spec["layer"] for value in layer["data"]["values"] if "kind" in value]
    assert {value["name"] for value in drawn} == {"ngram", "eagle", "made"}
    assert WORDS[lang]["needed_alpha"].format(value="0.40") in json.dumps(spec, ensure_ascii=False)
    rows = [
        {
            "name": name,
            "batch": batch,
            "speedup": 2.0 / batch,
            "ci95": None,
            "alpha": 0.8,
            "constructed": name == "made",
        }
        for name in ("ngram", "made")
        for batch in (1, 2, 4)
    ]
    alt.LayerChart.from_dict(json.loads(json.dumps(batch_chart(rows, mode, WORDS[lang]).to_dict(validate=False))))


def test_an_interval_beyond_the_chart_ends_in_an_arrow_and_leaves_the_scale() -> None:
    mark = {"form": "ngram", "name": "ngram", "alpha": 0.9, "speedup": 2.0, "predicted": 2.0, "ci95": (0.01, 9e6),
            "kind": "chosen"}  # fmt: skip
    spec = json.dumps(
        break_even_chart([(0.0, 0.6), (1.0, 2.4)], 0.4, [mark], "light", WORDS["en"]).to_dict(validate=False)
    )
    layers = json.loads(spec)["layer"]
    assert any(layer["mark"].get("shape") == "triangle-up" for layer in layers)
    scales = [layer["encoding"].get("y", {}).get("scale") for layer in layers]
    highest = max(scale["domain"][1] for scale in scales if scale)
    assert highest < 5


def test_what_is_undecided_is_not_called_a_loss(home: Path, measured: StoredJob) -> None:
    result = json.loads(json.dumps(measured.result))
    for place, part in enumerate(result["tasks"]):
        for row in part["rows"]:
            row["advice"] = {
                **row["advice"],
                "verdict": ("refuses", "unknown")[place],
                "reason": ("drafting", "")[place],
            }
    run_id = measured.add(result=result, predictions={})
    shown = texts(page_alone("speculation", run=run_id))
    assert translate("en", "spec.sentence_unsure", count=1, refused=1) in shown
    assert translate("en", "spec.sentence_none") not in shown
    measured.store.delete_run(run_id)
