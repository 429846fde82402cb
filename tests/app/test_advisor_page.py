"""The Advisor page: with nothing, a run, a pasted page, typed numbers; the test of an advice and the score."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import altair as alt
import pytest
from streamlit.testing.v1 import AppTest

from app.charts import WORD_KEYS, prediction_chart
from app.components.advisor_setup import NUMBERS_EXAMPLE
from app.i18n import catalogue, translate
from app.theme import TOKENS
from app.views import advisor as view
from experiments import jobs
from experiments.advisor import advice as module
from experiments.advisor.advice import advise
from experiments.advisor.causes import CAUSES
from experiments.advisor.diagnose import diagnose
from experiments.advisor.finding import OUTSIDE
from experiments.advisor.prediction import Prediction
from experiments.advisor.record import with_prediction
from experiments.advisor.record_score import score
from experiments.advisor_view import Asked, evidence_of_numbers, next_step, score_rows
from experiments.spec import BenchSpec, CompareSpec
from experiments.store import Store
from tests.app.alone import page_alone, texts, used
from tests.app.conftest import Sample
from tests.experiments.predicted import stored_comparison
from tests.experiments.test_advice import BASE, SPEC, prediction

OVERLOADED = f"""{NUMBERS_EXAMPLE}
slo = "ttft_p95=1.0"
kv = {{ used_share = 0.4 }}
"""


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Path]:
    yield from used(tmp_path)


def typed(lang: str = "en") -> AppTest:
    app = page_alone("advisor", **{"from": "numbers"}, lang=lang)
    app.text_area(key="advisor-numbers-text").set_value(OVERLOADED).run()
    assert not app.exception
    return app


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_with_nothing_stored_the_page_says_how_to_begin(empty: Path, lang: str) -> None:
    app, words = page_alone("advisor", lang=lang), catalogue(lang)
    assert app.title[0].value == words["advisor.question"]
    for key in ("advisor.intro", "advisor.no_runs", "advisor.no_score"):
        assert words[key] in texts(app), key


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_typed_numbers_give_ranked_causes_one_change_and_flags_of_four_engines(empty: Path, lang: str) -> None:
    app, words = typed(lang), catalogue(lang)
    shown = texts(app)
    assert words["advisor.cause_queue-bound"] in shown and words["advisor.next"] in shown
    assert words["advisor.no_test"] in shown and app.button(key="test").disabled
    for engine in ("vLLM", "SGLang", "TensorRT-LLM", "llama.cpp"):
        assert engine in shown, engine
    assert "--max-num-seqs" in shown


@pytest.mark.parametrize(("kind", "text"), [("metrics", "not a page at all {"), ("numbers", "ttft_s = = 3")])
def test_what_can_not_be_read_is_one_line(empty: Path, kind: str, text: str) -> None:
    app = page_alone("advisor", **{"from": kind})
    app.text_area(key=f"advisor-{kind}-text").set_value(text).run()
    assert not app.exception and len(app.error) == 1


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_stored_run_is_diagnosed_with_its_own_evidence(home: Path, sample: Sample, lang: str) -> None:
    app = page_alone("advisor", run=sample.run_id, arm="1", lang=lang)
    assert f"run {sample.run_id}" in texts(app) or sample.run_id in texts(app)
    verdicts = [catalogue(lang)[f"advisor.verdict_{name}"] for name in ("found", "healthy", "not_enough_evidence")]
    assert any(verdict in texts(app) for verdict in verdicts)


def test_the_button_starts_the_comparison_with_its_prediction(
    home: Path, sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "predict", lambda spec, store, tokenizer=None: prediction({"ttft_s": -0.5}))
    started: list[str] = []
    monkeypatch.setattr(jobs, "_start_worker", lambda run_id, store: started.append(run_id))
    found = diagnose(evidence_of_numbers(OVERLOADED, None))
    made = advise(found.findings, BenchSpec.from_dict({**BASE.to_dict(), "settings": {"max_num_seqs": 64}}), None)
    assert made is not None and made.prediction is not None
    monkeypatch.setattr(view, "asked", lambda *given: Asked(found, made))
    app = page_alone("advisor", run=sample.run_id, arm="0")
    shown = texts(app)
    assert translate("en", "advisor.predicted") in shown
    app.button(key="test").click().run()
    assert not app.exception and started
    stored = Store(home / "runs.sqlite3").get_run(started[0])
    assert stored.spec["predictions"]["curves"] and app.query_params["test"] in (stored.id, [stored.id])
    Store(home / "runs.sqlite3").delete_run(stored.id)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_finished_test_shows_the_verdict_beside_the_prediction_and_counts(empty: Path, lang: str) -> None:
    store = Store(empty / "runs.sqlite3")
    said: Prediction = prediction({"ttft_s": -0.7, "itl_s": 0.0})
    spec = with_prediction(CompareSpec.from_dict(SPEC).to_dict(), said)
    run_id = stored_comparison(store, spec, {"ttft_s": 0.5})
    run = store.get_run(run_id)
    arms = [{"value": value, "metrics": {}} for value in SPEC["values"]]
    store.update_run(run_id, result={**(run.result or {}), "arms": arms, "repeats": 5})
    app, words = page_alone("advisor", test=run_id, lang=lang), catalogue(lang)
    shown = texts(app)
    assert words["advisor.beside"] in shown and words["advisor.score"] in shown
    tables = "\n".join(table.value.to_string() for table in app.table)
    assert words["better"] in tables and words["advisor.yes"] in tables and words["advisor.unpredicted"] in tables


def test_an_unknown_test_is_said_and_forgotten(empty: Path) -> None:
    app = page_alone("advisor", test="0badcafe")
    assert len(app.warning) == 1 and "test" not in app.query_params


def test_every_cause_and_what_it_means_is_named_in_both_languages() -> None:
    for lang in ("en", "zh"):
        words = catalogue(lang)
        for cause in CAUSES:
            assert {f"advisor.cause_{cause.name}", f"advisor.means_{cause.name}"} <= set(words), cause.name
        assert {f"advisor.outside_{name}" for name in OUTSIDE} <= set(words)


def test_the_score_has_rows_for_what_was_predicted_alone(empty: Path) -> None:
    store = Store(empty / "runs.sqlite3")
    assert score_rows(score(store)) == []
    stored_comparison(store, with_prediction(CompareSpec.from_dict(SPEC).to_dict(), prediction({"ttft_s": -0.7})), {})
    names = [(row["group"], row["part"]) for row in score_rows(score(store))]
    assert ("curve", "ttft_s") in names and ("curve", "itl_s") not in names and ("rule", "no change") in names


def test_the_workbench_leads_on_to_the_advisor(home: Path, sample: Sample) -> None:
    app = page_alone("workbench", run=sample.run_id)
    assert translate("en", "advisor.next_step") in texts(app)


def test_a_run_without_its_record_has_no_next_step(empty: Path) -> None:
    store = Store(empty / "runs.sqlite3")
    run_id = stored_comparison(store, CompareSpec.from_dict(SPEC).to_dict(), {})
    assert next_step(store.get_run(run_id), store) is None


def test_typed_json_is_read_as_toml_is() -> None:
    assert evidence_of_numbers('{"ttft_s": {"p95": 2.0}}', None).ttft_p95_s == 2.0
    assert evidence_of_numbers("ttft_s = { p95 = 2.0 }", "ttft_p95=1").objectives


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("measured", [None, -45.0])
def test_the_chart_has_a_band_a_curve_that_is_predicted_and_a_mark_where_it_was_measured(
    mode: str, measured: float | None
) -> None:
    words = {key: f"<{key}>" for key in WORD_KEYS}
    rows = [
        {"name": "TTFT", "median_pct": -40.0, "band80_pct": [-50.0, -30.0], "measured_pct": measured},
        {"name": "ITL", "median_pct": 700.0, "band80_pct": [100.0, 5000.0], "measured_pct": None},
        {"name": "Cost", "median_pct": None, "band80_pct": None, "measured_pct": None},
    ]
    chart = prediction_chart(rows, mode, words)
    text = json.dumps(chart.to_dict(validate=False))
    alt.LayerChart.from_json(text)
    assert '"TTFT"' in text and '"Cost"' not in text and ('"measured": -45.0' in text) is (measured is not None)
    assert TOKENS[mode]["simulated"] in text
