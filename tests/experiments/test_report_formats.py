"""Every format of a report: its figures are the store's, what a user typed stays text, and a run has one report."""

from __future__ import annotations

import ast
import csv
import hashlib
import html
import io
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import html5lib
import nbformat
import pyarrow.parquet as pq
import pytest
from markdown_it import MarkdownIt

from experiments.metrics import compute_metrics
from experiments.report import FORMATS, report_bytes
from experiments.report.charts import MIB, ledger_accounts
from experiments.report.markdown import escape
from experiments.report.rows import COLUMNS
from experiments.report.words import Words, number
from experiments.spreadsheet import safe
from experiments.store import Store
from ledger.errors import InputError
from tests.experiments.report_runs import SPECS, bench_result, checked, comparison_result, result_of, run_record, stored

ROOT = Path(__file__).resolve().parents[2]
TYPED = [
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "=1+2", "+1", "-1", "@sum(A1)", "\t=1",
    "a|b", "`code`", "```", "[x](javascript:alert(1))", "![x](http://a.b/c.png)", "https://a.b/c", "$x^2$", "*a* _b_",
    "# head", "1. one", "- item", "a\nb", "\\", "\"'", "<!-- x", "]]>", "{{7*7}}", "&amp;", "bell\x07", "名前=<b>",
]  # fmt: skip
HOSTILE = " ".join(TYPED)
KEPT = ("provenance", "verdict", "name", "scored_by", "better", "statistic", "method", "counts", "created_at", "kind",
        "account", "reason", "curve")  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs.sqlite3")


def made(store: Store, run_id: str, form: str, lang: str = "en") -> str:
    return report_bytes(run_id, store, form, lang).decode()


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of every text, number and truth value in JSON."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{place}]")
    elif value is not None:
        yield path, value


def tables_of(block: Any) -> Iterator[dict[str, Any]]:
    """Every table of a report's JSON."""
    if isinstance(block, dict):
        if block.get("is") == "table":
            yield block
        for inner in block.values():
            yield from tables_of(inner)
    elif isinstance(block, list):
        for inner in block:
            yield from tables_of(inner)


def figures_of(tables: Any) -> list[float]:
    """The store's values behind the cells."""
    cells = [cell["value"] for table in tables for row in table["rows"] for cell in row]
    return [value for value in cells if isinstance(value, int | float) and not isinstance(value, bool)]


# -- the figures are the store's ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SPECS)
def test_every_figure_in_a_table_is_one_of_the_stores(store: Store, kind: str) -> None:
    run_id = stored(store, kind)
    report = json.loads(made(store, run_id, "json"))
    run = store.get_run(run_id)
    assert report["run"]["result"] == run.result and report["run"]["spec"] == run.spec
    known = {value for _, value in leaves([run.result, run.spec, run.environment]) if isinstance(value, int | float)}
    shown = figures_of(tables_of(report["sections"]))
    made_here = {value for value in shown if value not in known}
    memories = [metrics["memory"] for metrics in _metrics(run.result or {}) if "memory" in metrics]
    accounts = {value for held in memories for value in ledger_accounts(held).values() if value is not None}
    totals = {sum(v for v in ledger_accounts(held).values() if v is not None) for held in memories}
    counted = set(range(1, 30))  # the numbers of pairs
    assert made_here <= accounts | totals | counted, kind
    assert shown


