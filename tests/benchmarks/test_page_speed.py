"""The benchmark of the page's speed: the large run that it stores, and its table."""

from __future__ import annotations

from pathlib import Path

import page_speed as benchmark
import pytest

from experiments.store import Store


def test_the_stored_run_is_one_comparison_so_often_and_its_tokens_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(benchmark.LARGE, "num_requests", 4)
    store = Store(tmp_path / "runs.sqlite3")
    ids, tokens = benchmark.stored_run(store, 2)
    runs = [store.get_run(run_id) for run_id in ids]
    assert [run.state for run in runs] == ["done", "done"] and [run.result["run_id"] for run in runs] == ids
    assert store.record(ids[1], 1, 1) == store.record(ids[0], 1, 1)
    drawn = [store.record(ids[0], arm, 1)["requests"] for arm in (0, 1)]
    assert tokens == sum(len(request["output_token_ids"]) for requests in drawn for request in requests) > 0


def test_the_table_has_a_line_for_each_figure_with_its_limit() -> None:
    found = {"first": [1.0, 3.0, 2.0], "first_after_told": [0.5]}
    result = {
        "median_s": {"first": 2.0, "first_after_told": 0.5}, "limit_s": {"first": 2.0}, "tries_s": found,
    }  # fmt: skip
    _, first, after = benchmark.table(result).splitlines()
    assert first.split() == ["first", "2.000", "2", "1.000", "3.000"] and after.split() == [
        "first_after_told", "0.500", "0.500", "0.500",
    ]  # fmt: skip
