"""The HTML report: self-contained, escaped, complete, in both languages."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from experiments.report import LANGUAGES, headline, verdict_sentence
from experiments.report.charts import draw, ticks
from experiments.report.comparison import reproduce_command
from experiments.report.document import chart
from experiments.report.html import Markup, join, tag
from experiments.report.words import WORDS, Words, curve_value, interval, number, signed_percent
from experiments.store import Run, StoredRecord
from ledger.errors import InputError
from tests.experiments.report_runs import comparison_record, comparison_result, page_of

HOSTILE = "</script><script>alert(1)</script>\"'&<b>"


def _run(result, **spec):
    stored = {"variable": "batching", "values": ["static", "continuous"], "workload": "mixed", "repeats": 5, "seed": 0}
    return Run("0a1b2c3d", "compare", "done", "2026-01-02T03:04:05.678+00:00", "", stored | spec, result)


RECORDS = [StoredRecord(0, 1, comparison_record(90)), StoredRecord(1, 1, comparison_record(59))]


class _Balance(HTMLParser):
    """Every element that opens closes, in order."""

    def __init__(self):
        super().__init__()
        self.open, self.faults, self.seen = [], [], []

    def handle_starttag(self, name, attrs):
        self.seen.append((name, dict(attrs)))
        if name != "meta":
            self.open.append(name)

    def handle_endtag(self, name):
        if not self.open or self.open.pop() != name:
            self.faults.append(name)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_page_is_whole_and_needs_nothing_from_outside(lang):
    page = page_of(_run(comparison_result()), RECORDS, lang)
    parser = _Balance()
    parser.feed(page)
    assert parser.open == []
    assert parser.faults == []
    for name, attributes in parser.seen:
        assert name not in ("link", "img", "iframe", "object")
        assert "src" not in attributes
        assert "href" not in attributes
        assert not any(key.startswith("on") for key in attributes)
    assert [attributes["type"] for name, attributes in parser.seen if name == "script"] == ["application/json"]
    assert not re.search(r"url\(|@import|https?://", page)
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page
    assert f'lang="{"zh-CN" if lang == "zh" else "en"}"' in page


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_part_is_there(lang):
    page, words = page_of(_run(comparison_result()), RECORDS, lang), Words(lang)
    for key in ("five_curves", "memory", "timeline", "how", "settings", "environment", "derived", "better", "worse"):
        assert words(key) in page, key
    for text in ("0a1b2c3d", "a processor", "max_num_seqs", "96 → 48", "+100 %", "trilemma compare --vary"):
        assert text in page, text
    assert page.count("<svg") == 5 * 2 + 2


def test_both_languages_have_every_text_with_the_same_placeholders():
    for key, texts in WORDS.items():
        assert len(texts) == len(LANGUAGES), key
        assert all(texts), key
        fields = [sorted(re.findall(r"{(\w+)}", text)) for text in texts]
        assert fields[0] == fields[1], key
        assert re.search("[一-鿿、，。：]", texts[1]), key
    with pytest.raises(InputError):
        page_of(_run(comparison_result()), RECORDS, "fr")


def test_hostile_texts_stay_text():
    result = comparison_result(values=(HOSTILE, "continuous"), held_equal={HOSTILE: HOSTILE}, warnings=[HOSTILE])
    page = page_of(_run(result, workload=HOSTILE, settings={"model": HOSTILE}), RECORDS)
    assert "<script>alert" not in page
    assert "<b>" not in page
    assert page.count("</script>") == 1
    parser = _Balance()
    parser.feed(page)
    assert parser.faults == []


def test_the_embedded_data_is_the_run_and_what_is_drawn():
    result = comparison_result(values=(HOSTILE, "continuous"))
    page = page_of(_run(result), [*RECORDS, StoredRecord(0, 2, comparison_record(90))])
    text = re.search(r'<script type="application/json" id="trilemma-data">(.*?)</script>', page, re.S).group(1)
    data = json.loads(text)
    assert data["run"]["result"]["arms"][0]["value"] == HOSTILE
    assert [(item["arm"], item["repeat"]) for item in data["records"]] == [(0, 1), (1, 1)]
    assert data["records"][0]["record"] == RECORDS[0].record


def test_without_records_the_timeline_is_left_out():
    page = page_of(_run(comparison_result()), [RECORDS[0]])
    assert Words("en")("timeline") not in page


def test_missing_figures_are_dashes_and_never_zero():
    samples = {
        "ttft_s": ("p95", "lower", [None], [None]),
        "output_tokens_per_s": ("mean", "higher", [50.0], [60.0]),
    }
    result = comparison_result(samples=samples, quality=None)
    for arm in result["arms"]:
        arm["metrics"]["memory"] = dict.fromkeys(arm["metrics"]["memory"])
    page = page_of(_run(result), RECORDS)
    assert "–" in page
    assert "no interval" in page
    assert "None" not in re.sub(r"<script.*</script>", "", page, flags=re.S)


def test_the_sentence_names_gain_price_and_what_did_not_change():
    result = comparison_result()
    assert headline(result) == ("pays_price", "Pays, with a price")
    sentence = verdict_sentence(result)
    assert sentence.startswith("Continuous batching: throughput +101 % [")
    assert "The price: ITL +183 % [" in sentence
    assert "No difference in quality." in sentence
    assert "Inconclusive: cost (about " in sentence
    assert "代价：" in verdict_sentence(result, "zh")


@pytest.mark.parametrize(
    ("verdicts", "key"),
    [
        (["better", "no difference"], "pays"),
        (["better", "worse"], "pays_price"),
        (["better", "inconclusive"], "mixed_undecided"),
        (["worse", "inconclusive"], "costs"),
        (["no difference"], "same"),
        (["no difference", "inconclusive"], "undecided"),
        ([], "undecided"),
    ],
)
def test_headline(verdicts, key):
    assert headline({"curves": [{"verdict": verdict} for verdict in verdicts]})[0] == key


@pytest.mark.parametrize(("lang", "words"), [("en", "Quality not measured"), ("zh", "未测量质量")])
def test_a_comparison_that_can_change_outputs_and_has_no_quality_says_so_in_red(lang, words):
    missing = {"same_token_ids_share": None, "mean_logprob": {"baseline": None, "candidate": None}, "reason": "why <x>"}
    page = page_of(_run({**comparison_result(), "variable": "dtype", "quality": missing}), [], lang)
    assert f'<p class="missing">{words}' in page and "why &lt;x&gt;" in page
    measured = {**missing, "mean_logprob": {"baseline": -1.0, "candidate": -1.1}, "reason": None}
    assert words not in page_of(_run({**comparison_result(), "variable": "dtype", "quality": measured}), [], lang)
    # Batching can't change any.
    assert words not in page_of(_run({**comparison_result(), "quality": missing}), [], lang)


def test_numbers_are_written_plainly():
    assert [signed_percent(x) for x in (107.4, -0.3, 0.01, -52, 1234.5, None)] == [
        "+107 %",
        "−0.3 %",
        "0 %",
        "−52 %",
        "+1,234 %",
        "–",
    ]
    assert interval([96.2, 117.1]) == "[+96, +117]"
    assert interval(None) == "–"
    assert [number(x) for x in (0.012345, 433.2, 12345.0, None, 0.0)] == ["0.0123", "433", "12,345", "–", "0"]
    assert curve_value("ttft_s", 13.66) == "13.7 s"
    assert curve_value("itl_s", 0.0124) == "12.4 ms"
    assert curve_value("quality", 0.617) == "61.7 %"
    assert curve_value("cost_per_request", 1.32e-4) == "0.132"


def test_ticks_are_round_and_within():
    assert ticks(22.5) == [0, 5, 10, 15, 20]
    assert ticks(0.0) == [0.0]
    for end in (0.003, 1, 7.7, 99, 1234.5):
        assert len(ticks(end)) <= 7
        assert ticks(end)[-1] <= end * (1 + 1e-9)


def test_an_interval_that_leaves_the_strip_gets_an_arrow():
    def strip(low, high):
        row = {"name": "b", "value": 100.0, "low": low, "high": high, "floor": 1.0, "text": "+100 %"}
        return draw(chart("change", "change", [row]), Words("en"))

    assert "▶" in strip(-50.0, 5000.0)
    assert "◀" not in strip(-50.0, 5000.0)
    assert "◀" in strip(-99.0, 20.0)


def test_bars_start_at_zero_and_a_missing_value_draws_none():
    rows = [{"name": "a", "value": 2.0, "low": 1.5, "high": 2.5, "text": "2.00 s"},
            {"name": "b", "value": None, "low": None, "high": None, "text": "–"}]  # fmt: skip
    bars = draw(chart("arms", "arms", rows), Words("en"))
    assert bars.count("<rect") == 1
    assert 'x="0.000%"' in bars


def test_the_command_is_quoted_for_a_shell():
    spec = {
        "variable": "batching",
        "values": ["static", "continuous"],
        "workload": "mixed",
        "repeats": "auto",
        "seed": 0,
        "settings": {"model": "/a b/c"},
    }
    assert reproduce_command(spec) == (
        "trilemma compare --vary batching=static,continuous --workload mixed --repeats auto --seed 0 "
        "--set 'model=/a b/c'"
    )


def test_the_builder_escapes_all_but_its_own_markup():
    assert tag("p", "<", tag("b", "&"), None, class_='"') == '<p class="&quot;">&lt;<b>&amp;</b></p>'
    assert isinstance(join("<"), Markup)
