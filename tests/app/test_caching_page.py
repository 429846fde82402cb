"""The Caching page: without a run, with pairs and traffic, with pairs alone, and with an old answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.charts import WORD_KEYS, caching_chart
from app.i18n import catalogue, translate
from experiments.caching.evaluation import THRESHOLDS, share
from experiments.caching.spec import CacheSpec
from experiments.caching_view import (
    CachingChoice,
    arm_rows,
    cache_command,
    curve_rows,
    default_threshold,
    lowest_of_interest,
    traffics,
)
from experiments.store import Store
from tests.app.alone import StoredJob, page_alone, texts, used
from tests.app.chart_rows import rows as drawn


def row(threshold: float) -> dict[str, Any]:
    part = max(0, round(156 * (1 - threshold)))
    counts = {"hit": part, "wrong": part // 50, "hit_ungated": part, "wrong_ungated": part, "crowd_hit": part}
    shares = {name: share(count, 156) for name, count in counts.items()}
    of_all = {"crowd_wrong": share(part // 20, 312), "stranger_wrong": share(part // 9, 312)}
    return {"threshold": threshold, **shares, **of_all}


def arm(name: str, hits: int) -> dict[str, Any]:
    spans = {"p50": 0.002, "n": hits}
    cache = {
        "hits": {"exact": hits, "semantic": 0}, "hit_rate": 0.5, "judged": hits, "wrong": 0, "wrong_hit_rate": 0.0,
        "saved_prefill_tokens": 1200, "saved_decode_tokens": 900, "saved_share": 0.4, "ttft_hit_s": spans,
        "ttft_miss_s": {"p50": None, "n": 0}, "lookup_s": spans,
    }  # fmt: skip
    metrics = {"ttft_s": {"p50": 0.2}, "output_tokens_per_s": 40.0}
    return {
        "name": name,
        "settings": {},
        "cache": cache if hits else None,
        "metrics": metrics,
        "provenance": "measured",
    }


def result_of(old: bool = False, traffic: bool = True) -> dict[str, Any]:
    """In the form of experiments/caching/run.py."""
    ratio = {"ratio": 0.5, "low": 0.4, "high": 0.6}
    changes = [{"change": "nothing", "exact": True, "semantic": True, "must_hit": True}]
    changes += [{"change": "system prompt", "exact": old, "semantic": False, "must_hit": False}]
    pairs = [
        {"language": language, "half": "held", "paraphrases": 156, "near_misses": 156, "chosen": row(0.9),
         "curve": [row(each) for each in THRESHOLDS], "apart": {"paraphrase": {}, "near_miss": {"numbers": 20}},
         "provenance": "measured"}
        for language in ("en", "zh")
    ]  # fmt: skip
    arms = [arm("no cache", 0), arm("exact", 12), arm("exact and semantic", 20)]
    against = {name: {"ttft_s": ratio, "tokens_per_s": None} for name in ("exact", "exact and semantic")}
    served = {"arms": arms, "against_first": against, "workload": {"name": "repetitive"}, "repeats": 3}
    return {
        "kind": "cache", "pairs": pairs, "staleness": changes, "fresh": not old, "traffic": served if traffic else None,
        "encoder": "an encoder", "threshold": 0.9, "half": "held", "settings": {}, "warnings": [], "environment": {},
        "cancelled": False, "run_id": "x", "provenance": "measured",
    }  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> StoredJob:
    home = tmp_path_factory.mktemp("home")
    store, spec = Store(home / "runs.sqlite3"), CacheSpec.from_dict({}).to_dict()
    run_id = store.create_run("cache", spec)
    result = json.loads(json.dumps(result_of()))
    store.update_run(run_id, state="done", result=result)
    return StoredJob(home, "cache", run_id, spec, result)


@pytest.fixture
def home(served: StoredJob) -> Iterator[Path]:
    yield from used(served.home)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Path]:
    yield from used(tmp_path)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_without_a_run_the_page_asks_and_offers_one_button(empty: Path, lang: str) -> None:
    app, words = page_alone("caching", lang=lang), catalogue(lang)
    assert app.title[0].value == words["caching.question"] and words["caching.intro"] in texts(app)
    assert not app.button(key="run").disabled


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_run_shows_shares_savings_and_what_makes_answers_old(home: Path, lang: str) -> None:
    app, words = page_alone("caching", lang=lang), catalogue(lang)
    shown = texts(app)
    for key in ("caching.fresh", "caching.why", "caching.saved", "caching.stale", "measured"):
        assert words[key] in shown, key
    saved, stale = (table.value.to_numpy().tolist() for table in app.table)
    assert translate(lang, "caching.saved_cell", share="40.0", prefill="1,200", decode="900") in saved[1]
    assert stale[0][1] == words["caching.reused"] and stale[1][1] == words["caching.computed"]
    assert "None" not in shown and "nan" not in str(saved)


def test_a_run_is_told_apart_from_what_the_inputs_would_start(home: Path, served: StoredJob) -> None:
    differs = translate("en", "page.differs")
    same = served.add(result=served.result, **CachingChoice("repetitive", 3, default_threshold()).spec())
    assert differs not in texts(page_alone("caching", run=same))
    other = served.add(result=served.result, **CachingChoice("repetitive", 5, default_threshold()).spec())
    app = page_alone("caching", run=other)
    assert differs in texts(app)
    for run_id in (same, other):
        served.store.delete_run(run_id)


def test_an_old_answer_is_said_first_and_pairs_may_stand_alone(home: Path, served: StoredJob) -> None:
    run_id = served.add(result=json.loads(json.dumps(result_of(old=True, traffic=False))))
    app = page_alone("caching", run=run_id)
    assert translate("en", "caching.not_fresh") in texts(app) and len(app.table) == 1
    assert translate("en", "caching.old") in str(app.table[0].value.to_numpy())
    served.store.delete_run(run_id)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_chart_is_valid_and_holds_every_line(mode: str) -> None:
    pairs = result_of()["pairs"][0]
    rows = curve_rows(pairs, lowest_of_interest(pairs))
    chart = caching_chart(rows, 0.9, mode, {key: f"<{key}>" for key in WORD_KEYS})
    assert {row["name"] for row in drawn(chart, "name")} == {
        "<cache_hit>", "<cache_hit_ungated>", "<cache_wrong>", "<cache_wrong_ungated>",
    }  # fmt: skip


def test_the_choice_is_a_spec_and_its_command_the_same_run(served: StoredJob) -> None:
    assert {"repetitive", "repetitive-zh", "none"} <= set(traffics())
    assert CacheSpec.from_dict(CachingChoice("none", 1, 0.8).spec()).traffic is False
    assert CacheSpec.from_dict(CachingChoice("repetitive-zh", 5, 0.8).spec()).threshold() == 0.8
    command = cache_command(served.store.get_run(served.run_id))
    assert command == "trilemma cache --workload repetitive --repeats 3"
    assert [one["ttft_miss_ms"] for one in arm_rows(result_of())] == [None, None, None]
