"""The Load page: with no run, a stored sweep in both languages, what was not reached, and what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt
import pytest

from app.charts import load_chart, trade_chart
from app.i18n import catalogue, translate
from app.i18n.phrases import in_language
from experiments import sweep_view as view
from experiments.store import Store
from experiments.sweep.run import run_sweep
from experiments.sweep.spec import SweepSpec
from experiments.sweep_setup import OWN, RANGES, Choice
from ledger.errors import InputError
from tests.app.alone import StoredJob, page_alone, texts, used
from tests.experiments.fakes import FakeRig, VirtualClock

SPEC: dict[str, Any] = {
    "over": "concurrency", "values": [1, 2, 4, 8, 16], "workload": "equal", "max_tokens_cap": 8, "num_requests": 8,
    "slo": "ttft_p95=0.3,itl_p95=0.3", "demand_rps": 100, "find": False,
    "settings": {"max_num_seqs": 16, "kv_memory_mib": 8, "prefix_cache": "off"},
}  # fmt: skip
WORDS = {lang: {**catalogue(lang), **{k.removeprefix("chart."): v for k, v in catalogue(lang).items()}}
         for lang in ("en", "zh")}  # fmt: skip


def measure(**spec: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(spec, result) of a sweep on the fake engine."""
    checked = SweepSpec.from_dict({**SPEC, **spec}).to_dict()
    result = run_sweep(checked, None, "0badcafe", rig=FakeRig(VirtualClock()))  # type: ignore[arg-type]
    return checked, json.loads(json.dumps(result))


def valid(chart: alt.LayerChart) -> str:
    """The chart's JSON, once it is known to keep to the schema."""
    text = json.dumps(chart.to_dict(validate=False), ensure_ascii=False)
    alt.LayerChart.from_json(text)
    return text


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> StoredJob:
    home = tmp_path_factory.mktemp("home")
    store = Store(home / "runs.sqlite3")
    spec, result = measure()
    run_id = store.create_run("sweep", spec)
    store.update_run(run_id, state="done", result=result)
    return StoredJob(home, "sweep", run_id, spec, result)


@pytest.fixture
def home(measured: StoredJob) -> Iterator[Path]:
    yield from used(measured.home)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Path]:
    yield from used(tmp_path)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_without_a_run_the_page_asks_and_offers_one_button(empty: Path, lang: str) -> None:
    app, words = page_alone("load", lang=lang), catalogue(lang)
    assert app.title[0].value == words["load.question"] and words["load.intro"] in texts(app)
    assert not app.button(key="run").disabled


def test_a_wrong_objective_is_one_line_on_the_page(empty: Path) -> None:
    app = page_alone("load", slo="ttft=1")
    app.button(key="run").click().run()
    assert not app.exception and any("slo" in str(error.value) for error in app.error)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_finished_sweep_shows_the_sentence_charts_table_and_command(
    home: Path, measured: StoredJob, lang: str
) -> None:
    app, words = page_alone("load", run=measured.run_id, lang=lang), catalogue(lang)
    shown = texts(app)
    for key in ("throughput", "against_ttft", "against_itl", "cost_ttft", "cost_itl", "goodput", "memory", "points",
                "why", "trap", "kind_limit"):  # fmt: skip
        assert words[f"load.{key}"] in shown, key
    assert translate(lang, "load.memory_knee", low=8, high=translate(lang, "load.at_clients", n=16)) in shown
    limits = measured.result["limits"]
    assert translate(lang, "load.instances", count=limits["instances"], demand="100") in shown
    assert any(
        next(iter(frame.value.columns)) == words["load.col_point"] and len(frame.value) == 5 for frame in app.dataframe
    )
    assert "None" not in shown
    assert any("trilemma sweep --over concurrency=1,2,4,8,16" in code.value for code in app.code)
    if lang == "zh":
        assert "at a time" not in shown and "blocks" not in shown


