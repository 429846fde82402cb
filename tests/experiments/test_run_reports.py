"""Reports of every kind of run: whole, escaped, labelled, in both languages, with the command that asks again."""

from __future__ import annotations

import json
import re
import shlex
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest
from test_report import _Balance

from experiments import jobs
from experiments.cli import run as command_line
from experiments.kinds import KINDS
from experiments.metrics.translation import in_other_terms
from experiments.report import LANGUAGES, report_html, report_json, words
from experiments.report.definitions import DEFINITIONS
from experiments.report.kinds import BUILDERS
from experiments.report.page import BADGES
from experiments.report.words import WORDS, Words, number
from experiments.spec import BenchSpec, CompareSpec
from experiments.store import Store
from experiments.store.identity import code_hash
from ledger.errors import InputError
from tests.experiments.records import record, request
from tests.experiments.report_runs import SPECS, bench_result, checked, comparison_result, result_of, stored

HOSTILE = "</script><script>alert(1)</script>\"'&<b onclick=x>"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs.sqlite3")


def parsed(page: str) -> _Balance:
    parser = _Balance()
    parser.feed(page)
    assert parser.open == [] and parser.faults == []
    return parser


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("kind", SPECS)
def test_every_kind_has_a_whole_page_that_needs_nothing_from_outside(store: Store, kind: str, lang: str) -> None:
    run_id = stored(store, kind)
    page, words = report_html(run_id, store, lang), Words(lang)
    for name, attributes in parsed(page).seen:
        assert name not in ("link", "img", "iframe", "object") and not {"src", "href"} & set(attributes)
    # A launch line of a plan may name an address, as text.
    assert not re.search(r"url\(|@import|https?://", re.sub(r"<(script|pre).*?</\1>", "", page, flags=re.S))
    assert run_id in page and code_hash() in page and "0.1+abc" in page
    assert words("environment") in page and "a processor" in page
    command = re.findall(r"<pre>(.*?)</pre>", page, re.S)[-1]
    assert shlex.split(unescape(command))[:2] == ["trilemma", "claims" if kind == "claim" else kind]
    assert f"<h2>{words('result')}</h2>" not in page, "the kind's own builder made it, not the one for anything"
    if kind not in ("claim", "claims", "plan"):
        assert f'badge measured">{BADGES["measured"]}{words("measured")}' in page


def test_a_verdict_comes_first_in_words(store: Store) -> None:
    pages = {kind: report_html(stored(store, kind), store) for kind in SPECS}
    expected = {
        "bench": "output tokens/s; TTFT p95", "compare": "Continuous batching", "claim": "holds with a limit",
        "claims": "holds with a limit",
        "eval": "int2: worse in 1, better in 0, no difference in 0, inconclusive in 1 slices",
        "speculation": "ngram on chat: ",
        "sweep": "atency knee", "factorial": "Throughput: seed=1 alone", "plan": "Cheapest: ",
        "jitter": "p99 of the gap between tokens", "profile": "off: 30 launches, 30.0 ms a step",
        "levers": "All together save", "calibrate": "GB/s of memory bandwidth",
    }  # fmt: skip
    for kind, text in expected.items():
        verdict = re.search(r'<p class="verdict">(.*?)</p>', pages[kind]).group(1)
        assert text in verdict, kind
        assert pages[kind].index('class="verdict"') < pages[kind].index("<table"), kind


def test_a_bench_shows_latencies_figures_memory_timeline_and_definitions(store: Store) -> None:
    page = report_html(stored(store, "bench"), store)
    for text in (
        "TTFT",
        "end to end",
        "goodput, requests/s",
        "Memory ledger",
        "Where each request",
        "100 % of requests",
        "What the figures mean",
        DEFINITIONS["ttft_s"][0],
        "price is assumed",
        "= computed",
    ):
        assert text in page, text
    assert "kv_reserved_bytes" not in re.sub(r"<script.*</script>", "", page, flags=re.S)


