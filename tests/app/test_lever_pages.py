"""Measured levers on the Cost page and water lines on the Load page, in both languages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt
import pytest

from app.charts import savings_chart
from app.i18n import catalogue, translate
from experiments.levers import LeversSpec, run_levers
from experiments.levers_view import largest, lever_rows, losing_quality
from experiments.report.reproduce import command_of
from experiments.store import Store
from experiments.sweep.run import run_sweep
from experiments.sweep.spec import SweepSpec
from tests.app.alone import page_alone, texts, used
from tests.experiments.fakes import FakeRig, VirtualClock

SPEC = {"num_requests": 8, "concurrency": 8, "repeats": 2, "levers": ["weights", "answer_cache", "concurrency"]}
SWEEP: dict[str, Any] = {
    "over": "concurrency", "values": [1, 2, 4, 8, 16], "workload": "equal", "max_tokens_cap": 8, "num_requests": 8,
    "slo": "ttft_p95=0.3,itl_p95=0.3", "demand_rps": 100, "find": False,
    "settings": {"max_num_seqs": 16, "kv_memory_mib": 8, "prefix_cache": "off"},
}  # fmt: skip


def rig() -> Any:
    return FakeRig(VirtualClock(), speed=lambda config: {"base_s": 0.004 if config.weights == "w8a16" else 0.010})


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str, dict[str, Any]]:
    """(home, id of the levers' run, id of the sweep, result of the levers)."""
    home = tmp_path_factory.mktemp("home")
    store = Store(home / "runs.sqlite3")
    spec = LeversSpec.from_dict(SPEC).to_dict()
    result = json.loads(json.dumps(run_levers(spec, None, "x", rig=rig())))
    levers = store.create_run("levers", spec)
    store.update_run(levers, state="done", result=result)
    checked = SweepSpec.from_dict(SWEEP).to_dict()
    swept = store.create_run("sweep", checked)
    store.update_run(swept, state="done", result=run_sweep(checked, None, swept, rig=rig()))
    return home, levers, swept, result


@pytest.fixture
def home(stored: tuple[Path, str, str, dict[str, Any]]) -> Iterator[Path]:
    yield from used(stored[0])


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Path]:
    yield from used(tmp_path)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_cost_page_shows_every_lever_with_its_interval_and_quality(
    home: Path, stored: tuple[Path, str, str, dict[str, Any]], lang: str
) -> None:
    app = page_alone("cost", lang=lang)
    words, said = catalogue(lang), texts(app)
    assert not app.exception and words["savings.title"] in said
    frames = [item.value for item in app.dataframe if words["savings.col_saved"] in item.value.columns]
    (frame,) = frames
    names = [*(row["name"] for row in stored[3]["levers"]), "together"]
    assert list(frame[words["savings.col_lever"]]) == [words[f"savings.{name}"] for name in names]
    assert words["savings.quality_how"] in said


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_without_levers_the_cost_page_names_the_command(empty: Path, lang: str) -> None:
    said = texts(page_alone("cost", lang=lang))
    assert catalogue(lang)["savings.none"] in said


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_load_page_shows_lines_instances_and_savings(
    home: Path, stored: tuple[Path, str, str, dict[str, Any]], lang: str
) -> None:
    app = page_alone("load", lang=lang, run=stored[2])
    words, said = catalogue(lang), texts(app)
    assert not app.exception and words["capacity.title"] in said
    labels = {one.label for one in app.metric}
    assert {words[f"capacity.{name}_rps"] for name in ("scale_out", "alarm", "refuse")} <= labels
    assert stored[1] in said and words["savings.weights"] in said
    assert any(words[f"capacity.{name}"] in said for name in ("may_fail", "may_not_fail", "alone"))


def test_the_demand_is_kept_in_the_address(home: Path, stored: tuple[Path, str, str, dict[str, Any]]) -> None:
    app = page_alone("load", run=stored[2], fleet_demand="0")
    assert translate("en", "capacity.no_demand") in texts(app)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_chart_has_a_mark_for_every_saving_and_keeps_to_the_schema(
    stored: tuple[Path, str, str, dict[str, Any]], mode: str
) -> None:
    words = {**catalogue("en"), **{k.removeprefix("chart."): v for k, v in catalogue("en").items()}}
    rows = [*lever_rows(stored[3]), {"name": "x", "saved": None, "ends": None, "verdict": "", "is_all": False}]
    chart = savings_chart(rows, mode, words)
    assert chart is not None
    text = json.dumps(chart.to_dict(validate=False), ensure_ascii=False)
    alt.LayerChart.from_json(text)
    assert text.count('"shown"') >= len(rows) - 1
    assert savings_chart(rows[-1:], mode, words) is None


def test_the_largest_saving_loses_no_quality(stored: tuple[Path, str, str, dict[str, Any]]) -> None:
    best = largest(stored[3])
    assert best is not None and best["verdict"] == "better"
    worse = json.loads(json.dumps(stored[3]))
    for row in worse["levers"]:
        row["quality"] = {"verdict": "worse", "change_pct": -50.0}
    assert largest(worse) is None and len(losing_quality(worse)) == len(worse["levers"])


def test_the_command_measures_the_same() -> None:
    spec = LeversSpec.from_dict({**SPEC, "settings": {"threads": 1}})
    line = str(command_of("levers", spec.to_dict()))
    assert "--levers weights=w8a16,answer_cache=on,concurrency=8" in line
    assert "--concurrency 8" in line and "--set threads=1" in line
