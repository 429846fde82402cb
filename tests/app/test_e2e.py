"""The whole product in a real browser: the default experiment to its verdict, and a killed engine process."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.store import Store

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-sync"),
)
START_S = 120
PROBE = re.compile(r"/\w+/_stcore/(health|host-config)$")
VERDICT_S = 60 * 60  # minutes on a desktop; a shared pair of cores takes far longer
SHOTS = os.environ.get("TRILEMMA_SHOTS")
# A busy machine may take a smaller experiment, such as variable=batching&requests=6&repeats=2.
EXPERIMENT = os.environ.get("TRILEMMA_E2E_EXPERIMENT", "variable=batching")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def address(home: Path) -> Iterator[str]:
    """The real app on a free port, with a store of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "app.server", "--port", str(port)],
        cwd=ROOT,
        env={**os.environ, "TRILEMMA_HOME": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until_it_answers(f"http://127.0.0.1:{port}/_stcore/health")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=30)


def wait_until_it_answers(url: str) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.3)
    raise AssertionError(f"{url} did not answer within {START_S} s")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not installed: the browser test needs it")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: the browser test needs it")
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        yield running
        running.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1440, "height": 1400}, color_scheme="light")
    context.set_default_timeout(START_S * 1000)
    yield context.new_page()
    context.close()


def faults_of(page: Any) -> list[str]:
    """A list that grows by every error that the page has or its console tells.

    Not by the one that Streamlit makes on purpose: behind a deep link it asks under the page's own path first whether
    its server is there, and goes on with the answer 404.
    """
    found: list[str] = []

    def told(message: Any) -> None:
        if message.type == "error" and not PROBE.search(message.location.get("url", "")):
            found.append(f"{message.text} ({message.location.get('url', '')})")

    page.on("console", told)
    page.on("pageerror", lambda error: found.append(str(error)))
    return found


def shoot(page: Any, name: str, folder: Path) -> None:
    """A screenshot of the page's whole length; also in $TRILEMMA_SHOTS when that is set."""
    page.wait_for_timeout(2500)
    page.wait_for_function("!document.querySelector('[data-testid=stSkeleton]')")  # code of controls still loads
    height = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
    width = page.viewport_size["width"]
    page.set_viewport_size({"width": width, "height": min(int(height) + 20, 8000)})
    page.wait_for_timeout(1500)
    target = Path(SHOTS or folder) / f"{name}.png"
    page.screenshot(path=str(target))
    assert target.stat().st_size > 10_000
    page.set_viewport_size({"width": width, "height": 1400})


def run_id_of(page: Any) -> str:
    found = re.search(r"[?&]run=([0-9a-f]{8})", page.url)
    assert found, page.url
    return found[1]


def press_run(page: Any, address: str) -> str:
    page.goto(f"{address}/?{EXPERIMENT}")
    page.locator(".st-key-run button").click()
    page.get_by_role("button", name=re.compile("Cancel$")).wait_for()
    page.wait_for_url(re.compile(r"[?&]run=[0-9a-f]{8}"))
    return run_id_of(page)


def wait_until_it_ends(home: Path, run_id: str) -> None:
    deadline = time.monotonic() + VERDICT_S
    while Store(home / "runs.sqlite3").get_run(run_id).state in ("queued", "running"):
        assert time.monotonic() < deadline, f"run {run_id} did not end within {VERDICT_S} s"
        time.sleep(2)


