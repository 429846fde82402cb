"""The Kernels page: without a run, a stored profile in both languages, a stopped one; its chart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt
import pytest

from app.charts import operators_chart
from app.components.job_page import JobPage
from app.components.kernels import kernels_line
from app.i18n import catalogue, translate
from experiments.operators.run import changes_json
from experiments.operators.spec import ProfileSpec
from experiments.store import Store
from tests.app.alone import StoredJob, page_alone, texts, used
from tests.app.chart_rows import rows

WORDS = {lang: {**catalogue(lang), **{k.removeprefix("chart."): v for k, v in catalogue(lang).items()}}
         for lang in ("en", "zh")}  # fmt: skip


def arm(value: Any, operators: dict[str, tuple[int, float]], counts: str = "compiled operators") -> dict[str, Any]:
    total = sum(seconds for _, seconds in operators.values())
    return {
        "value": value, "counts": counts, "launches": sum(n for n, _ in operators.values()), "host_calls": 1,
        "step_s": {"median": total + 0.001, "low": total, "high": total + 0.002, "repeats": 6}, "operators_s": total,
        "outside_s": 0.001 if counts.startswith("compiled") else None, "kernels": counts.split(" ")[0],
        "operators": [
            {"name": name, "launches": n, "seconds": seconds, "share": seconds / total}
            for name, (n, seconds) in operators.items()
        ],
    }  # fmt: skip


def profile(variable: str | None = "fused_ops", *arms: dict[str, Any]) -> dict[str, Any]:
    seconds = [[each["step_s"]["median"] * (1 + 0.001 * i) for i in range(6)] for each in arms]
    return json.loads(json.dumps({
        "step": {"text": "decode:1x256", "phase": "decode", "batch": 1, "seq_len": 256}, "variable": variable,
        "arms": list(arms), "changes": changes_json(arms, seconds), "repeats": 6, "settings": {}, "run_id": "x",
        "environment": {"cpu": "Made-up"}, "warnings": [], "provenance": "measured",
    }))  # fmt: skip


APART = arm("off", {"query": (30, 0.03), "key": (30, 0.01), "head": (1, 0.02), "add": (60, 0.001)})
FUSED = arm("on", {"qkv": (30, 0.02), "head": (1, 0.02)})


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> StoredJob:
    home = tmp_path_factory.mktemp("home")
    store = Store(home / "runs.sqlite3")
    spec = ProfileSpec.from_dict({"vary": ["fused_ops", ["off", "on"]]}).to_dict()
    run_id, result = store.create_run("profile", spec), profile("fused_ops", APART, FUSED)
    store.update_run(run_id, state="done", result=result)
    return StoredJob(home, "profile", run_id, spec, result)


@pytest.fixture
def home(stored: StoredJob) -> Iterator[Path]:
    yield from used(stored.home)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Path]:
    yield from used(tmp_path)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_without_a_run_the_page_says_what_it_does_and_offers_one_button(empty: Path, lang: str) -> None:
    app, words = page_alone("kernels", lang=lang), catalogue(lang)
    assert app.title[0].value == words["prof.question"] and words["prof.intro"] in texts(app)
    assert not app.button(key="run").disabled


def test_a_choice_of_the_address_is_taken_and_a_wrong_one_passed_over(empty: Path) -> None:
    app = page_alone("kernels", step="decode:8x256", vary="nonsense")
    assert app.selectbox[0].value == "decode:8x256" and app.selectbox[1].value == "fused_ops"
    assert "nonsense" in texts(app)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_profile_shows_launches_time_why_and_trap(home: Path, stored: StoredJob, lang: str) -> None:
    app, words = page_alone("kernels", run=stored.run_id, lang=lang), catalogue(lang)
    shown = texts(app)
    assert translate(lang, "prof.launches_change", launches="31", before="121", calls="", calls_before="") in shown
    for key in ("prof.why", "prof.trap", "why.fused_ops", "trap.fused_ops", "prof.whole", "prof.operators", "measured"):
        assert words[key] in shown, key
    table = app.table[0].value
    assert list(table[words["prof.col_launches"]]) == ["121", "31"]
    assert any("trilemma profile --step decode:1x256 --vary fused_ops=off,on" in code.value for code in app.code)
    assert "None" not in shown and "nan" not in shown


def test_one_arm_says_what_takes_the_most(home: Path, stored: StoredJob) -> None:
    run_id = stored.add(result=profile(None, {**APART, "value": None}), vary=None)
    shown = texts(page_alone("kernels", run=run_id))
    assert "121 launches" in shown and "Q takes the most, 49.2 %" in shown
    stored.store.delete_run(run_id)


def test_arms_that_count_other_things_are_not_subtracted(home: Path, stored: StoredJob) -> None:
    other = arm("torch", {"aten::mm": (121, 0.2), "(dispatch)": (0, 0.01)}, "torch operators")
    run_id = stored.add(result=profile("kernels", other, {**FUSED, "value": "compiled"}),
                        vary=["kernels", ["torch", "compiled"]])  # fmt: skip
    shown = texts(page_alone("kernels", run=run_id))
    assert "of another kind than those of the baseline" in shown and translate("en", "prof.no_outside") in shown
    stored.store.delete_run(run_id)


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_a_stopped_profile_offers_to_run_again(home: Path, stored: StoredJob, state: str) -> None:
    run_id = stored.add(state)
    app = page_alone("kernels", run=run_id)
    assert any(button.label == translate("en", "prof.resume") for button in app.button)
    stored.store.delete_run(run_id)


def test_a_page_that_asks_nothing_needs_no_questions() -> None:
    made = JobPage("prof", "profile", lambda run: "", lambda *a, **k: None, lambda run: None, lambda run: None)
    assert made.ask is None and made.lock_in is None


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("of", ["seconds", "launches"])
def test_the_chart_is_valid_and_has_a_bar_for_every_operator_and_arm(mode: str, of: str) -> None:
    shown = [
        {"name": "Q", "full": "query", "launches": (30, None), "seconds": (0.03, None), "shares": (0.6, None)},
        {"name": "Head", "full": "head", "launches": (1, 1), "seconds": (0.02, 0.019), "shares": (0.4, None)},
    ]
    for lang in ("en", "zh"):
        chart = operators_chart(shown, ["off", "on"], of, mode, WORDS[lang])
        bars = rows(chart, "full", "arm", mark="rect")
        assert [(bar["full"], bar["arm"]) for bar in bars] == [("query", "off"), ("head", "off"), ("head", "on")]
        alt.LayerChart.from_dict(json.loads(json.dumps(chart.to_dict(validate=False))))


@pytest.mark.parametrize(
    ("captured", "said"),
    [
        ({"graphs": 6, "seconds": 1.25, "num_bytes": 3 * 2**20}, "6 CUDA Graphs captured in 1.2 s, 3 MiB"),
        ("graph=off", "no CUDA Graph: graph=off"),
        (None, "Triton"),
    ],
)
def test_a_gpus_kernels_are_named_with_what_was_captured(captured: Any, said: str) -> None:
    assert said in kernels_line({"kernels": "triton", "kernels_reason": "", "captured": captured})
