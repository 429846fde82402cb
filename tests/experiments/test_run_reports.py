"""Reports of every kind of run: whole, escaped, labelled, in both languages, with the command that asks again."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import pytest
from records import MS, record, request, step
from test_report import _Balance, _result

from experiments import jobs, loadgen
from experiments.cli import run as command_line
from experiments.factorial import run_factorial
from experiments.kinds import KINDS
from experiments.metrics import compute_metrics
from experiments.metrics.translation import in_other_terms
from experiments.operators.run import changes_json
from experiments.quality.choices import ItemScore
from experiments.quality.items import Item
from experiments.quality.slices import baseline_rows, judge_slices, row_json
from experiments.report import LANGUAGES, report_html, report_json, words
from experiments.report.definitions import DEFINITIONS
from experiments.report.page import BADGES
from experiments.report.run_report import BUILDERS
from experiments.report.run_words import RUN_WORDS
from experiments.report.words import WORDS, Words, number
from experiments.spec import BenchSpec, CompareSpec
from experiments.speculation.run import run_speculation
from experiments.store import Store
from experiments.sweep.run import run_sweep
from ledger.errors import InputError
from tests.experiments.fakes import FakeRig, VirtualClock

HOSTILE = "</script><script>alert(1)</script>\"'&<b onclick=x>"


def _record() -> dict[str, Any]:
    steps = [step(i, 10 * i, 10 * i + 1, 10 * i + 9, 10 * i + 10) for i in range(6)]
    served = [
        request([(19 + 10 * i, 1), (39 + 10 * i, 1)], id=f"r{i:02d}", release_ns=80 * MS,
                steps=[(1 + i, "prefill", 4), (3 + i, "decode", 1)])
        for i in range(2)
    ]  # fmt: skip
    return record(*served, steps=steps)


def _bench(**extra: Any) -> dict[str, Any]:
    return {**compute_metrics(_record(), slo="ttft_p95=0.5"), "held_because": {}, "warnings": [], **extra}


def _claim(**extra: Any) -> dict[str, Any]:
    evidence = [
        {"name": "weights", "value": 26.0, "unit": "GB", "provenance": "computed", "formula": "13e9 x 2 B"},
        {"run_id": "0a1b2c3d", "change_pct": 12.5},
    ]
    return {"id": "C04", "statement": "A 13B model", "verdict": "holds with a limit", "reason": "because of it",
            "trap": "not always", "evidence": evidence, **extra}  # fmt: skip


def _eval(name: str = "two") -> dict[str, Any]:
    items = [Item(f"i{i}", ("one", name)[i % 2], "p", ("a", "b"), 0) for i in range(80)]
    right, wrong = ItemScore((-1.0, -2.0), 0), ItemScore((-2.0, -1.0), 0)
    before, after = [right] * 80, [wrong if i % 2 else right for i in range(80)]
    rows = judge_slices(items, before, {"int2": after})
    found = {"slices": [row_json(row) for row in rows], "texts": [{"text": "novel", "perplexity": 12.5}]}
    base = {"slices": [row_json(row) for row in baseline_rows(items, before)], "texts": []}
    return json.loads(json.dumps({
        "baseline": base, "candidates": [{"label": "int2", **found}], "items_hash": "ab", "provenance": "measured",
        "overlooked": {"verdict": "found", "sentence": "the mean hides it"}, "warnings": [],
    }))  # fmt: skip


def _speculation() -> dict[str, Any]:
    clock = VirtualClock()
    spec = {"tasks": ["chat"], "forms": ["ngram"], "prompts": 2, "max_tokens": 64, "repeats": 2, "batches": [],
            "constructed": False}  # fmt: skip
    return json.loads(json.dumps(run_speculation(spec, None, "", rig=FakeRig(clock), spend=clock.sleep)))


def _profile() -> dict[str, Any]:
    def arm(value: str, seconds: float) -> dict[str, Any]:
        rows = [{"name": "qkv", "launches": 30, "seconds": seconds, "share": 1.0}]
        return {"value": value, "counts": "compiled operators", "launches": 30, "host_calls": 1, "outside_s": 0.001,
                "step_s": {"median": seconds, "low": seconds, "high": seconds, "repeats": 6}, "operators": rows,
                "operators_s": seconds, "kernels": "compiled"}  # fmt: skip

    arms = [arm("off", 0.03), arm("on", 0.02)]
    changes = changes_json(arms, [[0.03 + i / 1e5 for i in range(6)], [0.02 + i / 1e5 for i in range(6)]])
    return json.loads(json.dumps({"arms": arms, "changes": changes, "settings": {"threads": 1}, "warnings": [],
                                  "variable": "fused_ops", "provenance": "measured"}))  # fmt: skip


def _virtual(monkeypatch: pytest.MonkeyPatch) -> FakeRig:
    clock = VirtualClock()
    monkeypatch.setattr(loadgen.gc, "collect", lambda: 0)  # 0.1 s with torch loaded, many runs
    return FakeRig(clock, noise=0.002)


def _sweep() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        return json.loads(json.dumps(run_sweep(SPECS["sweep"], None, "", rig=_virtual(patch))))


def _factorial() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        return json.loads(json.dumps(run_factorial(SPECS["factorial"], None, "", rig=_virtual(patch))))


SPECS: dict[str, dict[str, Any]] = {
    "bench": {"workload": "chat", "num_requests": 4, "rate_rps": 2.0, "slo": "ttft_p95=0.5", "seed": 3,
              "max_prompt_tokens": 64, "length_scale": 0.5, "price_per_device_hour": 2.5,
              "settings": {"max_num_seqs": 4}},
    "compare": {"variable": "max_num_seqs", "values": [2, 8], "repeats": "auto", "workload": "equal",
                "num_requests": 5, "settings": {"block_size": 32}},
    "claim": {"claim": "C10", "options": {"repeats": 3, "num_requests": "6", "settings": {"threads": 1}}},
    "eval": {"vary": ["kv_dtype", ["int8", "int4"]], "settings": {"threads": 1}, "limit": 5, "seed": 2,
             "slices": ["arithmetic"], "speed": True},
    "speculation": {"forms": ["ngram"], "tasks": ["copy"], "prompts": 2, "max_tokens": 48, "repeats": 2,
                    "batches": [1, 4], "constructed": False, "seed": 4, "settings": {"threads": 1}},
    "sweep": {"over": "concurrency", "values": [1, 2, 4, 8], "workload": "equal", "max_tokens_cap": 8, "repeats": 2,
              "slo": "itl_p95=0.02", "demand_rps": 50.0, "headroom": 0.2,
              "settings": {"max_num_seqs": 16, "prefix_cache": "off"}},
    "factorial": {"factors": [["seed", [0, 1]], ["block_size", [16, 32]]], "repeats": 2, "workload": "equal",
                  "num_requests": 2, "max_tokens_cap": 4},
    "profile": {"step": "decode:2x256", "vary": ["fused_ops", ["off", "on"]], "repeats": 6,
                "settings": {"threads": 1}},
}  # fmt: skip
MADE = {"bench": _bench, "compare": _result, "claim": _claim, "eval": _eval, "speculation": _speculation,
        "profile": _profile, "sweep": _sweep, "factorial": _factorial}  # fmt: skip


@cache
def _made(kind: str) -> str:
    return json.dumps(MADE[kind]())


def result_of(kind: str) -> dict[str, Any]:
    """A result as that kind of run really has it, made once."""
    found: dict[str, Any] = json.loads(_made(kind))
    return found


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs.sqlite3")


def _checked(kind: str) -> dict[str, Any]:
    return KINDS[kind].check(SPECS[kind])


def stored(store: Store, kind: str, result: dict[str, Any] | None = None, **fields: Any) -> str:
    run_id = store.create_run(kind, _checked(kind), code="c0dec0de", version="0.1+abc",
                              environment={"cpu": "a processor of ours"})  # fmt: skip
    store.update_run(run_id, state="done", result=result_of(kind) if result is None else result, **fields)
    if kind in ("bench", "compare"):
        for arm in range(2 if kind == "compare" else 1):
            store.add_record(run_id, arm, 1, _record())
    return run_id


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
    assert not re.search(r"url\(|@import|https?://", re.sub(r"<script.*</script>", "", page, flags=re.S))
    assert run_id in page and "c0dec0de" in page and "0.1+abc" in page
    assert words("environment") in page and "a processor" in page
    assert shlex.split(re.search(r"<pre>(.*?)</pre>", page, re.S).group(1).replace("&#x27;", "'"))[0] == "trilemma"
    assert f"<h2>{words('result')}</h2>" not in page, "the kind's own builder made it, not the one for anything"
    if kind != "claim":
        assert f"badge measured\">{BADGES['measured']}{words('measured')}" in page


def test_a_verdict_comes_first_in_words(store: Store) -> None:
    pages = {kind: report_html(stored(store, kind), store) for kind in SPECS}
    expected = {
        "bench": "output tokens/s; TTFT p95", "compare": "Continuous batching", "claim": "holds with a limit",
        "eval": "int2: worse in 1, better in 0, no difference in 0, inconclusive in 1 slices",
        "speculation": "ngram on chat: ",
        "sweep": "atency knee", "factorial": "Throughput: seed=1 alone", "profile": "off: 30 launches, 30.0 ms a step",
    }  # fmt: skip
    for kind, text in expected.items():
        verdict = re.search(r'<p class="verdict">(.*?)</p>', pages[kind]).group(1)
        assert text in verdict, kind
        assert pages[kind].index('class="verdict"') < pages[kind].index("<table"), kind


def test_a_bench_shows_latencies_figures_memory_timeline_and_definitions(store: Store) -> None:
    page = report_html(stored(store, "bench"), store)
    for text in ("TTFT", "end to end", "goodput, requests/s", "Memory ledger", "Where each request",
                 "100 % of requests", "What the figures mean", DEFINITIONS["ttft_s"][0], "price is assumed",
                 "= computed"):
        assert text in page, text
    assert "kv_reserved_bytes" not in re.sub(r"<script.*</script>", "", page, flags=re.S)


def test_a_sweep_shows_curves_with_intervals_knees_limits_and_every_point(store: Store) -> None:
    result = result_of("sweep")
    page, words = report_html(stored(store, "sweep"), store), Words("en")
    for key in ("sweep_curves", "curve_throughput", "curve_ttft", "curve_itl", "curve_goodput", "curve_cost", "knees",
                "latency_knee", "memory_knee", "instance_limit", "points_of", "objectives_met"):
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
    with_energy = report_html(stored(store, "bench", _bench(energy=measured)), store)
    assert words("energy_caption") in with_energy and "3.25" in with_energy and "250" in with_energy
    compared = _result()
    assert words("energy_caption") not in report_html(stored(store, "compare", compared), store)
    compared["arms"][1]["metrics"]["energy"] = measured
    assert "3.25" in report_html(stored(store, "compare", compared), store)


@pytest.mark.parametrize(("lang", "why"), [("en", "counts from the send"), ("zh", "从发送时刻算起")])
def test_other_tools_terms_are_shown_with_how_they_differ(store: Store, lang: str, why: str) -> None:
    terms = in_other_terms(record(request([(100, 1), (120, 1)])))
    assert {row["why"] is None for rows in terms.values() for row in rows} == {True, False}
    page = report_html(stored(store, "bench", _bench(in_other_terms=terms)), store, lang)
    title = escape(Words(lang)("other_terms"))
    assert title in page and "time_per_output_token" in page and why in page
    reasons = {row["why"] for rows in terms.values() for row in rows} - {None}
    assert lang == "en" or not any(reason in page.partition("<script")[0] for reason in reasons)
    assert title not in report_html(stored(store, "bench", _bench(in_other_terms={})), store, lang)


@pytest.mark.parametrize("terms", [7, {"vllm": 7}, {"vllm": [7]}, {"vllm": {"ttft": 1}}, {"vllm": [{"mean": "x"}]}])
def test_other_terms_of_another_shape_break_no_report(store: Store, terms: Any) -> None:
    assert "</html>" in report_html(stored(store, "bench", _bench(in_other_terms=terms)), store)


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
    store.update_run(run_id, spec=_hostile(_checked(kind)), error=HOSTILE, environment={HOSTILE: HOSTILE},
                     version=HOSTILE)  # fmt: skip
    for lang in LANGUAGES:
        page = report_html(run_id, store, lang)
        assert "<script>alert" not in page and "<b onclick" not in page and page.count("</script>") == 1
        parsed(page)
    assert HOSTILE in json.dumps(report_json(run_id, store), ensure_ascii=False).replace('\\"', '"')


@pytest.mark.parametrize("kind", [*SPECS, "unheard-of"])
def test_a_result_that_no_builder_knows_is_still_shown_whole(store: Store, kind: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("experiments.store.store.KINDS", (*SPECS, "unheard-of"))
    result = {"deep": {"er": [{"x": 1.5, "y": HOSTILE}]}, "list": [1, [2]], "arms": 7, "verdict": "so it is"}
    run_id = store.create_run(kind, {"workload": "w"}, state="done")
    store.update_run(run_id, result=result)
    page = report_html(run_id, store)
    parsed(page)
    assert "<b onclick" not in page


@pytest.mark.parametrize("state", ["failed", "cancelled", "queued"])
def test_a_run_without_a_result_says_how_it_ended(store: Store, state: str) -> None:
    run_id = store.create_run("compare", _checked("compare"), state=state)
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
    run_id = stored(store, "bench", _bench(environment=hidden))
    store.update_run(run_id, spec={**_checked("bench"), "headers": {"Authorization": "Bearer abcdefghij"}})
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

    def start(kind: str, spec: Any, _: Store) -> str:
        asked.append((kind, KINDS[kind].check(spec)))
        raise InputError("stop", "here", "")

    monkeypatch.setenv("TRILEMMA_HOME", str(store.path.parent))
    monkeypatch.setattr(jobs, "start", start)
    spec = _checked(kind)
    command = report_json(stored(store, kind), store)["reproduce"]
    command_line(shlex.split(command)[1:])
    assert asked == [(kind, spec)]


def test_no_text_stands_in_for_another() -> None:
    own = set(re.findall(r'^    "([^"]+)": ', Path(words.__file__).read_text("utf-8"), re.M))
    assert own and not own & set(RUN_WORDS)


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


def test_specs_of_the_test_are_those_that_are_checked() -> None:
    assert BenchSpec.from_dict(SPECS["bench"]).num_requests == 4
    assert CompareSpec.from_dict(SPECS["compare"]).repeats is None
