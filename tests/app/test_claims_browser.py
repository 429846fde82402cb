"""The page Claims in a real browser: the list and one claim, narrow and wide, without a console error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.i18n import catalogue
from experiments.claims import run_claim
from experiments.claims.catalogue import claim_texts
from experiments.kinds import kind_of
from experiments.store import Store
from experiments.store.identity import code_hash, environment
from tests.app.test_e2e import address, browser, cards_fit, faults_of, home, page, shoot

__all__ = ["address", "browser", "home", "page"]
pytestmark = pytest.mark.slow


def test_claims_read_well_at_390_px_in_both_languages(page: Any, address: str, home: Path, tmp_path: Path) -> None:
    store, spec = Store(home / "runs.sqlite3"), kind_of("claim").check({"claim": "C04"})
    run_id = store.create_run("claim", spec, code=code_hash(), environment=environment(spec))
    store.update_run(run_id, state="done", result={**run_claim("C04"), "took_s": 0.1, "run_id": run_id})
    errors = faults_of(page)
    for width in (390, 1200):
        for lang in ("en", "zh"):
            page.set_viewport_size({"width": width, "height": 1400})
            page.goto(f"{address}/claims?lang={lang}")
            page.get_by_text(claim_texts(lang)["C50"].statement).first.wait_for()
            assert cards_fit(page), (width, lang)
            shoot(page, f"claims-{width}-{lang}", tmp_path)
            page.goto(f"{address}/claims?claim=C04&lang={lang}")
            page.get_by_text(catalogue(lang)["claims.check"]).first.wait_for()
            page.get_by_text("trilemma claims run C04").first.wait_for()
            assert cards_fit(page), (width, lang)
            shoot(page, f"claim-{width}-{lang}", tmp_path)
    assert errors == []
