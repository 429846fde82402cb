"""A page's main action in a real browser, on a phone, in both languages: done, its result seen, nothing broken.

One table says what the main action of a page is; what is measured is a tiny random model. Screenshots go to the folder
$TRILEMMA_SHOTS.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.i18n import translate
from tests.app.conftest import Sample
from tests.app.test_e2e import address, browser, cards_fit, faults_of, page, shoot

__all__ = ["address", "browser", "page"]
pytestmark = pytest.mark.slow
RESULT_MS = 180_000
PHONE, DESK = 390, 1440


class Visit(NamedTuple):
    """A page as one reader has it open."""

    page: Any
    lang: str

    def button(self, key: str) -> Any:
        """The button with a message of the catalogue on it, an icon before it or not."""
        said = re.escape(translate(self.lang, key))
        return self.page.get_by_role("button", name=re.compile(rf"(^|\s|[a-z_]){said}(\s*Ctrl \+ Enter)?$")).first

    def sees(self, text: str) -> None:
        """Wait until the page says it, in these letters."""
        self.page.get_by_text(re.compile(re.escape(text))).first.wait_for(timeout=RESULT_MS)

    def reads(self, key: str) -> None:
        """Wait until the page says a message of the catalogue."""
        self.sees(translate(self.lang, key))


Act = Callable[[Visit], None]


def runs(visit: Visit) -> None:
    """Press Run and wait for the result."""
    visit.button("picker.run").click()
    visit.reads("result.export")


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


TINY = "set=model={tiny},dtype=fp32,kv_memory_mib=4,threads=1&requests=2&repeats=2"
# page -> (parameters of its address, its main action)
PAGES: dict[str, tuple[str, Act]] = {
    "": (f"variable=seed&a=0&b=1&{TINY}", runs),
    "trace": ("run={run}", opens("trace.blocks", "trace.waterfall", "result.export")),
    "ledger": ("", chooses(1)),
    "roofline": ("", chooses(1)),
    "cost": ("", chooses(1)),
    "advisor": ("run={run}", opens("advisor.causes")),
}


@pytest.fixture(scope="module")
def home(sample: Sample) -> Iterator[Path]:
    return sample.home


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("name", list(PAGES))
def test_the_main_action_of_a_page(
    page: Any, address: str, sample: Sample, tmp_path: Path, name: str, lang: str
) -> None:
    params, act = PAGES[name]
    errors = faults_of(page)
    tiny = sample.store.get_run(sample.run_id).spec["settings"]["model"]
    asked = params.format(run=sample.run_id, tiny=tiny, lang=lang)
    page.set_viewport_size({"width": PHONE, "height": 1400})
    page.goto(f"{address}/{name}?lang={lang}&{asked}")
    page.locator("[data-testid=stMain] h1").first.wait_for()
    act(Visit(page, lang))
    for width in (PHONE, DESK):
        page.set_viewport_size({"width": width, "height": 1400})
        shoot(page, f"{name or 'workbench'}-{width}-{lang}", tmp_path)
        assert cards_fit(page), width
        assert page.locator("[data-testid=stException]").count() == 0
        assert page.get_by_text(translate(lang, "error.title")).count() == 0
    assert errors == []