def test_what_was_not_reached_is_said_and_no_limit_is_made_up(home: Path, measured: StoredJob) -> None:
    spec, result = measure(values=[1, 2], slo=None, demand_rps=5)
    run_id = measured.add(result=result, **spec)
    shown = texts(page_alone("load", run=run_id))
    assert translate("en", "load.no_memory_knee", top="2 at a time") in shown
    assert (
        translate("en", "load.kind_bound") in shown and "instances" not in shown.split(translate("en", "load.why"))[0]
    )
    assert view.verdict(result).limit_rps is None
    measured.store.delete_run(run_id)


def test_a_limit_that_no_higher_load_confirms_is_a_least_one(home: Path, measured: StoredJob) -> None:
    spec, result = measure(values=[1, 2], slo="ttft_p95=60", demand_rps=5)
    run_id = measured.add(result=result, **spec)
    shown = texts(page_alone("load", run=run_id))
    assert view.verdict(result).at_least and "serves at least" in shown
    assert translate("en", "capacity.at_least") in shown
    measured.store.delete_run(run_id)


def test_where_no_limit_follows_the_reason_is_said(home: Path, measured: StoredJob) -> None:
    spec, result = measure(values=[1, 2, 4], slo="ttft_p95=0.0001")
    run_id = measured.add(result=result, **spec)
    shown = texts(page_alone("load", run=run_id))
    assert "no lines: the objectives are missed at 1 already" in shown and "go lower or repeat" in shown
    measured.store.delete_run(run_id)


def test_a_sweep_of_a_variable_names_its_best_value(home: Path, measured: StoredJob) -> None:
    spec, result = measure(over="batching", values=["static", "continuous"], concurrency=8, demand_rps=None)
    run_id = measured.add(result=result, **spec)
    shown = texts(page_alone("load", run=run_id))
    assert translate("en", "load.best", best=result["goodput"]["label"]) in shown
    assert not view.is_numeric(result) and view.verdict(result).latency is None
    measured.store.delete_run(run_id)


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_a_stopped_sweep_offers_to_go_on(home: Path, measured: StoredJob, state: str) -> None:
    run_id = measured.add(state)
    app = page_alone("load", run=run_id)
    assert any(button.label == translate("en", "load.resume") for button in app.button)
    measured.store.delete_run(run_id)


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_charts_are_valid_and_a_log_scale_never_begins_at_zero(measured: StoredJob, mode: str, lang: str) -> None:
    result = measured.result
    rows = view.curve(result, "output_tokens_per_s")
    made = load_chart(rows, (4, 8), "tokens/s", "clients", mode, WORDS[lang])
    assert '"type": "log"' in valid(made)
    pressed = load_chart(view.memory_rows(result), None, "%", "clients", mode, WORDS[lang], limit=100.0)
    assert WORDS[lang]["pressed_points"] in valid(pressed)
    front = trade_chart(view.trade(result, "cost_per_million_output_tokens", "ttft_p95_s", "ttft_p95_s"), ("x", "y"),
                        ("", "s"), mode, WORDS[lang])  # fmt: skip
    assert WORDS[lang]["pareto"] in valid(front)


def test_the_command_measures_the_same(measured: StoredJob) -> None:
    assert view.sweep_command(measured.spec) == (
        "trilemma sweep --over concurrency=1,2,4,8,16 --workload equal --requests 8 --max-output 8"
        " --slo ttft_p95=0.3,itl_p95=0.3 --demand 100 --set max_num_seqs=16 --set kv_memory_mib=8"
        " --set prefix_cache=off"
    )


@pytest.mark.parametrize("over", RANGES)
def test_every_choice_is_a_valid_sweep(over: str) -> None:
    SweepSpec.from_dict(Choice(over=over, slo="ttft_p95=1", demand_rps=2).spec())


def test_a_range_of_ones_own_is_checked() -> None:
    assert SweepSpec.from_dict(Choice(over=OWN, typed="rate=1,2").spec()).values == (1.0, 2.0)
    with pytest.raises(InputError):
        Choice(over=OWN, typed="rate").spec()


def test_reasons_are_told_in_chinese(measured: StoredJob) -> None:
    _, calm = measure(values=[1, 2, 3], slo=None)
    told = [knee["reason"] for result in (measured.result, calm) for knee in result["knees"].values()]
    for text in told:
        found = in_language("zh", text)
        assert found != text and "knee" not in found and "latency" not in found and "waited" not in found, found
