"""Every page in a real browser: no sideways scrolling on a phone, and the keyboard gets everywhere and out again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.navigation import FIRST, GROUPS
from tests.app.test_e2e import address, browser, cards_fit, home, page, shoot

__all__ = ["address", "browser", "home", "page"]
pytestmark = pytest.mark.slow
MOST_STOPS = 250
# Of the focused element: what it is called, and whether it or the box around it is marked.
FOCUSED = """() => {
  const e = document.activeElement;
  if (!e || e === document.body) return null;
  const name = e.getAttribute('aria-label') || e.innerText || e.id || e.tagName;
  const outlined = parseFloat(getComputedStyle(e).outlineWidth) >= 2 && getComputedStyle(e).outlineStyle !== 'none';
  const typed = ['INPUT', 'TEXTAREA'].includes(e.tagName);
  return [name.trim(), outlined || typed];
}"""


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_no_page_scrolls_sideways_on_a_phone(page: Any, address: str, tmp_path: Path, lang: str) -> None:
    page.set_viewport_size({"width": 390, "height": 1400})
    wide = []
    for name, (_, path) in (entry for pages in GROUPS.values() for entry in pages.items()):
        page.goto(f"{address}/{'' if name == FIRST else path}?lang={lang}")
        page.locator("h1").first.wait_for()
        shoot(page, f"empty-{path}-390-{lang}", tmp_path)
        if not cards_fit(page):
            wide.append(path)
    assert wide == []


def test_tab_reaches_run_shows_where_it_is_and_is_not_trapped(page: Any, address: str) -> None:
    page.goto(f"{address}/?variable=batching")
    page.get_by_role("button", name="Skip the tour").click()
    page.get_by_text("Skip the tour").wait_for(state="detached")
    stops: list[tuple[str, bool]] = []
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        found = page.evaluate(FOCUSED)
        if found is None or (len(stops) > 5 and found[0] == stops[0][0]):
            break
        stops.append((found[0], found[1]))
    assert len(stops) < MOST_STOPS, stops[-3:]
    assert any("Run" in name for name, _ in stops), stops
    assert [name for name, marked in stops if not marked] == []
