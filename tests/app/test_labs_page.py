"""The page Labs: the list, and one lab from the prediction to the score, in both languages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.i18n import catalogue
from experiments import jobs
from experiments.labs import LabSession, Progress, get_lab, load_labs
from experiments.labs.words import say
from experiments.store import Store
from tests.app.alone import page_alone, texts, used
from tests.experiments.labs.scripted import right_text, scripted_result

LAB = "memory-ledger"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield from used(tmp_path)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(kind: str, spec: Any, store: Store, **_: Any) -> str:
        run_id = store.create_run(kind, jobs.checked_spec(kind, spec))
        store.update_run(run_id, state="done", result=scripted_result(LAB, kind, json.dumps(spec)))
        return run_id

    monkeypatch.setattr(jobs, "start", start)


def session(home: Path) -> LabSession:
    return LabSession(get_lab(LAB), Progress(home=home), Store(home / "runs.sqlite3"))


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_list_names_every_lab_and_opens_one(home: Path, lang: str) -> None:
    app = page_alone("labs", lang=lang)
    shown = texts(app)
    assert app.title[0].value == catalogue(lang)["labs.question"]
    for lab in load_labs():
        assert lab.texts[lang].title in shown
    app.button(key=f"open-{LAB}").click().run()
    assert app.query_params["lab"] == LAB and app.title[0].value == get_lab(LAB).texts[lang].title


def test_an_unknown_lab_in_the_address_is_said_above_the_list(home: Path) -> None:
    app = page_alone("labs", lab="no-such-lab")
    assert "no-such-lab" in app.warning[0].value.replace("\\", "") and app.button(key=f"open-{LAB}")


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_lab_from_the_prediction_to_a_passing_score(home: Path, scripted: None, lang: str) -> None:
    app, lab = page_alone("labs", lab=LAB, lang=lang), get_lab(LAB)
    assert say(lang, "step.questions") not in texts(app) and say(lang, "step.measured") not in texts(app)
    app.text_input(key="prediction").set_value("many")
    _submit(app, "labs-predict")
    assert app.error and not app.exception and session(home).state == "new"
    app.text_input(key="prediction").set_value("2912")
    _submit(app, "labs-predict")
    assert session(home).state == "predicted"
    app.button(key="run").click().run()
    assert not app.exception and say(lang, "step.why") in texts(app)
    for question in lab.questions:
        right = right_text(session(home), question)
        if question.kind == "number":
            app.text_input(key=f"answer-{question.id}").set_value(right)
        else:
            app.radio(key=f"answer-{question.id}").set_value(right)
        _submit(app, f"form-{question.id}")
        assert not app.exception
    assert session(home).score().passed
    assert any(say(lang, "passed", mark="70") in str(box.value) for box in app.success)
    app.button(key="reset").click().run()
    assert session(home).state == "new"


def test_a_wrong_answer_names_the_mistake_and_leaves_more_tries(home: Path, scripted: None) -> None:
    done = session(home)
    done.predict("1")
    done.start()
    done.collect()
    app = page_alone("labs", lab=LAB)
    app.text_input(key="answer-token").set_value("11520 B")
    _submit(app, "form-token")
    assert any("Only the keys were counted" in str(box.value) for box in app.warning)
    assert "2 of 3 tries left" in texts(app) and not session(home).is_settled(get_lab(LAB).questions[0])


def _submit(app: Any, form: str) -> None:
    button = next(one for one in app.button if one.form_id == form)
    button.click().run()
