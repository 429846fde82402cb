"""The page Labs in a real browser: a lab by its link, narrow and wide, without a console error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments import jobs
from experiments.labs import LabSession, Progress, get_lab
from experiments.labs.words import say
from experiments.mistake_words import usual_mistake_told
from experiments.store import Store
from tests.app.test_e2e import address, browser, cards_fit, faults_of, home, page, shoot
from tests.experiments.labs.scripted import scripted_result

__all__ = ["address", "browser", "home", "page"]
pytestmark = pytest.mark.slow
LAB = "memory-ledger"


def test_a_lab_reads_well_at_390_px_in_both_languages(
    page: Any, address: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, store = get_lab(LAB), Store(home / "runs.sqlite3")

    def start(kind: str, spec: Any, _: Store, **more: Any) -> str:
        run_id = store.create_run(kind, jobs.checked_spec(kind, spec))
        store.update_run(run_id, state="done", result=scripted_result(LAB, kind, json.dumps(spec)))
        return run_id

    monkeypatch.setattr(jobs, "start", start)
    session = LabSession(lab, Progress(home=home), store)
    session.predict("2900")
    session.start()
    assert session.collect()
    session.answer("token", "11520")
    session.answer("longer", "kv")
    errors = faults_of(page)
    for width in (390, 1200):
        for lang in ("en", "zh"):
            page.set_viewport_size({"width": width, "height": 1400})
            page.goto(f"{address}/labs?lang={lang}")
            page.get_by_text(lab.texts[lang].title).first.wait_for()
            assert cards_fit(page), (width, lang)
            shoot(page, f"labs-{width}-{lang}", tmp_path)
            page.goto(f"{address}/labs?lab={LAB}&lang={lang}")
            page.get_by_text(say(lang, "step.reading")).first.wait_for()
            page.get_by_text(usual_mistake_told(lang, "k_without_v")).first.wait_for()
            assert cards_fit(page), (width, lang)
            shoot(page, f"lab-{width}-{lang}", tmp_path)
    assert errors == []
