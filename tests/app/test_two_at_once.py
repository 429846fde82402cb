"""The 2 x 2 page: without a run, a stored experiment in both languages, a failed one; the way there; its chart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app.charts import interaction_chart
from app.components.picker import HELD
from app.i18n import catalogue
from experiments.factorial import FactorialSpec
from experiments.factorial.effects import judge_effects, readings
from experiments.report import reading_sentence
from experiments.store import Store
from tests.app.alone import PATIENCE_S, StoredJob, page_alone, texts, used
from tests.app.chart_rows import rows

LEVELS = (10.0, 20.0, 20.0, 20.0)


def metrics(level: float, repeat: int) -> dict[str, Any]:
    rate = level * (1 + 0.001 * repeat)
    return {"ttft_s": {"p95": 1 / rate}, "itl_s": {"p95": 1 / rate}, "output_tokens_per_s": rate,
            "cost_per_request": 1 / rate}  # fmt: skip


def stored_result(spec: FactorialSpec) -> dict[str, Any]:
    effects = judge_effects(
        [[metrics(level, repeat + arm % 2) for repeat in range(5)] for arm, level in enumerate(LEVELS)],
        [[0.5, 0.6]] * 4,
        alpha=0.05,
    )
    return json.loads(json.dumps({
        "kind": "factorial", "factors": [{"variable": n, "values": list(v)} for n, v in spec.factors],
        "arms": [{"values": values, "metrics": metrics(level, 0)}
                 for values, level in zip(spec.arm_values(), LEVELS, strict=True)],
        "effects": {name: [verdict.to_json() for verdict in found] for name, found in effects.items()},
        "readings": readings(effects), "repeats": 5, "alpha": 0.05, "cancelled": False, "held_equal": {},
        "held_because": {}, "warnings": ["a <warning>"], "run_id": "x", "workload": {"name": "mixed"},
    }))  # fmt: skip


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> StoredJob:
    home = tmp_path_factory.mktemp("home")
    spec = FactorialSpec()
    store = Store(home / "runs.sqlite3")
    run_id, result = store.create_run("factorial", spec.to_dict()), stored_result(spec)
    store.update_run(run_id, state="done", result=result)
    return StoredJob(home, "factorial", run_id, spec.to_dict(), result)


@pytest.fixture
def home(stored: StoredJob) -> Iterator[Path]:
    yield from used(stored.home)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Path]:
    yield from used(tmp_path)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_without_a_run_the_page_says_what_it_does_and_offers_one_button(empty: Path, lang: str) -> None:
    app, words = page_alone("factorial", lang=lang), catalogue(lang)
    assert app.title[0].value == words["two.question"] and words["two.intro"] in texts(app)
    assert not app.button(key="run").disabled


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_an_experiment_shows_its_readings_its_effects_and_its_warnings(
    home: Path, stored: StoredJob, lang: str
) -> None:
    app, words = page_alone("factorial", run=stored.run_id, lang=lang), catalogue(lang)
    shown = texts(app).replace("\\", "")
    reading = next(one for one in stored.result["readings"] if one["curve"] == "output_tokens_per_s")
    assert reading["verdict"] == "worse"
    assert reading_sentence(stored.result, reading, lang) in shown and words["f_is_worse"] in shown
    assert words["f_how"] in shown and "a <warning>" in shown
    assert len(app.dataframe) >= 6
    assert "None" not in shown and "nan" not in shown


def test_another_first_variable_brings_its_values_and_leaves_the_second_out(empty: Path) -> None:
    app = page_alone("factorial")
    assert "Batching" not in app.selectbox[0].options or app.selectbox[0].value == "kv_layout"
    app.selectbox[0].set_value("block_size").run()
    assert not app.exception
    assert [box.value for box in app.number_input] == [16, 64]


def test_a_failed_experiment_can_be_started_again(home: Path, stored: StoredJob) -> None:
    run_id = stored.add(state="failed")
    app = page_alone("factorial", run=run_id)
    assert app.button(key="restart")
    stored.store.delete_run(run_id)


def test_the_workbench_offers_a_second_variable_three_ways(empty: Path) -> None:
    app = AppTest.from_string("from app.views import workbench\nworkbench.page()\n", default_timeout=PATIENCE_S)
    app.session_state[HELD] = True
    app.run()
    assert not app.exception
    keys = {button.key for button in app.button}
    assert {"make-kv_layout", "two-kv_layout", "leave-kv_layout"} <= keys


def test_the_chart_has_a_line_for_each_value_and_the_product_as_a_ring() -> None:
    arms = [
        {"first": f"a={place % 2}", "second": f"b={place // 2}", "is_candidate": place >= 2, "value": value}
        for place, value in enumerate(LEVELS)
    ]
    words = {"arm": "arm", "value": "value", "product": "product"}
    for mode in ("light", "dark"):
        chart = interaction_chart(arms, 40.0, mode, words)
        found = rows(chart)
        assert [row["value"] for row in found if row.get("arm") == "product"] == [40.0]
        assert sorted({row["value"] for row in found if "is_candidate" in row}) == [10.0, 20.0]
    assert not [row for row in rows(interaction_chart(arms, None, "light", words)) if row.get("arm") == "product"]
