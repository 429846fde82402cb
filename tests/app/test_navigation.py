"""The sidebar's order, every page's question, the tour, the empty pages and the settings, without a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app import own_jobs
from app.components.tour import STEPS
from app.i18n import catalogue
from app.navigation import GROUPS, nearest
from experiments import calibrate
from experiments.kinds import KINDS
from experiments.store import Store
from tests.app.alone import asked, page_alone, texts, used
from tests.app.test_pages import opened
from tests.experiments.test_calibrate import result as ceilings

ORDER = (
    *("workbench", "ledger", "roofline", "quantization", "speculation", "load", "parallel", "plan", "advisor"),
    *("playbook", "claims", "labs", "interview", "runs", "settings"),
)
PAGES = [name for pages in GROUPS.values() for name in pages]


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Path]:
    yield from used(tmp_path)


def kept(home: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((home / "preferences.json").read_text("utf-8"))
    return found


def test_the_main_pages_stand_in_their_order_and_each_address_once() -> None:
    assert [name for name in PAGES if name in ORDER] == list(ORDER)
    addresses = [address for pages in GROUPS.values() for _, address in pages.values()]
    assert len(set(addresses)) == len(addresses)


@pytest.mark.parametrize(
    ("address", "meant"),
    [
        ("http://127.0.0.1:8501/labz", "labs"),
        ("http://127.0.0.1:8501/quantisation/", "quantization"),
        ("http://127.0.0.1:8501/labs", None),
        ("http://127.0.0.1:8501/", None),
        ("https://host/trilemma", None),  # a path of a proxy, in front of the first page
        ("", None),
    ],
)
def test_a_misspelt_address_leads_to_the_page_that_was_meant(address: str, meant: str | None) -> None:
    assert nearest(address) == meant


@pytest.mark.parametrize("name", PAGES)
def test_every_page_opens_with_its_question_in_an_empty_home(fresh: Path, name: str) -> None:
    app = page_alone(name, lang="zh")
    assert len(app.title) == 1 and app.title[0].value.endswith("？")


@pytest.mark.parametrize("name", ["trace", "runs", "advisor", "interview"])
def test_an_empty_page_has_a_button_that_leads_on(fresh: Path, name: str) -> None:
    params = {"mode": "score"} if name == "interview" else {}
    assert page_alone(name, **params).button(key="empty").label


def test_a_filter_that_nothing_fits_can_be_lifted(fresh: Path) -> None:
    app = page_alone("claims", verdict="holds", kind="simulated")
    app.button(key="empty").click().run()
    assert not app.exception and asked(app, "verdict") == "any"


def test_the_tour_comes_once_points_to_controls_and_can_be_shown_again(fresh: Path) -> None:
    app, words = opened(fresh), catalogue("en")
    for name in STEPS:
        assert words[f"tour.{name}"] in texts(app)
        assert STEPS[name] in "".join(str(item.proto.body) for item in app.get("html"))
        app.button(key="tour-next").click().run()
    assert kept(fresh)["tour_seen"] is True
    assert words["tour.variable"] not in texts(opened(fresh))


def test_a_tour_that_is_left_is_over(fresh: Path) -> None:
    app = opened(fresh)
    app.button(key="tour-skip").click().run()
    assert kept(fresh)["tour_seen"] is True and catalogue("en")["tour.variable"] not in texts(app)


def test_settings_are_kept_start_other_pages_and_can_be_taken_back(fresh: Path) -> None:
    app = page_alone("settings")
    app.number_input[0].set_value(2.5).run()
    app.text_input[1].set_value("ttft_p95=0.7").run()
    assert not app.exception and (kept(fresh)["price"], kept(fresh)["slo"]) == (2.5, "ttft_p95=0.7")
    load = page_alone("load")
    assert load.number_input(key="load-price").value == 2.5 and load.text_input(key="load-slo").value == "ttft_p95=0.7"
    app.button(key="undo-settings").click().run()
    assert (kept(fresh)["price"], kept(fresh)["slo"]) == (2.5, "")


@pytest.mark.parametrize("what", ["ceilings", "simulator"])
def test_this_machine_can_be_measured_from_settings(fresh: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(own_jobs, "start", lambda kind, spec: asked.append({"kind": kind, **spec}))
    app, words = page_alone("settings"), catalogue("en")
    assert texts(app).count(words["calibrate.never"]) == 2
    app.button(key=f"calibrate-{what}").click().run()
    assert not app.exception and asked == [{"kind": "calibrate", "what": what}]


def test_what_was_measured_is_dated_and_one_at_work_can_be_cancelled(fresh: Path) -> None:
    calibrate.store(ceilings())
    store = Store(fresh / "runs.sqlite3")
    store.create_run("calibrate", KINDS["calibrate"].check({"what": "simulator"}), state="queued")
    app, words = page_alone("settings"), catalogue("en")
    assert words["calibrate.measured_at"].format(at="2026-01-01 00:00") in texts(app)
    assert app.button(key="calibrate-cancel").label == words["picker.cancel"]
    assert all(app.button(key=f"calibrate-{what}").disabled for what in ("ceilings", "simulator"))


def test_objectives_that_are_none_are_refused_with_one_line(fresh: Path) -> None:
    app = page_alone("settings")
    app.text_input[1].set_value("fast").run()
    assert len(app.error) == 1 and "\n" not in app.error[0].value
    assert not (fresh / "preferences.json").exists()


def test_the_language_of_settings_holds_for_the_next_session(fresh: Path) -> None:
    (fresh / "preferences.json").write_text(json.dumps({"language": "zh", "price": "free"}), "utf-8")
    app = opened(fresh)
    assert catalogue("zh")["page.one_variable"] in texts(app)
    assert catalogue("zh")["nav.assumed_price"].format(price="1.00") in texts(
        app
    )  # a price that is none is passed over
