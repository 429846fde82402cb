"""What others wrote stays text on every page: names, values, errors and notes of an imported run, and an address."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from streamlit.testing.v1 import AppTest

from app.navigation import GROUPS
from experiments.spec import BenchSpec, CompareSpec
from experiments.store import Store
from tests.app.alone import page_alone, used
from tests.app.conftest import Sample

# A picture of elsewhere tells its server who reads the page; the rest would be a link, HTML, a formula, a colour.
HOSTILE = "![x](http://evil.example/p.png) [y](javascript:alert(1)) <script>alert(2)</script> $z$ :red[w]"
LIVE = re.compile(r"(?<!\\)\[[xyw]\](?:\(|$)|(?<!\\):red\[w|(?<![\\`])\[x\]")
MARKDOWN = {"body", "label", "help", "delta", "placeholder", "caption"}
PLAIN = {"codeText", "value", "default", "data", "spec", "url"}
# Fields of a result in which people and servers write.
WRITTEN = {
    "error", "note", "notes", "warning", "warnings", "how", "why", "reason", "cpu", "platform", "text", "owned_by",
}  # fmt: skip
PAGES = [name for group in GROUPS.values() for name in group]


def hostile(value: Any, key: str = "") -> Any:
    """The value with the texts that people write replaced."""
    if isinstance(value, dict):
        return {name: hostile(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [hostile(item, key) for item in value]
    return HOSTILE if isinstance(value, str) and key in WRITTEN else value


def shown(app: AppTest) -> Iterator[str]:
    """Every text of a page that is read as markdown."""
    for block in (app.main, app.sidebar):
        yield from _texts(block)


def _texts(node: Any) -> Iterator[str]:
    if (proto := getattr(node, "proto", None)) is not None:
        yield from _marked(MessageToDict(proto))
    for child in getattr(node, "children", {}).values():
        yield from _texts(child)


def _marked(found: Any, key: str = "") -> Iterator[str]:
    if isinstance(found, dict):
        for name, item in found.items():
            if name not in PLAIN:
                yield from _marked(item, name)
    elif isinstance(found, list):
        for item in found:
            yield from _marked(item, key)
    elif isinstance(found, str) and key in MARKDOWN:
        yield found


def live(app: AppTest) -> list[str]:
    """The texts in which something hostile is more than text."""
    assert not app.exception
    return [text for text in shown(app) if LIVE.search(text)]


@pytest.fixture(scope="module")
def home(sample: Sample, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The sample's home, its run with hostile texts in the result, beside hostile ones that failed."""
    path = tmp_path_factory.mktemp("hostile") / "home"
    shutil.copytree(sample.home, path)
    store = Store(path / "runs.sqlite3")
    store.update_run(sample.run_id, result=hostile(sample.result), environment={"cpu": HOSTILE}, version=HOSTILE)
    spec = {**CompareSpec().to_dict(), "settings": {"model": HOSTILE}, "workload": HOSTILE}
    models = {**spec, "variable": "model", "values": [HOSTILE, f"{HOSTILE} 2"], "settings": {}}
    bench = {**BenchSpec().to_dict(), "workload": HOSTILE, "endpoint": HOSTILE}
    for kind, made in (("compare", spec), ("compare", models), ("bench", bench)):
        run_id = store.create_run(kind, made, environment={"cpu": HOSTILE}, code=HOSTILE, version=HOSTILE)
        store.update_run(run_id, state="failed", error=HOSTILE)
    yield from used(path)


def runs(home: Path, page: str) -> list[str]:
    """The runs that a page shows."""
    found = Store(home / "runs.sqlite3").list_runs()
    kinds = {"workbench": ("failed", "done"), "runs": ("failed", "done")}.get(page, ("done",))
    return [run.id for run in found if run.state in kinds and (run.kind == "compare" or page == "runs")]


def test_the_search_finds_what_it_looks_for() -> None:
    lines = ("import streamlit as st", "st.error({0})", "st.button({0})", "st.expander({0}).code({0})", "st.title({0})")
    assert len(live(AppTest.from_string("\n".join(lines).format(repr(HOSTILE))).run())) == 4
    assert not live(AppTest.from_string(f"import streamlit as st\nst.code({HOSTILE!r})\n").run())


@pytest.mark.parametrize("page", ["workbench", "runs", "trace", "advisor"])
def test_a_run_of_others_stays_text(home: Path, page: str) -> None:
    found = {text for run in runs(home, page) for text in live(page_alone(page, run=run))}
    assert len(runs(home, page)) in (1, 3, 4) and found == set()


@pytest.mark.parametrize("page", PAGES)
def test_an_address_of_others_stays_text(home: Path, page: str) -> None:
    names = ("run", "claim", "lab", "mock", "q", "place", "text", "kind", "state", "model", "config", "arm", "repeat",
             "workload", "requests", "part", "card", "lang", "r", "test", "layers")  # fmt: skip
    assert live(page_alone(page, **dict.fromkeys(names, HOSTILE))) == []


def test_values_in_an_address_stay_text(home: Path) -> None:
    held = HOSTILE.replace(",", "")
    assert live(page_alone("workbench", variable="model", a=HOSTILE, b="embedded", set=f"draft_model={held}")) == []
