"""Simulate & plan: with no run, a stored plan in both languages, nothing found, one deployment, what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from app.charts import plan_chart
from app.i18n import catalogue, translate
from experiments import planner_view as view
from experiments.planner.run import plan
from experiments.planner.search import Round
from experiments.planner.spec import PlanSpec
from experiments.planner_setup import PlanChoice
from experiments.simulate_view import Deployment, simulated
from experiments.store import Store
from ledger.errors import InputError
from tests.app.alone import StoredJob, page_alone, texts, used

SPEC: dict[str, Any] = {
    "model": "llama-3.2-1b", "gpus": ["h100-sxm"], "rate_rps": 40, "input_tokens": 128, "output_tokens": 32,
    "slo": "ttft_p95=0.3,tpot_p95=0.02", "tps": [1, 2], "pps": [1], "seqs": [16], "batched": [2048],
    "weights": ["fp8"], "kv_dtypes": ["fp8"],
}  # fmt: skip


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> StoredJob:
    home = tmp_path_factory.mktemp("home")
    store, spec = Store(home / "runs.sqlite3"), PlanSpec.from_dict(SPEC)
    run_id = store.create_run("plan", spec.to_dict())
    result = json.loads(json.dumps(plan(spec, rounds=(Round(3, 20, 0.5, 3),))))
    store.update_run(run_id, state="done", result=result)
    return StoredJob(home, "plan", run_id, spec.to_dict(), result)


@pytest.fixture
def home(planned: StoredJob) -> Iterator[Path]:
    yield from used(planned.home)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Path]:
    yield from used(tmp_path)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_without_a_run_the_page_asks_and_offers_one_button(empty: Path, lang: str) -> None:
    app, words = page_alone("plan", lang=lang), catalogue(lang)
    assert app.title[0].value == words["plan.question"] and words["plan.intro"] in texts(app)
    assert not app.button(key="run").disabled


def test_no_card_can_not_be_planned_for(empty: Path) -> None:
    assert page_alone("plan", cards="-").button(key="run").disabled
    with pytest.raises(InputError):
        PlanChoice(gpus=()).spec()


def test_the_choices_of_the_page_are_a_valid_spec() -> None:
    made = PlanSpec.from_dict(PlanChoice(prices={"h100-sxm": 2.5, "l4": 1.0}, max_devices=8).spec())
    assert made.slo == "ttft_p95=1,tpot_p95=0.04" and made.prices == {"h100-sxm": 2.5} and made.max_devices == 8
    assert PlanSpec.from_dict(PlanChoice(ttft_p95_s=0, tpot_p95_ms=0).spec()).slo is None
    assert PlanSpec.from_dict(PlanChoice().spec()).weights is None
    fixed = PlanSpec.from_dict(PlanChoice(weights="bf16", kv_dtype="fp8").spec())
    assert (fixed.weights, fixed.kv_dtypes) == (("bf16",), ("fp8",))
    gaps = PlanSpec.from_dict(PlanChoice(tpot_p95_ms=0, itl_p95_ms=50).spec())
    assert gaps.slo == "ttft_p95=1,itl_p95=0.05"


def test_cards_follow_the_error_band() -> None:
    plan = {"devices": 8, "replicas": 4, "limit_rps": 4.69, "error_band_pct": 30.0}
    assert view.cards_within_band(plan, 15.0, 0.2) == (8, 12)
    assert view.cards_within_band({**plan, "error_band_pct": 0.0}, 15.0, 0.2) == (8, 8)


def before_trust(shown: str, words: Mapping[str, str]) -> str:
    """The page's texts but for the simulator's errors, which are measured."""
    return shown.replace(f"{words['plan.errors']} :gray-badge[● {words['measured']}]", "")


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_finished_plan_shows_verdict_front_table_constraint_and_launch_lines(
    home: Path, planned: StoredJob, lang: str
) -> None:
    app, words = page_alone("plan", run=planned.run_id, lang=lang), catalogue(lang)
    shown = texts(app)
    for key in ("plan.found", "plan.front", "plan.table", "plan.why", "plan.trap"):
        assert words[key] in shown, key
    assert words["simulated"] in shown and f"● {words['measured']}" not in before_trust(shown, words)
    assert "None" not in shown
    code = "\n".join(block.value for block in app.code)
    for text in ("vllm serve", "sglang.launch_server", "trtllm-serve", "trilemma plan llama-3.2-1b"):
        assert text in code, text
    assert len(app.table[0].value) == len(planned.result["plans"])


def test_a_plan_that_found_nothing_says_so_and_what_stood_in_the_way(home: Path, planned: StoredJob) -> None:
    spec = PlanSpec.from_dict({**SPEC, "slo": "tpot_p95=0.0001"})
    result = json.loads(json.dumps(plan(spec, rounds=(Round(3, 20, 0.5, 3),))))
    run_id = planned.add(result=result)
    app = page_alone("plan", run=run_id)
    assert translate("en", "plan.none") in texts(app) and translate("en", "plan.sentence_none") in texts(app)
    reasons = [str(cell) for table in app.table for cell in table.value.to_numpy().ravel()]
    assert translate("en", "plan.pruned_tpot") in reasons
    planned.store.delete_run(run_id)


def test_a_cancelled_search_can_be_started_again(home: Path, planned: StoredJob) -> None:
    run_id = planned.add("cancelled")
    app = page_alone("plan", run=run_id)
    assert any(button.label == translate("en", "plan.resume") for button in app.button)
    planned.store.delete_run(run_id)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_one_deployment_is_simulated_as_it_is_chosen(empty: Path, lang: str) -> None:
    app = page_alone("plan", half="one", model="llama-3.2-1b", rate="5", out="16", **{"in": "64"}, lang=lang)
    shown, words = texts(app), catalogue(lang)
    assert words["plan.sim_question"] in shown and words["simulated"] in shown
    assert f"● {words['measured']}" not in before_trust(shown, words)
    assert "TTFT" in str(app.table[0].value)


def test_a_deployment_that_does_not_fit_is_one_line(empty: Path) -> None:
    app = page_alone("plan", half="one", model="llama-3.1-405b")
    assert len(app.error) == 1 and "405" not in str(app.exception)


def test_two_replicas_cost_twice_for_the_same_load() -> None:
    small = {"rate_rps": 5.0, "input_tokens": 64, "output_tokens": 16}
    one, two = (simulated(Deployment("llama-3.2-1b", "h100-sxm", replicas=n, **small)) for n in (1, 2))  # type: ignore[arg-type]
    assert two["devices"] == 2
    cost = "cost_per_million_output_tokens"
    assert two[cost] == pytest.approx(2 * one[cost], rel=0.02)


def test_the_command_of_a_plan_gives_its_spec_again(planned: StoredJob) -> None:
    command = view.plan_command(planned.spec)
    for text in ("--rate 40", "--input-tokens 128", "--tp 1,2", "--weights fp8", "--slo ttft_p95=0.3,tpot_p95=0.02"):
        assert text in command, text


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_chart_has_every_simulated_replica_and_plan_in_the_simulated_colour(planned: StoredJob, mode: str) -> None:
    words = {key.removeprefix("chart."): text for key, text in catalogue("en").items()}
    marks = view.marks(planned.result)
    assert len(marks) == len(planned.result["simulated"]) + len(planned.result["plans"])
    spec = plan_chart(marks, mode, words).to_dict()
    assert spec["layer"]


def test_errors_of_the_simulator_are_read_where_they_were_measured(tmp_path: Path) -> None:
    assert view.simulator_errors(tmp_path / "none.json") is None
    row = {"kind": "run", "formats": "fp32", "case": "chat", "errors_pct": {"tpot": 3.0, "ttft": -5.0,
           "throughput": 1.0}, "counted": ["tpot", "ttft"]}  # fmt: skip
    path = tmp_path / "errors.json"
    path.write_text(json.dumps({"rows": [row, {"kind": "knee"}], "errors": {"tpot": {"mape_pct": 3.0}}}), "utf-8")
    found = view.simulator_errors(path)
    assert found is not None and found.mean_pct == {"tpot": 3.0}
    assert found.rows[0]["ttft"] == -5.0 and found.rows[0]["throughput"] is None and len(found.rows) == 1
