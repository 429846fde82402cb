"""Every page's main action in a real browser, on a phone, in both languages: done, its result seen, nothing broken.

English pages are light and Chinese ones dark, so that both are seen without drawing every page four times.

One table says what the main action of a page is. Long experiments are started and stopped, short ones (a tiny random
model) run to their result, and what takes two processes minutes is opened from the store. Screenshots go to the folder
$TRILEMMA_SHOTS.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.i18n import translate
from app.navigation import GROUPS
from experiments.jitter.spec import JitterSpec
from experiments.store import Store
from tests.app.conftest import Sample
from tests.app.test_e2e import address, browser, cards_fit, faults_of, page, shoot
from tests.app.test_parallel_page import jitter_result

__all__ = ["address", "browser", "page"]
pytestmark = pytest.mark.slow
RESULT_MS = 180_000
PHONE, DESK = 390, 1440
# What Streamlit adds to the name of a button that a key presses too.
SHORTCUT = r"(\s*(Shortcut\s*)?Ctrl \+ Enter)?"
ACTION_MS = 60_000
SCHEMES = {"en": "light", "zh": "dark"}


class Visit(NamedTuple):
    """A page as one reader has it open."""

    page: Any
    lang: str

    def button(self, key: str) -> Any:
        """The button with a message of the catalogue on it, an icon before it or not."""
        said = re.escape(translate(self.lang, key))
        return self.page.get_by_role("button", name=re.compile(rf"(^|\s|[a-z_]){said}{SHORTCUT}$")).first

    def sees(self, text: str) -> None:
        """Wait until the page says it, in these letters."""
        self.page.get_by_text(re.compile(re.escape(text))).first.wait_for(timeout=RESULT_MS)

    def reads(self, key: str) -> None:
        """Wait until the page says a message of the catalogue."""
        self.sees(translate(self.lang, key))


Act = Callable[[Visit], None]


def runs(visit: Visit, run: str = "picker.run") -> None:
    """Press Run, or what the page calls it, and wait for the result of that run; the page may show an earlier one."""
    visit.button(run).click()
    visit.button("picker.cancel").wait_for()
    visit.button("picker.cancel").wait_for(state="detached", timeout=RESULT_MS)
    visit.reads("result.export")


def stops(said: str, run: str = "picker.run", ended: str = "") -> Act:
    """Press Run, see it begin, press Cancel and see what became of it."""

    def act(visit: Visit) -> None:
        visit.button(run).click()
        visit.button("picker.cancel").click()
        visit.reads(said)
        visit.button(ended or run).wait_for()

    return act


def chooses(box: int) -> Act:
    """Take another option of a select box: the verdict is another one."""

    def act(visit: Visit) -> None:
        verdict = visit.page.locator(".st-key-verdict_sentence").first
        before = verdict.inner_text()
        field = visit.page.locator("[data-testid=stMain] [data-testid=stSelectbox] input").nth(box)
        chosen = field.input_value()
        field.click()
        options = visit.page.get_by_role("option")
        options.first.wait_for()
        options.nth(next(i for i, name in enumerate(options.all_inner_texts()) if name != chosen)).click()
        visit.page.wait_for_function(
            "before => ![null, before].includes(document.querySelector('.st-key-verdict_sentence')?.innerText ?? null)",
            arg=before,
        )

    return act


def opens(*keys: str) -> Act:
    """The page shows what its address asks for."""

    def act(visit: Visit) -> None:
        for key in keys:
            visit.reads(key)

    return act


def predicts(visit: Visit) -> None:
    """Lock a guess in: the experiment may begin."""
    visit.page.get_by_role("textbox").first.fill("2900")
    visit.button("labs.lock_in").click()
    visit.button("labs.run").wait_for()


def answers(visit: Visit) -> None:
    """Half of the right answer: the mistake is named."""
    visit.page.get_by_role("textbox").first.fill("9 GiB")
    visit.button("interview.answer").click()
    visit.sees({"en": "the values forgotten", "zh": "只算了 K"}[visit.lang])


def details(visit: Visit) -> None:
    """Open all that is known of the first run."""
    visit.button("runs.details").click()
    visit.reads("runs.facts")


def keeps(visit: Visit) -> None:
    """Another price is kept, and Undo brings the earlier one back."""
    field = visit.page.get_by_role("spinbutton").first
    before = field.input_value()
    field.fill("7.5")
    field.press("Enter")
    undo = visit.page.locator(".st-key-undo-settings button")
    undo.click()
    undo.wait_for(state="detached")
    assert visit.page.get_by_role("spinbutton").first.input_value() == before


TINY = "set=model={tiny},dtype=fp32,kv_memory_mib=4,threads=1"
# page, with what is seen of it where there are several -> (parameters of its address, its main action)
PAGES: dict[str, tuple[str, Act]] = {
    "": (f"variable=seed&a=0&b=1&requests=2&repeats=2&{TINY}", runs),
    "two": (f"x=max_num_seqs&x0=2&x1=8&y=block_size&y0=16&y1=32&repeats=2&{TINY}", runs),
    "trace": ("run={run}", opens("trace.blocks", "trace.waterfall", "result.export")),
    "ledger": ("", chooses(1)),
    "roofline": ("", chooses(1)),
    "kernels": ("model={tiny}&dtype=fp32&repeats=6", runs),
    "quantization": ("model={tiny}&limit=20", stops("quant.cancelled", ended="quant.resume")),
    "speculation": ("model={tiny}", stops("spec.cancelled", ended="spec.resume")),
    "caching": ("", stops("caching.cancelled", ended="caching.resume")),
    "load": ("", stops("load.cancelled", ended="load.resume")),
    "parallel": ("half=ranks", stops("ranks.cancelled", ended="ranks.resume")),
    "parallel+apart": ("run={apart}", opens("apart.course", "apart.table", "result.export")),
    "plan": ("cards=h100-sxm&most=2", partial(runs, run="plan.run")),
    "plan+one": ("half=one", opens("plan.latencies")),
    "cost": ("", chooses(1)),
    "advisor": ("run={run}", opens("advisor.causes")),
    "playbook": ("", stops("playbook.cancelled", ended="playbook.resume")),
    "claims": ("", stops("claims.cancelled", run="claims.quick", ended="claims.resume")),
    "labs": ("lab=memory-ledger&learner={lang}", predicts),
    "interview": ("q=kv_gqa:17", answers),
    "runs": ("", details),
    "settings": ("", keeps),
}


@pytest.fixture(scope="module")
def home(sample: Sample, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample's home with a stored run of PD disaggregation, to start and stop runs in."""
    copy = tmp_path_factory.mktemp("pages") / "home"
    shutil.copytree(sample.home, copy)
    return copy