def test_a_sweep_shows_curves_with_intervals_knees_limits_and_every_point(store: Store) -> None:
    result = result_of("sweep")
    page, words = report_html(stored(store, "sweep"), store), Words("en")
    for key in (
        "sweep_curves",
        "curve_throughput",
        "curve_ttft",
        "curve_itl",
        "curve_goodput",
        "curve_cost",
        "knees",
        "latency_knee",
        "memory_knee",
        "instance_limit",
        "points_of",
        "objectives_met",
    ):
        assert words(key) in page, key
    assert page.count("<circle") >= 4 * len(result["points"]), "a dot a point in every curve"
    assert all(f"<td>{point['label']}</td>" in page for point in result["points"])
    limit = number(result["limits"]["instance_limit_rps"])
    assert f"An instance takes {limit} requests/s" in page and "instances for 50.0 requests/s" in page
    assert [arm.value for arm in store.arms(variable="concurrency")] == [point["value"] for point in result["points"]]


def test_energy_is_shown_where_it_was_measured_and_absent_otherwise(store: Store) -> None:
    words = Words("en")
    measured = {"joules": 12.5, "tokens_per_joule": 3.25, "mean_power_w": 250.0, "source": "x", "reason": None}
    assert words("energy_caption") not in report_html(stored(store, "bench"), store)
    with_energy = report_html(stored(store, "bench", bench_result(energy=measured)), store)
    assert words("energy_caption") in with_energy and "3.25" in with_energy and "250" in with_energy
    compared = comparison_result()
    assert words("energy_caption") not in report_html(stored(store, "compare", compared), store)
    compared["arms"][1]["metrics"]["energy"] = measured
    assert "3.25" in report_html(stored(store, "compare", compared), store)


@pytest.mark.parametrize(("lang", "why"), [("en", "counts from the send"), ("zh", "从发送时刻算起")])
def test_other_tools_terms_are_shown_with_how_they_differ(store: Store, lang: str, why: str) -> None:
    terms = in_other_terms(record(request([(100, 1), (120, 1)])))
    assert {row["why"] is None for rows in terms.values() for row in rows} == {True, False}
    page = report_html(stored(store, "bench", bench_result(in_other_terms=terms)), store, lang)
    title = escape(Words(lang)("other_terms"))
    assert title in page and "time_per_output_token" in page and why in page
    reasons = {row["why"] for rows in terms.values() for row in rows} - {None}
    assert lang == "en" or not any(reason in page.partition("<script")[0] for reason in reasons)
    assert title not in report_html(stored(store, "bench", bench_result(in_other_terms={})), store, lang)


@pytest.mark.parametrize("terms", [7, {"vllm": 7}, {"vllm": [7]}, {"vllm": {"ttft": 1}}, {"vllm": [{"mean": "x"}]}])
def test_other_terms_of_another_shape_break_no_report(store: Store, terms: Any) -> None:
    assert "</html>" in report_html(stored(store, "bench", bench_result(in_other_terms=terms)), store)