def cards_fit(page: Any) -> bool:
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_the_default_experiment_ends_in_a_verdict(page: Any, address: str, home: Path, tmp_path: Path) -> None:
    run_id = press_run(page, address)
    page.get_by_text("KV block map").first.wait_for(timeout=VERDICT_S * 1000)
    shoot(page, "live", tmp_path)

    another = page.context.new_page()  # a second tab without an address of its own comes back to the running job
    another.goto(address)
    another.get_by_role("button", name=re.compile("Cancel$")).wait_for()
    assert run_id_of(another) == run_id
    another.close()
    page.reload()
    page.get_by_role("button", name=re.compile("Cancel$")).wait_for()

    # The reader leaves, as the page says they may: a browser that draws on the same two cores slows the engine.
    page.goto("about:blank")
    wait_until_it_ends(home, run_id)
    page.goto(f"{address}/?run={run_id}")
    page.get_by_text("Take it with you").wait_for(timeout=VERDICT_S * 1000)
    for text in ("Five curves", "Memory ledger", "Where each request spent its time", "When it does not pay"):
        page.get_by_text(text).first.wait_for()
    run = Store(home / "runs.sqlite3").get_run(run_id)
    assert run.state == "done" and run.result is not None and len(run.result["curves"]) == 5
    page.get_by_text("trilemma compare --vary batching=static,continuous").wait_for()
    shoot(page, "finished", tmp_path)
    for width in (390, 1440):
        for scheme in ("light", "dark"):
            for lang in ("en", "zh"):
                page.emulate_media(color_scheme=scheme)
                page.set_viewport_size({"width": width, "height": 1400})
                page.goto(f"{address}/?run={run_id}&lang={lang}")
                page.get_by_text({"en": "Take it with you", "zh": "带走结果"}[lang]).wait_for()
                assert cards_fit(page), (width, lang)
                shoot(page, f"finished-{width}-{scheme}-{lang}", tmp_path)


def test_a_killed_engine_process_is_said_and_can_be_started_again(
    page: Any, address: str, home: Path, tmp_path: Path
) -> None:
    run_id = press_run(page, address)
    store = Store(home / "runs.sqlite3")
    deadline = time.monotonic() + START_S
    while (run := store.get_run(run_id)).pid is None or run.state != "running":
        assert time.monotonic() < deadline and run.state in ("queued", "running"), run
        time.sleep(0.2)
    os.kill(run.pid, signal.SIGKILL)
    page.get_by_text("failed: the engine process ended").wait_for()
    assert store.get_run(run_id).state == "failed"
    shoot(page, "failed", tmp_path)
    page.get_by_role("button", name=re.compile("Restart$")).click()
    page.wait_for_function(f"!location.href.includes('{run_id}') && location.href.includes('run=')")
    page.get_by_role("button", name=re.compile("Cancel$")).click()
    page.get_by_text("Cancelled before one pair").wait_for()
    assert store.get_run(run_id_of(page)).state == "cancelled"
    page.goto(f"{address}/runs")
    page.get_by_text(run_id).first.wait_for()
    shoot(page, "runs", tmp_path)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_interview_is_practised_and_sat_on_a_phone(page: Any, address: str, tmp_path: Path, lang: str) -> None:
    page.set_viewport_size({"width": 390, "height": 1400})
    page.goto(f"{address}/interview?lang={lang}&q=kv_gqa:17")
    field = page.get_by_role("textbox").first
    field.wait_for()
    assert cards_fit(page)
    field.fill("9 GiB")  # half of the answer
    page.get_by_role("button", name=re.compile({"en": "Answer$", "zh": "作答$"}[lang])).click()
    page.get_by_text({"en": "the values forgotten", "zh": "只算了 K"}[lang]).wait_for()
    assert cards_fit(page)
    shoot(page, f"interview-390-{lang}", tmp_path)
    page.goto(f"{address}/interview?lang={lang}&mode=mock")
    page.get_by_role("button", name=re.compile({"en": "Start the clock$", "zh": "开始计时$"}[lang])).click()
    page.get_by_text({"en": "0 of 10 answered", "zh": "已答 0/10"}[lang]).wait_for()
    assert cards_fit(page)
    shoot(page, f"interview-mock-390-{lang}", tmp_path)
    page.get_by_role("button", name=re.compile({"en": "Hand in$", "zh": "交卷$"}[lang])).click()
    page.get_by_text({"en": "Score by topic", "zh": "各主题成绩"}[lang]).wait_for()
    assert cards_fit(page)
    page.set_viewport_size({"width": 1440, "height": 1400})
    shoot(page, f"interview-sheet-1440-{lang}", tmp_path)
