"""A ladder of a tiny random model, really measured: the comparison, the guard on real scores, what is kept of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.playbook import guard as guard_module
from experiments.playbook.guard import guard_quality
from experiments.playbook.run import run_ladder
from experiments.playbook.words import Says
from experiments.quality.items import Item
from experiments.store import Store
from tests.core_engine.conftest import make_llama

PROMPT = "the quick brown fox jumps over the lazy dog and "
ITEMS = [
    Item(f"i{i}", ("one", "two")[i % 2], PROMPT + "again " * (i % 5), (" a", " b", " it")[: 2 + i % 2], i % 2)
    for i in range(12)
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("tiny")
    make_llama(directory)
    return str(directory)


@pytest.fixture(autouse=True)
def few_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "default_items", lambda: ITEMS)


def settings(model: str) -> dict[str, Any]:
    return {"model": model, "dtype": "fp32", "kernels": "torch", "threads": 1, "kv_memory_mib": 4, "device": "cpu"}


def test_a_real_ladder_compares_guards_and_goes_on(model: str, tmp_path: Path) -> None:
    load = {"workload": "equal", "num_requests": 2, "max_tokens_cap": 3, "repeats": 2, "settings": settings(model)}
    refused = ["ranks", {"tensor_parallel": 2, "graph": "on"}]
    spec = {**load, "steps": ["continuous-paged", "kv-int8"], "own": [refused]}
    store = Store(tmp_path / "runs.sqlite3")
    run_id = store.create_run("ladder", spec)
    result = run_ladder(spec, store, run_id)
    rows = {row["name"]: row for row in result["steps"]}
    assert rows["continuous-paged"]["quality"] is None, "it can't change an answer"
    found = rows["kv-int8"]["quality"]
    assert found["items"] == len(ITEMS) and found["verdict"] in ("kept", "lost", "undecided")
    assert abs(found["drop"]) < 0.05 and found["ci95"][0] <= found["drop"] <= found["ci95"][1]
    assert rows["ranks"]["outcome"] == "can't run here" and "graph" in rows["ranks"]["reasons"][0]["error"]
    names = [curve["name"] for curve in rows["kv-int8"]["comparison"]["curves"]]
    assert names == ["ttft_s", "itl_s", "output_tokens_per_s", "cost_per_request", "quality"]
    assert (
        rows["kv-int8"]["comparison"]["derived"]["num_kv_blocks"][0]
        < (rows["kv-int8"]["comparison"]["derived"]["num_kv_blocks"][1])
    )
    assert all(Says(lang).report(result) for lang in ("en", "zh"))
    again = run_ladder(spec, store, run_id)
    assert [json.dumps(row, sort_keys=True) for row in again["steps"]] == [
        json.dumps(row, sort_keys=True) for row in json.loads(json.dumps(result))["steps"]
    ]


def test_the_guard_sees_no_loss_where_nothing_differs_and_one_where_keys_are_wrecked(model: str) -> None:
    asked: dict[str, Any] = {"most_drop": 0.0, "limit": 100, "kept": None, "rig": None}
    start = {**settings(model), "batching": "static", "kv_layout": "contiguous", "prefix_cache": "off"}
    same = guard_quality(start, {**start, "max_num_seqs": 3}, **asked)
    assert (same["verdict"], same["drop"]) == ("kept", 0.0)
    wrecked = guard_quality(start, {**start, "kv_dtype": "int2", "kv_key_axis": "token"}, **asked)
    assert wrecked["drop"] != 0.0 and wrecked["accuracy"]["start"] == same["accuracy"]["start"]