@pytest.fixture(scope="module")
def apart(home: Path) -> str:
    store = Store(home / "runs.sqlite3")
    run_id = store.create_run("jitter", JitterSpec().to_dict())
    store.update_run(run_id, state="done", result=jitter_result())
    return run_id


def test_every_page_of_the_navigation_has_its_main_action_here() -> None:
    addresses = {"" if name == "workbench" else path for pages in GROUPS.values() for name, (_, path) in pages.items()}
    assert {name.partition("+")[0] for name in PAGES} == addresses


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", list(PAGES))
def test_the_main_action_of_a_page(
    page: Any, address: str, sample: Sample, apart: str, tmp_path: Path, name: str, lang: str
) -> None:
    params, act = PAGES[name]
    errors = faults_of(page)
    tiny = sample.store.get_run(sample.run_id).spec["settings"]["model"]
    asked = params.format(run=sample.run_id, apart=apart, tiny=tiny, lang=lang)
    page.set_default_timeout(ACTION_MS)
    page.emulate_media(color_scheme=SCHEMES[lang])
    page.set_viewport_size({"width": PHONE, "height": 1400})
    page.goto(f"{address}/{name.partition('+')[0]}?lang={lang}&{asked}")
    page.locator("[data-testid=stMain] h1").first.wait_for()
    act(Visit(page, lang))
    for width in (PHONE, DESK):
        page.set_viewport_size({"width": width, "height": 1400})
        shoot(page, f"{name or 'workbench'}-{width}-{lang}", tmp_path)
        assert cards_fit(page), width
        assert page.locator("[data-testid=stException]").count() == 0
        assert page.get_by_text(translate(lang, "error.title")).count() == 0
    assert errors == []
