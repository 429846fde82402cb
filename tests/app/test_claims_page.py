"""The page Claims: all fifty in both languages, filters, one claim with its figures, what a run says of its machine."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.i18n import catalogue, translate
from experiments import jobs
from experiments.claims import (
    batching,
    cost_levers,
    draft_exact,
    idle_slots,
    latency_parts,
    load_and_latency,
    load_claims,
    paging,
    prefix_reuse,
    run_claim,
    two_loads,
)
from experiments.claims.catalogue import claim_texts
from experiments.claims.reasons import reason_in_language
from experiments.claims.sweep_rows import Change
from experiments.claims_view import VERDICTS, claim_command, counts, figure_tables, outcomes
from experiments.kinds import kind_of
from experiments.store import Store
from experiments.store.identity import code_hash, environment
from tests.app.alone import page_alone, texts, used
from tests.experiments.claim_answers import throughput

TRAPS = ("C04", "C13", "C25", "C45", "C46")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield from used(tmp_path)


def add(home: Path, claim: str, verdict: str, *, options: dict[str, Any] | None = None, **own: Any) -> str:
    """A finished run of a claim of this code and machine, if `own` says nothing else."""
    store = Store(home / "runs.sqlite3")
    spec = kind_of("claim").check({"claim": claim, "options": options or {}})
    run_id = store.create_run("claim", spec, **{"code": code_hash(), "environment": environment(spec), **own})
    evidence = [
        {"part": "static", "output_tokens_per_s": 41.25, "values": [1, 2.5], "ci95": None, "provenance": "measured"},
        {"part": "continuous", "output_tokens_per_s": 90.0, "values": [3, 4.0], "ci95": None, "provenance": "measured"},
        {"part": "by formula", "bytes": 17_179_869_184, "provenance": "computed"},
    ]
    found = {"verdict": verdict, "reason": f"because of [{claim}]", "evidence": evidence, "run_id": run_id}
    store.update_run(run_id, state="done", result=found)
    return run_id


def digits(text: str | None) -> Counter[str]:
    """Every figure of a text; 12.96 billion is the same as 129.6 of ten to the eighth, as Chinese counts."""
    plain = re.sub(r"([\d.]+) billion", lambda found: f"{float(found[1]) * 10:g}", text or "")
    return Counter(re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", plain))


@pytest.mark.parametrize("claim", load_claims(), ids=lambda claim: claim.id)
def test_every_text_is_in_both_languages_with_the_same_figures(claim: Any) -> None:
    english, chinese = claim_texts("en")[claim.id], claim_texts("zh")[claim.id]
    for name in ("statement", "check", "trap"):
        first, second = getattr(english, name), getattr(chinese, name)
        assert (first is None) == (second is None), name
        assert digits(first) == digits(second), name
        assert second is None or re.search("[\u4e00-\u9fff]", second)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_all_fifty_are_there_with_their_traps_and_the_machine(home: Path, lang: str) -> None:
    app, words = page_alone("claims", lang=lang), catalogue(lang)
    shown = texts(app).replace("\\", "")
    assert app.title[0].value == words["claims.question"]
    for claim in load_claims():
        assert claim_texts(lang)[claim.id].statement in shown, claim.id
        if claim.state == "checkable":
            assert app.button(key=f"run-{claim.id}")
    for name in TRAPS:
        assert str(claim_texts(lang)[name].trap) in shown
    assert words["claims.verdict_not_checked_yet"] in shown and environment()["cpu"] in shown
    for chapter in range(1, 12):
        assert words[f"claims.chapter_{chapter}"] in shown
    assert all(f"claims.verdict_{verdict.replace(' ', '_')}" in words for verdict in VERDICTS)


def test_formulas_need_no_run_and_stand_with_their_badge(home: Path) -> None:
    found = outcomes(Store(home / "runs.sqlite3"))
    assert found["C45"].verdict == "holds with a limit" and "computed" in found["C45"].provenances
    assert found["C10"].verdict == "not checked yet" and found["C10"].evidence == ()
    assert sum(many for _, many in counts(found.values())) == 50


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_stored_run_gives_the_verdict_its_date_and_its_figures(home: Path, lang: str) -> None:
    run_id = add(home, "C10", "does not hold here")
    app = page_alone("claims", lang=lang, verdict="does not hold here")
    shown = texts(app)
    assert catalogue(lang)["claims.verdict_does_not_hold_here"] in shown and run_id in shown
    assert claim_texts(lang)["C10"].statement in shown and claim_texts(lang)["C08"].statement not in shown
    app.button(key="open-C10").click().run()
    assert (not app.exception and app.query_params["claim"] == ["C10"]) or app.query_params["claim"] == "C10"
    assert claim_texts(lang)["C10"].check in texts(app)
    first, second = (table.value for table in app.dataframe)
    assert list(first.columns) == ["part", "output_tokens_per_s", "values"] and second["bytes"][0] == "17,179,869,184"
    assert "trilemma claims run C10" in str(app.code[0].value)


def test_filters_by_kind_and_verdict_can_leave_nothing(home: Path) -> None:
    app = page_alone("claims", kind="simulated")
    assert [button.key for button in app.button if str(button.key).startswith("run-C")] == ["run-C07"]
    app = page_alone("claims", kind="simulated", verdict="holds")
    assert catalogue("en")["claims.none"] in texts(app)


def test_a_run_of_elsewhere_or_of_other_code_says_so(home: Path) -> None:
    other = {**environment(), "cpu": "Another processor", "threads": 64}
    add(home, "C10", "holds", code="old", environment=other, options={"repeats": 2, "settings": {"threads": 1}})
    shown = texts(page_alone("claims", claim="C10")).replace("\\", "")
    assert translate("en", "claims.other_machine", cpu="Another processor", threads=64) in shown
    assert catalogue("en")["claims.other_code"] in shown and "repeats=2" in shown and "threads=1" in shown
    assert claim_command("C10", {"repeats": 2, "settings": {"threads": 1}}) in (
        "trilemma claims run C10 --repeats 2 --set threads=1"
    )
    add(home, "C10", "undecided", options={"repeats": 3})
    own = add(home, "C10", "holds with a limit")
    add(home, "C10", "holds", options={"repeats": 4})
    found = outcomes(Store(home / "runs.sqlite3"))["C10"]
    assert (found.run_id, found.same_code, found.same_machine) == (own, True, True), "its own sizes before any other's"


def test_what_quick_mode_left_out_or_cannot_run_is_told_with_the_simulator(home: Path) -> None:
    store = Store(home / "runs.sqlite3")
    spec = kind_of("claims").check({"quick": True})
    rows = [
        {"id": "C16", "verdict": "not decided in quick mode", "reason": "too long", "ran_at": None, "simulate": None},
        {"id": "C24", "verdict": "cannot run here", "reason": "no second process", "ran_at": None,
         "simulate": {"command": "trilemma simulate llama-3.1-8b --tp 2", "provenance": "simulated"}},
    ]  # fmt: skip
    run_id = store.create_run("claims", spec)
    store.update_run(run_id, state="cancelled", result={"rows": rows})
    app = page_alone("claims", kind="measured")
    shown = texts(app)
    assert "too long" in shown and "no second process" in shown and catalogue("en")["simulated"] in shown
    assert any("trilemma simulate llama-3.1-8b --tp 2" in str(code.value) for code in app.code)
    assert catalogue("en")["claims.cancelled"] in shown and app.button(key="resume")
    store.create_run("claims", spec)
    assert outcomes(store)["C24"].verdict == "cannot run here", "a run that has just begun hides nothing"
    add(home, "C16", "holds")
    assert outcomes(store)["C16"].verdict == "holds", "a run of its own says more"


def test_buttons_start_one_or_all(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[str, dict[str, Any]]] = []

    def start(kind: str, spec: dict[str, Any], store: Store, **_: Any) -> str:
        started.append((kind, spec))
        return store.create_run(kind, jobs.checked_spec(kind, spec))

    monkeypatch.setattr(jobs, "start", start)
    app = page_alone("claims", kind="arithmetic")
    app.button(key="run-C34").click().run()
    app.button(key="run-quick").click().run()
    assert not app.exception and started == [("claim", {"claim": "C34"}), ("claims", {"quick": True})]


def test_an_unknown_claim_in_the_address_is_said_above_the_list(home: Path) -> None:
    app = page_alone("claims", claim="C99")
    assert "C99" in app.warning[0].value and app.button(key="open-C01")


def lever(name: str, way: str, saved_pct: float) -> dict[str, Any]:
    verdict = "better" if saved_pct > 0 else "worse"
    return {
        "name": name,
        "works_on": way,
        "verdict": verdict,
        "saved_pct": saved_pct,
        "saved_ci95": None,
        "quality": None,
    }


def reasons() -> list[str]:
    """What checks say, from their own judges and formulas."""
    change, lower = Change(1.5, 1.4, 1.6), Change(0.9, 0.8, 0.95)
    smaller = throughput("better", "better", "inconclusive")
    smaller["static_mixed"]["ci95"] = [22.0, 73.0]
    same, one_differs = ({"identical": count, "prompts": 4} for count in (4, 3))
    return [
        *(run_claim(name)["reason"] for name in ("C04", "C34", "C45")),
        idle_slots.judge_static(0.4, 0.0)[1],
        idle_slots.judge_dynamic({"own_rate": "inconclusive", "calm": "better"}, [0.3, 0.2])[1],
        paging.judge_waste([40e6, 1e6], [9.0, 9.0])[1],
        paging.judge_together({"change_pct": 80.0, "ci95": [60.0, 100.0], "verdict": "better"}, "better")[1],
        prefix_reuse.judge("better", [5000, 900], 1.0)[1],
        latency_parts.judge([0.002, 0.004], [0.008, 0.02])[1],
        load_and_latency.judge_triangle(change, change, (change, change, lower))[1],
        load_and_latency.judge_alone({8: change, 16: change})[1],
        two_loads.judge(change, lower, change)[1],
        batching.judge(throughput("better", "better", "worse"))[1],
        batching.judge(smaller)[1],
        draft_exact.judge([("copy", same)], [], ("bf16", [("copy", one_differs)]))[1],
        batching.NOT_CHECKED,
        cost_levers.judge([lever("prefix_cache", "tokens", 12.0), lever("routing", "tokens", -4.0)], None)[1],
        "it is expected to take 4,300 s, and 120 of 840 s were left; trilemma claims run C16 decides it",
    ]


def test_what_checks_say_is_in_chinese_with_the_same_figures() -> None:
    kept = {"token", "tokens", "alpha", "trilemma", "claims", "run", "mistral", "int"}
    for text in reasons():
        told = reason_in_language("zh", text)
        left = {word.lower() for word in re.findall(r"[A-Za-z]{3,}", told)} - kept
        assert not {word for word in left if word not in {"gib", "mib", "itl", "ttft", "nvidia"}}, (told, left)
        assert digits(text.replace("tokens", "")) - digits(told) == Counter(), told
        assert reason_in_language("en", text) == text


def test_figures_are_tables_of_rows_with_the_same_fields() -> None:
    rows = [{"a": 1, "b": None, "provenance": "measured"}, {"a": 2.0, "b": None, "provenance": "measured"},
            {"a": 3, "b": "x", "provenance": "computed"}, {"c": {"d": [1]}}]  # fmt: skip
    assert figure_tables(rows) == [
        ("measured", [{"a": "1"}, {"a": "2.000"}]), ("computed", [{"a": "3", "b": "x"}]), (None, [{"c": '{"d": [1]}'}]),
    ]  # fmt: skip
