"""C13 to C18 and C37: judged on runs of the fake engine and on rows made for each verdict."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.claims import draft_exact, draft_forms, draft_passes, run_claim
from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED
from experiments.claims.draft_rows import WIDE
from experiments.claims.runner import CHECKED_BY_DRAFTS
from experiments.speculation.run import run_speculation
from experiments.store import Store
from tests.experiments.fakes import FakeRig, VirtualClock

OPTIONS = {"num_requests": 1, "repeats": 2}


def measure(spec: dict[str, Any]) -> Mapping[str, Any]:
    """A run of the fake engine; its passes take 10 ms and 1 ms a token."""
    return _measured(json.dumps({**spec, "settings": {}, "max_tokens": 64}))


@cache
def _measured(spec: str) -> Mapping[str, Any]:
    clock = VirtualClock()
    return run_speculation(json.loads(spec), None, "fake", rig=FakeRig(clock), spend=clock.sleep)


def made(**figures: Any) -> dict[str, Any]:
    """A row of a form, with what a test says about it."""
    row = {
        "form": "eagle", "k": 4, "alpha": 0.75, "alpha_by_position": [0.75], "tested": [100], "accepted": [75],
        "acceptance_rate": 0.5, "tokens_per_pass": 2.0, "drafted_share": 1.0, "draft_time_share": 0.1, "v": 1.2,
        "c": 0.05, "speedup": 2.1, "speedup_ci95": [2.0, 2.2], "verdict": "better", "identical": 4, "prompts": 4,
        "repeats": 3, "predicted": {"speedup": 2.1}, "advice": {"verdict": "pays", "reason": "", "needed_alpha": 0.2},
        "held": {},
    }  # fmt: skip
    return {**row, **figures}


def test_c13_asks_in_float32_unless_the_reader_asks_otherwise() -> None:
    asked = []

    def noting(spec: dict[str, Any]) -> Mapping[str, Any]:
        asked.append(spec["settings"]["dtype"])
        return measure(spec)

    draft_passes.passes(OPTIONS, noting)
    draft_passes.passes({**OPTIONS, "settings": {"dtype": "bf16"}}, noting)
    assert asked == ["fp32", "bf16"]


def test_c13_counts_a_bonus_token() -> None:
    found = draft_passes.passes(OPTIONS, measure)
    assert found["verdict"] == LIMITED and "saves 4 passes and not 3" in found["reason"]
    assert found["evidence"][0]["tokens_per_pass"] > 4


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (made(tokens_per_pass=4.8), LIMITED),
        (made(tokens_per_pass=4.0), HOLDS),
        (made(tokens_per_pass=1.0), FAILS),
        (made(tokens_per_pass=4.8, identical=3), FAILS),
    ],
)
def test_c13_verdicts(row: Mapping[str, Any], verdict: str) -> None:
    assert draft_passes.judge_passes(row)[0] == verdict


@pytest.mark.slow
def test_c15_follows_the_model_on_an_engine_whose_passes_are_known() -> None:
    found = draft_passes.curve(OPTIONS, measure)
    assert found["verdict"] in (HOLDS, LIMITED) and "off by" in found["reason"]
    constructed = [row for row in found["evidence"] if row["part"] == "constructed"]
    assert [row["speedup"] for row in constructed] == sorted(row["speedup"] for row in constructed)


def curve_of(*pairs: tuple[float, float]) -> list[dict[str, Any]]:
    """Rows at alpha 0.3, 0.5, ... from (measured, predicted) speed-ups."""
    alphas = (0.3, 0.5, 0.7, 0.9, 1.0)
    return [
        made(alpha=alpha, speedup=speed, predicted={"speedup": said})
        for alpha, (speed, said) in zip(alphas, pairs, strict=False)
    ]


@pytest.mark.parametrize(
    ("rows", "real", "verdict"),
    [
        (curve_of((0.8, 0.8), (1.0, 1.01), (1.4, 1.4)), [], HOLDS),
        (curve_of((0.8, 0.8), (1.0, 1.01), (1.4, 1.4)), curve_of((1.0, 1.5)), LIMITED),
        (curve_of((0.5, 0.8), (0.6, 1.0), (0.7, 1.4)), [], LIMITED),
        (curve_of((1.0, 0.8), (0.9, 1.0), (1.4, 1.4)), [], FAILS),
        ([made(speedup=None, predicted={"speedup": None})], [], UNDECIDED),
    ],
)
def test_c15_verdicts(rows: list[dict[str, Any]], real: list[dict[str, Any]], verdict: str) -> None:
    assert draft_passes.judge_curve(rows, real)[0] == verdict


def test_c37_is_reproduced_with_its_arithmetic() -> None:
    found = draft_passes.poor_draft(OPTIONS, measure)
    assert found["verdict"] == HOLDS and "slower" not in found["verdict"]
    figures = {row["name"]: row["value"] for row in found["evidence"] if "name" in row}
    assert figures["tokens of a cycle"] == pytest.approx(1.425, abs=1e-3)
    assert figures["break-even draft cost, v = 1"] == pytest.approx(0.106, abs=1e-3)
    assert figures["draft cost for throughput -15 %, v = 1"] == pytest.approx(0.169, abs=1e-3)
    assert figures["draft cost for latency +15 %, v = 1"] == pytest.approx(0.160, abs=1e-3)
    assert figures["break-even draft cost here"] < figures["break-even draft cost, v = 1"]
    costly = next(row for row in found["evidence"] if row.get("part") == "poor draft at c = 0.169")
    assert costly["advice"].startswith("refuses") and costly["speedup"] < 0.85


@pytest.mark.parametrize(("said", "verdict"), [("worse", HOLDS), ("better", FAILS), ("inconclusive", UNDECIDED)])
def test_c37_verdicts(said: str, verdict: str) -> None:
    assert draft_passes.judge_poor(made(), made(verdict=said, speedup=0.8))[0] == verdict


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([("embedded", "copy", made())], HOLDS),
        ([("embedded", "copy", made()), ("embedded", "open", made(alpha=0.4, speedup=0.9))], LIMITED),
        ([("embedded", "copy", made(speedup=1.5))], FAILS),
        ([("embedded", "copy", made(form="ngram", alpha=1.0, speedup=3.0))], UNDECIDED),
    ],
)
def test_c16_verdicts(rows: list[draft_forms.Found], verdict: str) -> None:
    batches = [("embedded", "32", made(speedup=0.7))]
    found, reason = draft_forms.judge_reach(rows, batches)
    assert found == verdict and (found == UNDECIDED or "in a batch of 32 the best of them gives 0.70x" in reason)


def rows_with(**alphas: int) -> list[draft_forms.Found]:
    """A row a form, with so many of 100 accepted."""
    return [("embedded", "copy", made(form=form.rstrip("_"), accepted=[hits])) for form, hits in alphas.items()]


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        (rows_with(draft=40, medusa=50, eagle=70, self=60), HOLDS),
        (rows_with(draft=40, medusa=75, eagle=70, self=60), LIMITED),
        (rows_with(draft=72, medusa=75, eagle=70, self=60), FAILS),
        (rows_with(draft=40, eagle=70), UNDECIDED),
    ],
)
def test_c17_verdicts(rows: list[draft_forms.Found], verdict: str) -> None:
    assert draft_forms.judge_forms(rows)[0] == verdict


REFUSED = {"verdict": "refuses", "reason": "acceptance", "needed_alpha": 0.6}


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ([("embedded", "open", made(advice=REFUSED, verdict="worse", speedup=0.8)), (WIDE, "open", made())], HOLDS),
        ([("embedded", "open", made(advice=REFUSED, verdict="worse")), ("embedded", "copy", made())], LIMITED),
        ([("embedded", "open", made(advice=REFUSED, verdict="better"))], FAILS),
        ([("embedded", "open", made(verdict="inconclusive"))], UNDECIDED),
        (
            [
                ("embedded", "open", made(advice=REFUSED, verdict="worse")),
                ("embedded", "copy", made(verdict="inconclusive", speedup=4.8)),
            ],
            UNDECIDED,
        ),
    ],
)
def test_c18_verdicts(rows: list[draft_forms.Found], verdict: str) -> None:
    assert draft_forms.judge_losing(rows)[0] == verdict


def test_c16_to_c18_measure_the_small_target_and_the_enlarged_one() -> None:
    asked: list[str] = []

    def noting(spec: dict[str, Any]) -> Mapping[str, Any]:
        asked.append(spec["settings"]["model"])
        return measure({**spec, "tasks": ["copy"], "batches": [], "constructed": False})

    draft_forms.losing(OPTIONS, noting)
    draft_forms.forms(OPTIONS, noting)
    draft_forms.reach({**OPTIONS, "settings": {"model": "elsewhere"}}, noting)
    assert asked == ["embedded", WIDE, "embedded", "elsewhere"]


def drawn(weights: list[float], seed: int) -> list[tuple[int, ...]]:
    draws = np.random.default_rng(seed).choice(len(weights), size=draft_exact.ANSWERS, p=weights)
    return [(int(value),) for value in draws]


def test_c14_holds_for_one_distribution_and_fails_for_another() -> None:
    same = {
        "off": drawn([0.5, 0.3, 0.2], 1),
        "off again": drawn([0.5, 0.3, 0.2], 2),
        "ngram": drawn([0.5, 0.3, 0.2], 3),
    }
    found = draft_exact.check(OPTIONS, measure, lambda settings, forms: same)
    assert found["verdict"] == HOLDS and "answers identical" in found["reason"]
    broken = {**same, "ngram": drawn([0.3, 0.3, 0.4], 4)}
    assert draft_exact.check(OPTIONS, measure, lambda settings, forms: broken)["verdict"] == FAILS


def test_c14_has_a_limit_where_only_the_devices_own_format_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def noting(spec: dict[str, Any]) -> Mapping[str, Any]:
        asked.append(spec["settings"]["dtype"])
        return measure(spec)

    same = {name: drawn([1.0], 1) for name in ("off", "off again", "ngram")}
    monkeypatch.setattr(draft_exact, "_own_format", lambda options: "bf16")
    found = draft_exact.check(OPTIONS, noting, lambda settings, forms: same)
    assert asked == ["fp32", "bf16"] and found["verdict"] == HOLDS
    assert {row["part"] for row in found["evidence"]} >= {"greedy, copy", "greedy, copy, bf16"}
    verdict, reason = draft_exact.judge([("copy", made())], [], ("bf16", [("copy", made(identical=3))]))
    assert verdict == LIMITED and "in bf16 3 of 4" in reason
    assert draft_exact.judge([("copy", made(identical=3))], [], ("bf16", [("copy", made())]))[0] == FAILS


def test_c14_takes_the_readers_own_format_alone() -> None:
    assert draft_exact._own_format({"settings": {"dtype": "bf16"}}) is None
    assert draft_exact._own_format({"settings": {"device": "cpu"}}) in (None, "bf16")


def test_c14_fails_for_one_answer_that_differs_and_is_undecided_without_forms() -> None:
    assert draft_exact.judge([("copy", made(identical=3))], [])[0] == FAILS
    assert draft_exact.judge([], [])[0] == UNDECIDED


def test_the_two_sample_test_counts_rare_sequences_together() -> None:
    first = Counter({(1,): 300, (2,): 95, (3,): 2, (4,): 3})
    p, cells = draft_exact.two_sample_p(first, first)
    assert p == pytest.approx(1) and cells == 3
    assert draft_exact.two_sample_p(Counter({(1,): 400}), Counter({(1,): 400})) == (1.0, 1)
    assert draft_exact.total_variation(Counter({(1,): 3, (2,): 1}), Counter({(1,): 1, (2,): 3})) == 0.5


def test_every_check_is_run_by_its_id_and_its_run_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, clock = Store(tmp_path / "runs.sqlite3"), VirtualClock()
    monkeypatch.setattr("experiments.speculation.run.Rig", lambda: FakeRig(clock))
    monkeypatch.setattr("experiments.speculation.run.ConstructedProposer", _without_waiting(clock))
    found = run_claim("c13", store=store, options={"repeats": 1})
    (kept,) = store.list_runs(kind="speculation")
    assert found["evidence"][0]["run_id"] == kept.id and kept.state == "done" and kept.result is not None
    assert set(CHECKED_BY_DRAFTS) == {"C13", "C14", "C15", "C16", "C17", "C18", "C37"}


def _without_waiting(clock: VirtualClock) -> Any:
    from experiments.speculation.constructed import ConstructedProposer

    return lambda *args, **named: ConstructedProposer(*args, **{**named, "spend": clock.sleep})