def _metrics(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [result, *(arm.get("metrics") or {} for arm in result.get("arms") or [] if isinstance(arm, dict))]


@pytest.mark.parametrize("kind", SPECS)
def test_page_notebook_and_json_have_the_same_figures(store: Store, kind: str) -> None:
    run_id = stored(store, kind)
    report = json.loads(made(store, run_id, "json"))
    figures = figures_of(tables_of(report["sections"]))
    on_page = [ast.literal_eval(text) for text in re.findall(r'data-value="([^"]+)"', made(store, run_id, "html"))]
    assert on_page == figures
    with_header = [table for table in tables_of(report["sections"]) if table["columns"] is not None]
    book = notebook_space(made(store, run_id, "ipynb"))
    frames = [book["exact"](place) for place in range(len(with_header))]
    found = [[[cell["text"] if cell["value"] is None else cell["value"] for cell in row] for row in table["rows"]]
             for table in with_header]  # fmt: skip
    assert [frame.astype(object).values.tolist() for frame in frames] == found


def test_markdown_shows_each_figure_of_a_benchmark_as_rounded_from_the_store(store: Store) -> None:
    result = result_of("bench")
    text = made(store, stored(store, "bench"), "md")
    rows: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("| "):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            rows.setdefault(cells[0], cells)
    words = Words("en")
    for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s"):
        shown = rows[words(f"m_{name}")][1:5]
        for key, cell in zip(("mean", "p50", "p95", "p99"), shown, strict=True):
            assert cell == number(result[name][key])
            assert float(cell.replace(",", "")) == pytest.approx(result[name][key], rel=5e-3)
    assert rows[words("m_output_tokens_per_s")][1] == number(result["output_tokens_per_s"])


@pytest.mark.parametrize("kind", SPECS)
def test_the_table_has_every_leaf_of_the_result_exactly(store: Store, kind: str) -> None:
    run_id = stored(store, kind)
    rows = list(csv.DictReader(io.StringIO(made(store, run_id, "csv"))))
    assert tuple(rows[0]) == COLUMNS
    found = {row["name"]: row for row in rows if row["part"] == "result"}
    for path, value in leaves(store.get_run(run_id).result):
        row = found.pop(path)
        if isinstance(value, bool):
            assert row["text"] == str(value).lower()
        elif isinstance(value, int | float):
            assert float(row["value"]) == value, path
        else:
            assert row["text"] == safe(value), path
    assert found == {}


def test_every_metric_can_be_computed_again_from_the_events_of_the_table(store: Store) -> None:
    run_id = stored(store, "compare")
    table = pq.read_table(io.BytesIO(report_bytes(run_id, store, "parquet"))).to_pylist()
    for kept in store.records(run_id):
        own = [row for row in table if (row["arm"], row["repeat"]) == (kept.arm, kept.repeat)]
        again = json.loads(json.dumps(kept.record))
        for request in again["requests"]:
            rows = [row for row in own if row["request"] == request["id"]]
            request["emissions"] = [[r["time_ns"], r["tokens"]] for r in rows if r["part"] == "emission"]
            request["steps"] = [[r["step"], r["name"], r["tokens"]] for r in rows if r["part"] == "work"]
            times = {r["name"]: r["time_ns"] for r in rows if r["part"] == "request" and r["time_ns"] is not None}
            request.update(times)
        for step in again["steps"]:
            step.update({r["name"]: r["time_ns"] if r["time_ns"] is not None else r["value"] for r in own
                         if r["part"] == "step" and r["step"] == step["index"]})  # fmt: skip
        assert again == kept.record
        assert compute_metrics(again) == compute_metrics(kept.record)


def test_csv_and_parquet_are_the_same_rows(store: Store) -> None:
    run_id = stored(store, "bench")
    columns = pq.read_table(io.BytesIO(report_bytes(run_id, store, "parquet"))).to_pylist()
    rows = list(csv.DictReader(io.StringIO(made(store, run_id, "csv"))))
    assert len(rows) == len(columns)
    for text, exact in zip(rows, columns, strict=True):
        for name, value in exact.items():
            shown = "" if value is None else safe(value) if isinstance(value, str) else repr(value)
            assert text[name] == shown


def test_every_figure_of_the_table_is_labelled(store: Store) -> None:
    for kind in SPECS:
        rows = csv.DictReader(io.StringIO(made(store, stored(store, kind), "csv")))
        bare = [row["name"] for row in rows if row["value"] and not row["provenance"]]
        assert bare == [], kind


def test_a_lost_record_is_named_and_the_others_are_there(store: Store) -> None:
    run_id = stored(store, "compare")
    lost = next(
        path for path in sorted((store.path.parent / "events").rglob("*.parquet")) if path.name.startswith("0-")
    )
    lost.unlink()
    rows = list(csv.DictReader(io.StringIO(made(store, run_id, "csv"))))
    assert [(row["arm"], row["repeat"]) for row in rows if row["part"] == "lost"] == [("0", "1")]
    assert {row["arm"] for row in rows if row["part"] == "emission"} == {"1"}


def test_the_pages_chart_of_memory_is_of_the_stores_bytes(store: Store) -> None:
    memory = result_of("bench")["memory"]
    page = made(store, stored(store, "bench"), "html")
    accounts = {name: value for name, value in ledger_accounts(memory).items() if value}
    for value in accounts.values():
        assert f"{number(value / MIB, 4)} MiB</title>" in page


# -- what a user typed stays text ------------------------------------------------------------------------------------


def hostile(value: Any) -> Any:
    """The same JSON with every text made hostile, but those that choose what is shown."""
    if isinstance(value, dict):
        return {name: item if name in KEPT else hostile(item) for name, item in value.items()}
    if isinstance(value, list):
        return [hostile(item) for item in value]
    return HOSTILE if isinstance(value, str) else value


def hostile_run(store: Store, kind: str) -> str:
    run_id = stored(store, kind, hostile(result_of(kind)) | {"warnings": [*TYPED], "environment": {HOSTILE: HOSTILE}})
    store.update_run(run_id, spec=hostile(checked(kind)), error=HOSTILE, version=HOSTILE,
                     environment={name: name for name in TYPED})  # fmt: skip
    record = run_record()
    record["requests"][0] |= {"id": HOSTILE, "error": HOSTILE, "finish_reason": "=1+2"}
    store.add_record(run_id, 0, 2, record)
    return run_id


def rendered_faults(text: str) -> list[str]:
    """What a Markdown reader would make of the text that only its author may make: links, pictures, HTML."""
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    found = []
    for token in reader.parse(text):
        for one in [token, *(token.children or [])]:
            if one.type in (
                "html_inline",
                "html_block",
                "link_open",
                "image",
                "code_inline",
                "s_open",
                "blockquote_open",
            ):
                found.append(f"{one.type}: {one.content or one.attrs}")
    return found


@pytest.mark.parametrize("kind", SPECS)
def test_markdown_of_hostile_texts_has_no_link_picture_html_or_torn_table(store: Store, kind: str) -> None:
    text = made(store, hostile_run(store, kind), "md")
    assert rendered_faults(text) == []
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    clean = MarkdownIt("commonmark").enable("table").parse(made(store, stored(store, kind), "md"))
    assert _shapes(tokens) == _shapes(clean), "a hostile cell adds or takes no column"
    assert _shapes(clean)
    assert not {"ordered_list_open", "bullet_list_open"} & {token.type for token in tokens}


def _shapes(tokens: Any) -> list[int]:
    """The columns of each table's header."""
    found: list[int] = []
    for token in tokens:
        if token.type == "thead_open":
            found.append(0)
        elif token.type == "th_open":
            found[-1] += 1
    return found


def test_escaped_markdown_shows_exactly_what_was_typed() -> None:
    reader = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    edges = ["max_num_seqs=8", "__init__", "a_b_c", "snake_ case", "~~x~~", "+", "2026-01-02", "---", "===", "== x",
             "0.0240", "2) two", "3.", "-1.5 %", "+107 %", ":---", "## x", "#x"]  # fmt: skip
    for text in [*TYPED, HOSTILE, *edges]:
        shown = re.sub(r"</?p>", "", reader.render(escape(text))).strip()
        assert html.unescape(shown) == " ".join(text.split()), text


@pytest.mark.parametrize("kind", SPECS)
def test_no_cell_begins_a_formula(store: Store, kind: str) -> None:
    for row in csv.reader(io.StringIO(made(store, hostile_run(store, kind), "csv"))):
        for name, cell in zip(COLUMNS, row, strict=True):
            if cell.lstrip().startswith(("=", "+", "-", "@")):
                assert name == "value", (name, cell)
                float(cell)


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@a", "\t=1", "  =1", "＝1", "\r@", "\n+"])
def test_a_formula_becomes_text(text: str) -> None:
    assert safe(text) == f"'{text}"
    assert safe("a=1") == "a=1" and safe("") == ""


def notebook_space(text: str) -> dict[str, Any]:
    """What the notebook's cells leave behind when they are run one after another; each must run."""
    space: dict[str, Any] = {}
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), space)
    return space


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("kind", SPECS)
def test_a_notebook_of_hostile_texts_is_valid_and_its_cells_run(store: Store, kind: str, lang: str) -> None:
    text = made(store, hostile_run(store, kind), "ipynb", lang)
    book = nbformat.reads(text, as_version=4)
    nbformat.validate(book)
    assert len({cell["id"] for cell in book.cells}) == len(book.cells)
    for cell in book.cells:
        if cell.cell_type == "markdown":
            # Code spans of our own line on how it works are the only ones.
            faults = [fault for fault in rendered_faults(cell.source) if "(n)" not in fault]
            assert faults == []
    space = notebook_space(text)
    for place in range(len(space["DATA"]["charts"])):
        drawn = space["chart"](place)
        assert isinstance(drawn, str) or drawn.to_dict()
    names = {node.names[0].name for cell in book.cells if cell.cell_type == "code"
             for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Import)}  # fmt: skip
    assert names == {"json", "pandas", "altair"}