def _hostile(value: Any) -> Any:
    """The same JSON with every text made hostile, but those that choose what is shown."""
    if isinstance(value, dict):
        kept = ("provenance", "verdict", "name", "scored_by", "better", "statistic", "method", "counts", "created_at")
        return {name: item if name in kept else _hostile(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_hostile(item) for item in value]
    return HOSTILE if isinstance(value, str) else value


@pytest.mark.parametrize("kind", SPECS)
def test_hostile_texts_in_every_field_stay_text(store: Store, kind: str) -> None:
    result = result_of(kind)
    changed = _hostile(result)
    changed["warnings"], changed["environment"] = [HOSTILE], {HOSTILE: HOSTILE}
    run_id = stored(store, kind, changed)
    store.update_run(run_id, spec=_hostile(checked(kind)), error=HOSTILE, environment={HOSTILE: HOSTILE},
                     version=HOSTILE, code=HOSTILE)  # fmt: skip
    for lang in LANGUAGES:
        page = report_html(run_id, store, lang)
        assert "<script>alert" not in page and "<b onclick" not in page and page.count("</script>") == 1
        parsed(page)
    assert HOSTILE in json.dumps(report_json(run_id, store), ensure_ascii=False).replace('\\"', '"')


@pytest.mark.parametrize("kind", [*SPECS, "unheard-of"])
def test_a_result_that_no_builder_knows_is_still_shown_whole(store: Store, kind: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("experiments.store.store.KINDS", (*SPECS, "unheard-of"))
    result = {"deep": {"er": [{"x": 1.5, "y": HOSTILE}]}, "list": [1, [2]], "arms": 7, "verdict": "so it is"}
    run_id = store.create_run(kind, {"workload": "w"}, state="done", code="another version")
    store.update_run(run_id, result=result)
    page = report_html(run_id, store)
    parsed(page)
    assert "<b onclick" not in page


def test_a_form_that_only_another_version_knows_is_told_and_one_of_this_version_is_a_fault(store: Store) -> None:
    run_id = stored(store, "compare", {"arms": 7})
    with pytest.raises((KeyError, TypeError)):
        report_html(run_id, store)
    store.update_run(run_id, code="another version")
    assert Words("en")("other_shape") in report_html(run_id, store)


@pytest.mark.parametrize("state", ["failed", "cancelled", "queued"])
def test_a_run_without_a_result_says_how_it_ended(store: Store, state: str) -> None:
    run_id = store.create_run("compare", checked("compare"), state=state)
    store.update_run(run_id, error="the engine process ended" if state == "failed" else None)
    page = report_html(run_id, store)
    verdict = re.search(r'<p class="verdict">(.*?)</p>', page).group(1)
    assert state in verdict and ("the engine process ended" in verdict) == (state == "failed")
    assert "trilemma compare" in page


def test_a_damaged_record_leaves_the_rest_of_the_report(store: Store) -> None:
    run_id = stored(store, "bench")
    for path in (store.path.parent / "events").rglob("*.parquet"):
        path.unlink()
    page = report_html(run_id, store)
    assert "is missing; other runs are intact" in page and "output tokens/s" in page
    assert Words("en")("timeline") not in page


def test_secrets_are_in_neither_form(store: Store) -> None:
    hidden = {"endpoint": "https://me:pass-word@host", "api_key": "hunter2"}
    run_id = stored(store, "bench", bench_result(environment=hidden))
    store.update_run(run_id, spec={**checked("bench"), "headers": {"Authorization": "Bearer abcdefghij"}})
    for text in (report_html(run_id, store), json.dumps(report_json(run_id, store))):
        assert not any(secret in text for secret in ("pass-word", "hunter2", "abcdefghij"))
        assert "[withheld]" in text


def test_the_json_form_has_verdict_definitions_and_command(store: Store) -> None:
    for kind in SPECS:
        found = report_json(stored(store, kind), store)
        assert found["format"] == "trilemma-report" and found["verdict"] and found["title"]
        assert found["run"]["result"] and found["reproduce"].startswith("trilemma ")
    bench = report_json(stored(store, "bench"), store, "zh")
    assert bench["definitions"]["ttft_s"] == DEFINITIONS["ttft_s"][1]


@pytest.mark.parametrize("kind", SPECS)
def test_the_command_asks_for_the_very_same_spec(store: Store, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Any]] = []

    def start(kind: str, spec: Any, _: Store, **__: Any) -> str:
        asked.append((kind, KINDS[kind].check(spec)))
        raise InputError("stop", "here", "")

    monkeypatch.setenv("TRILEMMA_HOME", str(store.path.parent))
    monkeypatch.setattr(jobs, "start", start)
    spec = checked(kind)
    command = report_json(stored(store, kind), store)["reproduce"]
    command_line(shlex.split(command)[1:])
    assert asked == [(kind, spec)]


def test_every_definition_is_in_both_languages() -> None:
    for name, texts in DEFINITIONS.items():
        assert len(texts) == 2 and texts[0] and re.search("[一-鿿]", texts[1]), name


def test_every_kind_with_a_builder_has_a_name_in_both_languages() -> None:
    assert all(f"kind_{kind}" in WORDS for kind in {*BUILDERS, *KINDS})


def test_unknown_runs_and_languages_are_refused(store: Store) -> None:
    run_id = stored(store, "bench")
    for call in (lambda: report_html("nope", store), lambda: report_html(run_id, store, "fr")):
        with pytest.raises(InputError):
            call()


def test_specs_of_the_test_are_those_that_arechecked() -> None:
    assert BenchSpec.from_dict(SPECS["bench"]).num_requests == 4
    assert CompareSpec.from_dict(SPECS["compare"]).repeats is None


def test_arms_that_all_failed_have_a_report_all_the_same(store: Store) -> None:
    result = result_of("factorial")
    for arm in result["arms"]:
        arm["metrics"]["output_tokens_per_s"] = 0.0
    page = report_html(stored(store, "factorial", result), store)
    parsed(page)
    assert Words("en")("f_effects") in page


def test_the_memory_of_an_arm_that_cannot_be_read_is_missing_and_not_0(store: Store) -> None:
    result = comparison_result()
    result["arms"][1]["metrics"]["memory"] = dict.fromkeys(result["arms"][1]["metrics"]["memory"])
    page = report_html(stored(store, "compare", result), store)
    ledger = page[page.index("Memory ledger") :]
    totals = re.findall(r'<text x="[^"]*" y="[^"]*" font-weight="600">([^<]*)</text>', ledger[: ledger.index("<table")])
    assert len(totals) == 2 and totals[1] == words.MISSING and totals[0] != words.MISSING


@pytest.mark.parametrize("lang", LANGUAGES)
def test_levers_say_what_all_save_then_each_and_where_quality_falls(store: Store, lang: str) -> None:
    result = result_of("levers")
    result["levers"][0]["quality"] = {**(result["levers"][0]["quality"] or {}), "verdict": "worse", "change_pct": -9.0}
    say, page = Words(lang), report_html(stored(store, "levers", result), store, lang)
    shown = f"{result['attribution']['together_pct']:.1f} %"
    assert shown in re.search(r'<p class="verdict">(.*?)</p>', page).group(1)  # type: ignore[union-attr]
    assert say("lv_quality_lost", levers=say("lv_n_prefix_cache")) in page and "−9" in page
    for row in result["levers"]:
        assert f"{row['saved_pct']:.1f} %".replace("-", "−") in page
    assert say("lv_n_concurrency") in page and say("lv_attribution") in page


@pytest.mark.parametrize("lang", LANGUAGES)
def test_levers_without_answers_partners_or_pairs_have_a_report(store: Store, lang: str) -> None:
    result, say = result_of("levers"), Words(lang)
    nothing = dict.fromkeys(("sum_of_each_pct", "product_of_each_pct", "together_pct"))
    lonely = {"ratio": None, "ci95": None, "verdict": "undecided", "reason": "too few"}
    for row in (*result["levers"], result["together"]):
        row |= {"quality": None, "same_answers_share": None, "saved_pct": None, "saved_ci95": None,
                "saved_per_million_requests": None, "verdict": "inconclusive", "provenance": "simulated"}  # fmt: skip
    result |= {"attribution": {**nothing, "interaction": lonely}, "provenance": "simulated", "cancelled": True}
    page = report_html(stored(store, "levers", result), store, lang)
    for text in ("lv_no_repeat", "lv_none", "lv_unread_line", "partial", "c_simulated"):
        assert say(text) in page, text
    alone = {**result, "attribution": None, "together": None, "levers": result["levers"][:1]}
    page = report_html(stored(store, "levers", alone), store, lang)
    assert say("lv_attribution") not in page and f"<h2>{say('result')}</h2>" not in page
