"""The Quantization page: with no run, predictions before results, a stored run in both languages, and what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt
import pytest

from app.charts import quality_chart
from app.i18n import catalogue, translate
from core_engine.variables import W4A16
from experiments.quality.evaluation import run_evaluation
from experiments.quality.predictions import lock_in
from experiments.quality.spec import EvalSpec
from experiments.store import Store
from tests.app.alone import StoredJob, page_alone, texts, used
from tests.core_engine.conftest import make_llama

PROMPT = "the quick brown fox jumps over the lazy dog and "
ITEMS = [
    {"id": f"i{i}", "slice": ("one", "two")[i % 2], "prompt": PROMPT + "again " * i,
     "choices": [" a", " b", " long one"][: 2 + i % 2], "answer": i % 2}
    for i in range(8)
]  # fmt: skip
ARMS = [{"weights": "w8a8"}, {"weights": "w4a16-rtn", "weight_group": "32"}, {"kv_dtype": "int8"}]
LABELS = ["weights=w8a8", "weights=w4a16-rtn, weight_group=32", "kv_dtype=int8"]


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> StoredJob:
    """Three formats of a tiny random model against bf16: 8 items, a text, timed steps."""
    home, model = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("tiny")
    make_llama(model, hidden_size=96, intermediate_size=192)
    (home / "items.jsonl").write_text("\n".join(map(json.dumps, ITEMS)), "utf-8")
    (home / "text.txt").write_text("It was a bright cold day in April. " * 4, "utf-8")
    settings = {"model": str(model), "dtype": "bf16", "threads": 1, "kv_memory_mib": 4, "device": "cpu"}
    files = {"items": [str(home / "items.jsonl")], "texts": [str(home / "text.txt")]}
    spec = EvalSpec.from_dict({"settings": settings, "arms": ARMS, "speed": True, **files}).to_dict()
    store = Store(home / "runs.sqlite3")
    run_id = store.create_run("eval", spec)
    result = run_evaluation(spec, store, run_id)
    store.update_run(run_id, state="done", result=result)
    return StoredJob(home, "eval", run_id, spec, result)


@pytest.fixture
def home(evaluated: StoredJob) -> Iterator[Path]:
    yield from used(evaluated.home)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Path]:
    yield from used(tmp_path)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_without_a_run_the_page_asks_and_offers_one_button(empty: Path, lang: str) -> None:
    app, words = page_alone("quantization", lang=lang), catalogue(lang)
    assert app.title[0].value == words["quant.question"] and words["quant.intro"] in texts(app)
    assert not app.button(key="run").disabled
    assert app.pills[0].value == ["w8a8", *W4A16]


def test_nothing_chosen_can_not_be_run_and_the_address_keeps_the_choice(empty: Path) -> None:
    app = page_alone("quantization", weights="-", kv="-")
    assert app.button(key="run").disabled and translate("en", "quant.choose_one") in texts(app)
    app.pills[1].set_value(["int2-outliers", "int4"]).run()
    assert app.query_params["kv"] in ("int4,int2-outliers", ["int4,int2-outliers"])
    assert not app.button(key="run").disabled


def test_a_choice_that_is_not_accepted_is_passed_over_in_one_line(empty: Path) -> None:
    app = page_alone("quantization", weights="w3a16", limit="7")
    assert len(app.warning) == 1 and "weights=w3a16" in app.warning[0].value and "limit=7" in app.warning[0].value


def test_a_format_that_the_model_refuses_is_one_line_with_what_is_accepted(home: Path, evaluated: StoredJob) -> None:
    run_id = evaluated.add("failed")
    said = "weight_group: 128 is not accepted; accepted: 64 or 32, which divide the input widths of this model"
    evaluated.store.update_run(run_id, error=said)
    app = page_alone("quantization", run=run_id)
    assert len(app.error) == 1 and said in app.error[0].value.replace("\\_", "_") and "\n" not in app.error[0].value
    evaluated.store.delete_run(run_id)


def test_results_are_hidden_until_predictions_are_entered(home: Path, evaluated: StoredJob) -> None:
    run_id = evaluated.add(result=evaluated.result)
    app = page_alone("quantization", run=run_id)
    assert translate("en", "quant.predict_ready") in texts(app) and not app.table
    assert f"## {translate('en', 'quant.slices')}" not in texts(app)
    fields = {field.key: field for field in app.number_input}
    fields[f"predict-{run_id}-0-memory_pct"].set_value(50.0)
    fields[f"predict-{run_id}-2-accuracy_points"].set_value(-2.0)
    next(b for b in app.button if b.label == translate("en", "quant.lock_in_show")).click().run()
    assert not app.exception
    kept = evaluated.store.get_run(run_id).spec["predictions"]
    assert set(kept) == {LABELS[0], LABELS[2]} and kept[LABELS[0]]["memory_pct"] == 50.0
    compared = next(t.value for t in app.table if translate("en", "quant.expected") in t.value.columns)
    assert list(compared[translate("en", "quant.format")]) == ["W8A8", "KV INT8"]
    assert compared[translate("en", "quant.expected")][0] == "50.0 %"
    again = page_alone("quantization", run=run_id)  # a reload
    assert translate("en", "quant.predict_ready") not in texts(again) and len(again.table) == len(app.table)
    evaluated.store.delete_run(run_id)


def test_predictions_can_be_skipped(home: Path, evaluated: StoredJob) -> None:
    run_id = evaluated.add(result=evaluated.result)
    app = page_alone("quantization", run=run_id)
    next(b for b in app.button if b.label == translate("en", "quant.skip")).click().run()
    assert evaluated.store.get_run(run_id).spec["predictions"] == {}
    assert translate("en", "quant.no_predictions") in texts(app) and app.table
    evaluated.store.delete_run(run_id)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_stored_evaluation_is_shown_in_full(home: Path, evaluated: StoredJob, lang: str) -> None:
    run_id = evaluated.add(result=evaluated.result, predictions={})
    app, words = page_alone("quantization", run=run_id, lang=lang), catalogue(lang)
    shown = texts(app)
    for key in ("formats", "slices", "against_bits", "holds", "speed", "quality"):
        assert words[f"quant.{key}"] in shown, key
    assert words["quant.trap"] in shown and words["quant.why"] in shown
    formats = next(t.value for t in app.table if words["quant.fits"] in t.value.columns)
    assert list(formats[words["quant.format"]])[1:] == ["W8A8", "W4A16 RTN g32", "KV INT8"]
    assert words["quant.fits_w8a8"] in formats[words["quant.fits"]][1]
    assert words["quant.no_calibration"] in formats[words["quant.calibration"]][3]
    assert "parameters in" not in shown if lang == "zh" else "parameters in" in shown
    charts = len(app.get("arrow_vega_lite_chart")) + len(app.get("vega_lite_chart"))
    assert charts == 2
    assert "trilemma eval" in app.code[0].value and "--candidate weights=w8a8" in app.code[0].value
    evaluated.store.delete_run(run_id)


def test_a_slice_that_lost_is_red_and_named_though_the_mean_did_not_move(home: Path, evaluated: StoredJob) -> None:
    result = json.loads(json.dumps(evaluated.result))
    for row in result["baseline"]["slices"]:
        row["signal"] = row["slice"] != "two"
    for row in result["candidates"][1]["slices"]:
        lost = row["slice"] == "one"
        row |= {"scored_by": "accuracy", "change_points": -12.0 if lost else -1.0, "change_ci95": [-20.0, -4.0]}
        row["verdict"] = "worse" if lost else "no difference"
    run_id = evaluated.add(result=result, predictions={})
    app = page_alone("quantization", run=run_id)
    red = [str(item.value) for item in app.markdown if str(item.value).startswith(":red[▼")]
    assert len(red) == 1 and "W4A16 RTN g32 lost: one" in red[0] and translate("en", "quant.mean_still") in red[0]
    slices = next(t.value for t in app.table if translate("en", "quant.slice") in t.value.columns)
    assert ":red-badge[▼ −12.0]" in slices["W4A16 RTN g32"][0]
    assert translate("en", "quant.hidden") in slices["W4A16 RTN g32"][0]
    assert translate("en", "quant.no_signal") in slices[translate("en", "quant.baseline")][1]
    evaluated.store.delete_run(run_id)


def test_an_older_evaluation_without_bytes_and_speed_still_shows_its_quality(home: Path, evaluated: StoredJob) -> None:
    result = json.loads(json.dumps(evaluated.result))
    for arm in (result["baseline"], *result["candidates"]):
        del arm["held"], arm["speed"]
    run_id = evaluated.add(result=result, predictions={})
    app = page_alone("quantization", run=run_id)
    assert translate("en", "quant.slices") in texts(app)
    assert translate("en", "quant.holds") not in texts(app)
    evaluated.store.delete_run(run_id)


def test_a_killed_engine_is_said_and_can_be_resumed(home: Path, evaluated: StoredJob) -> None:
    run_id = evaluated.add("running")
    evaluated.store.update_run(run_id, pid=2**22 - 1, pid_started=1.0)
    app = page_alone("quantization", run=run_id)
    assert "the engine process ended" in app.error[0].value
    assert app.button(key="restart").label == translate("en", "quant.resume")
    evaluated.store.delete_run(run_id)
    run_id = evaluated.add("cancelled")
    assert page_alone("quantization", run=run_id).button(key="resume")
    evaluated.store.delete_run(run_id)


def test_an_unknown_run_is_named(home: Path) -> None:
    assert "deadbeef" in page_alone("quantization", run="deadbeef").warning[0].value


def test_predictions_are_said_once_and_checked(evaluated: StoredJob) -> None:
    from ledger.errors import InputError

    run_id = evaluated.add(result=evaluated.result)
    with pytest.raises(InputError, match="decode_speedup"):
        lock_in(run_id, {LABELS[0]: {"decode_speedup": 1e9}}, evaluated.store)
    with pytest.raises(InputError, match="weights=w8a8"):
        lock_in(run_id, {"other": {}}, evaluated.store)
    lock_in(run_id, {}, evaluated.store)
    with pytest.raises(InputError, match="before"):
        lock_in(run_id, {}, evaluated.store)
    evaluated.store.delete_run(run_id)


def point(name: str, bits: float | None, change: float | None = -1.0, is_base: bool = False) -> dict[str, Any]:
    ci95 = None if change is None else (change - 1, change + 1)
    return {"name": name, "bits": bits, "change": change, "ci95": ci95, "is_base": is_base}


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_chart_keeps_formats_of_the_same_bits_apart(mode: str) -> None:
    words = {key: key for key in ("format", "bits", "change", "interval_95")}
    rows = [point("base", 16.0, None, True), point("a", 6.8), point("b", 6.8), point("c", 9.7), point("d", None)]
    chart = quality_chart(rows, "points", mode, words)
    assert chart is not None
    spec = json.loads(json.dumps(chart.to_dict(validate=False)))
    alt.LayerChart.from_dict(spec)  # checks it against the schema
    assert spec["layer"][0]["encoding"]["y"]["scale"]["domain"][0] <= -2
    assert max(spec["layer"][1]["encoding"]["x"]["scale"]["domain"]) >= 16
    offsets = [layer["mark"]["xOffset"] for layer in spec["layer"] if layer["mark"].get("type") == "point" and
               "xOffset" in layer["mark"]]  # fmt: skip
    assert len(offsets) == 3 and offsets[0] != offsets[1] and offsets[2] == 0
    assert quality_chart(rows[:1], "points", mode, words) is None