# -- the page is valid -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SPECS)
def test_the_page_is_parsed_without_a_fault_and_no_id_comes_twice(store: Store, kind: str) -> None:
    for run_id in (stored(store, kind), hostile_run(store, kind)):
        for lang in ("en", "zh"):
            parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
            tree = parser.parse(made(store, run_id, "html", lang))
            ids = Counter(element.get("id") for element in tree.iter() if element.get("id"))
            assert [name for name, times in ids.items() if times > 1] == []
            for element in tree.iter():
                assert not any(str(name).startswith("on") for name in element.attrib)
                assert element.get("src") is None and element.get("href") is None


# -- one report a run, no secret in it ---------------------------------------------------------------------------------

SHOW = """
import hashlib, sys
from experiments.report import FORMATS, report_bytes
from experiments.store import Store
store = Store(sys.argv[1])
for run_id in sys.argv[2:]:
    for form in FORMATS:
        print(run_id, form, hashlib.sha256(report_bytes(run_id, store, form)).hexdigest())
"""


def test_a_run_has_the_same_bytes_in_every_process(store: Store) -> None:
    runs = [stored(store, kind) for kind in SPECS]
    told = []
    for seed in ("1", "77"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", SHOW, str(store.path), *runs]
        told.append(subprocess.run(command, env=env, check=True, capture_output=True, text=True, cwd=ROOT).stdout)
    assert told[0] == told[1] and told[0].count("\n") == len(runs) * len(FORMATS)
    here = [hashlib.sha256(report_bytes(run, store, form)).hexdigest() for run in runs for form in FORMATS]
    assert [line.split()[-1] for line in told[0].splitlines()] == here


@pytest.mark.parametrize("form", FORMATS)
def test_no_format_has_a_secret(store: Store, form: str) -> None:
    hidden = {
        "endpoint": "https://me:pass-word@host",
        "headers": {"X-Api-Key": "hunter2", "Authorization": "Bearer t0p"},
    }
    for kind, result in (
        ("bench", bench_result(environment=hidden)),
        ("compare", comparison_result(environment=hidden)),
    ):
        run_id = stored(store, kind, result)
        spec = {**checked(kind), "headers": {"Authorization": "Bearer abcdefghij"}, "api_key": "sk-abcdefabcdefabcdef"}
        store.update_run(run_id, spec=spec, error="https://u:failed-pw@host said no", environment=hidden)
        record = run_record()
        record["requests"][0]["error"] = "401 for Bearer leaked-one"
        store.add_record(run_id, 0, 2, record | {"environment": hidden})
        found = report_bytes(run_id, store, form)
        if form == "parquet":  # compressed
            found = json.dumps(pq.read_table(io.BytesIO(found)).to_pylist()).encode()
        for secret in ("pass-word", "hunter2", "t0p", "abcdefghij", "sk-abc", "failed-pw", "leaked-one"):
            assert secret.encode() not in found, (kind, secret)
        assert b"[withheld]" in found or (form == "md" and rb"\[withheld\]" in found)


def test_unknown_formats_are_refused(store: Store) -> None:
    with pytest.raises(InputError, match="pdf"):
        report_bytes(stored(store, "bench"), store, "pdf")
