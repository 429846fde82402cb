"""The Parallel page: with no run, a stored check of the ranks, a split that differs, what is cancelled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.i18n import catalogue, translate
from experiments import ranks_view
from experiments.claims import ranks
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
def test_without_a_run_the_page_asks_and_offers_one_button(empty: Path, lang: str) -> None:
    app, words = page_alone("parallel", lang=lang), catalogue(lang)
    assert app.title[0].value == words["ranks.question"] and words["ranks.intro"] in texts(app)
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
