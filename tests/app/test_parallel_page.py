"""Parallel & PD: both halves with no run, a stored check of the ranks, a stored jitter run, what is cancelled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.charts import jitter_chart
from app.i18n import catalogue, translate
from experiments import jitter_view, ranks_view
from experiments.claims import ranks
from experiments.jitter.spec import JitterSpec
from experiments.kinds import kind_of
from experiments.store import Store
from ledger.errors import InputError
from tests.app.alone import StoredJob, page_alone, texts, used


def splits(settings: Any, wanted: Any, repeats: int) -> list[dict[str, Any]]:
    """As ranks.run_splits gives them, of steps that nobody took."""
    told = {
        "equals_formula": True, "handed_bytes_per_step": 4096.0, "formula": "2 ranks x 61 all-reduces",
        "ring_factor": 1.0, "communication_share": 0.25, "bubble_share": 0.1,
    }  # fmt: skip
    return [
        {"tp": tp, "pp": pp, "ids": [[[1, 2]]] * repeats, "step_s": [0.01 if tp * pp == 1 else 0.015],
         "parallel": None if tp * pp == 1 else told, "threads": 2, "weights_bytes": [1000 // (tp * pp)]}
        for tp, pp in wanted
    ]  # fmt: skip


def arm(name: str, gap_s: float, transfers: Any = None) -> dict[str, Any]:
    figures = {"itl_p50_s": 0.01, "itl_p99_s": gap_s, "itl_max_s": gap_s, "beside_p99_s": gap_s, "alone_p99_s": 0.01,
               "first_gap_p95_s": 0.02, "ttft_p95_s": 0.4, "e2e_p95_s": 2.0, "output_tokens_per_s": 50.0,
               "completed": 8, "refused": 0, "failed": 0}  # fmt: skip
    timeline = [{"t_s": 0.5 * n, "itl_p50_s": 0.01, "itl_max_s": gap_s if n != 1 else None, "gaps": 3,
                 "prompt_tokens": 100 * n} for n in range(4)]  # fmt: skip
    return {"name": name, "settings": {}, "figures": figures, "repeats": [figures], "timeline": timeline,
            "transfers": transfers, "threads": 2, "metrics": {}, "provenance": "measured"}  # fmt: skip


def jitter_result(apart_s: float = 0.02) -> dict[str, Any]:
    """In the form of experiments/jitter/run.py."""
    ratio = {"ratio": apart_s / 0.2, "low": 0.9 * apart_s / 0.2, "high": 1.1 * apart_s / 0.2}
    moved = {"transfer_s": {"p50": 0.003}}
    return {
        "kind": "jitter",
        "arms": [arm("whole prompts", 0.2), arm("chunked", 0.05), arm("disaggregated", apart_s, moved)],
        "against_first": {"chunked": {"itl_p99_s": {"ratio": 0.25, "low": None, "high": None}, "ttft_p95_s": None},
                          "disaggregated": {"itl_p99_s": ratio, "ttft_p95_s": ratio}},
        "workload": {"name": "long-prompts"}, "repeats": 3, "settings": {}, "slo": None, "environment": {},
        "warnings": [], "cancelled": False, "run_id": "x", "provenance": "measured",
    }  # fmt: skip


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> StoredJob:
    home = tmp_path_factory.mktemp("home")
    store, spec = Store(home / "runs.sqlite3"), kind_of("claim").check(ranks_view.RanksChoice(2).spec())
    store.create_run("claim", {"claim": "C10", "options": {}})  # another claim's run is not this page's
    run_id = store.create_run("claim", spec)
    result = json.loads(json.dumps(ranks.check(spec["options"], run=splits)))
    store.update_run(run_id, state="done", result=result)
    return StoredJob(home, "claim", run_id, spec, result)


@pytest.fixture
def home(checked: StoredJob) -> Iterator[Path]:
    yield from used(checked.home)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Path]:
    yield from used(tmp_path)


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("half", ["ranks", "apart"])
def test_without_a_run_a_half_asks_and_offers_one_button(empty: Path, half: str, lang: str) -> None:
    app, words = page_alone("parallel", half=half, lang=lang), catalogue(lang)
    assert app.title[0].value == words[f"{half}.question"] and words[f"{half}.intro"] in texts(app)
    assert not app.button(key="run").disabled


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_checked_split_shows_tokens_bytes_times_and_what_each_rank_holds(
    home: Path, checked: StoredJob, lang: str
) -> None:
    app, words = page_alone("parallel", lang=lang), catalogue(lang)  # the newest run of this claim, not of another
    shown = texts(app)
    for key in ("ranks.same", "ranks.table", "ranks.links", "ranks.why", "ranks.trap"):
        assert words[key] in shown, key
    for label in ("measured", "computed", "simulated"):
        assert words[label] in shown, label
    assert "4,096" in str(app.table[0].value.to_numpy().tolist()) and "1.50 ×" in str(app.table[0].value.to_numpy())
    assert "None" not in shown


def test_a_split_that_differs_is_said_first(home: Path, checked: StoredJob) -> None:
    result = json.loads(json.dumps(checked.result))
    result["evidence"][1]["same_ids"] = False
    run_id = checked.add(result=result)
    assert translate("en", "ranks.differ_text") in texts(page_alone("parallel", run=run_id))
    checked.store.delete_run(run_id)


def test_ranks_hold_whole_groups_and_all_bytes_once() -> None:
    found = ranks_view.rank_table(2, 1)
    assert [row["query_heads"] for row in found.rows] == [6, 3] and [row["kv_heads"] for row in found.rows] == [2, 1]
    assert found.heads_imbalance == pytest.approx(6 / 4.5)
    three = ranks_view.rank_table(3, 1)
    assert three.heads_imbalance == 1 and three.bytes_imbalance == pytest.approx(1, abs=1e-3)
    with pytest.raises(InputError):
        ranks_view.rank_table(10, 1)


def test_a_cancelled_check_can_be_run_again(home: Path, checked: StoredJob) -> None:
    run_id = checked.add("cancelled")
    app = page_alone("parallel", run=run_id)
    assert any(button.label == translate("en", "ranks.resume") for button in app.button)
    checked.store.delete_run(run_id)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_jitter_run_shows_who_is_steadiest_over_time_and_in_figures(
    home: Path, checked: StoredJob, lang: str
) -> None:
    spec = JitterSpec.from_dict(jitter_view.JitterChoice().spec()).to_dict()
    run_id = checked.store.create_run("jitter", spec)
    checked.store.update_run(run_id, state="done", result=jitter_result())
    app, words = page_alone("parallel", run=run_id, lang=lang), catalogue(lang)
    shown = texts(app)
    for key in ("apart.course", "apart.table", "apart.why", "apart.trap"):
        assert words[key] in shown, key
    assert {"en": "disaggregated", "zh": "PD 分离"}[lang] in shown
    assert "20.0\u00a0ms" in shown and "200\u00a0ms" in shown and words["apart.undecided"] not in shown
    assert len(app.table[0].value) == 3
    checked.store.delete_run(run_id)


def test_a_ratio_whose_interval_holds_one_decides_nothing() -> None:
    assert jitter_view.is_decided({"ratio": 0.5, "low": 0.4, "high": 0.6})
    assert not jitter_view.is_decided({"ratio": 0.9, "low": 0.7, "high": 1.1})
    assert not jitter_view.is_decided({"ratio": 0.5, "low": None, "high": None}) and not jitter_view.is_decided(None)


def test_the_steadiest_arm_is_the_one_with_the_smallest_p99_and_no_arm_is_none() -> None:
    found = jitter_view.steadiest(jitter_result(apart_s=0.3))
    assert found is not None and found["name"] == "chunked"
    assert jitter_view.steadiest({"arms": [{"name": "a", "figures": {"itl_p99_s": None}}]}) is None


def test_no_arm_can_not_be_run() -> None:
    with pytest.raises(InputError):
        jitter_view.JitterChoice(arms=()).spec()
    names = JitterSpec.from_dict(jitter_view.JitterChoice().spec()).names()
    assert names == list(jitter_view.PLACES)  # the page's own names are those of the experiment


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_course_leaves_out_moments_without_a_gap(mode: str) -> None:
    result = jitter_result()
    rows, words = jitter_view.course(result), catalogue("en")
    names = {one["name"]: one["name"] for one in result["arms"]}
    spec = jitter_chart(rows, names, mode, {k.removeprefix("chart."): v for k, v in words.items()}).to_dict()
    lines = [layer for layer in spec["layer"] if layer["mark"]["type"] == "line"]
    drawn = [layer["data"]["values"] for layer in lines]
    assert len(drawn) == 3 and all(len(values) == 3 for values in drawn)
