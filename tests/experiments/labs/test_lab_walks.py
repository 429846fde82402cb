"""Every lab, in both languages: a learner who knows passes, one who doesn't fails, usual mistakes are named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from experiments import jobs
from experiments.labs import Lab, LabSession, Progress, load_labs, read_lab
from experiments.labs.lab import LANGUAGES, MISSING
from experiments.labs.quantities import convert, dimension_of
from experiments.labs.view import lab_json, lab_text
from experiments.mistake_words import USUAL, usual_mistake_told
from experiments.store import Store
from tests.experiments.labs.scripted import measured, right_text, scripted_jobs, session_of, wrong_text

__all__ = ["scripted_jobs"]
LABS = load_labs()
DOCS = Path(__file__).resolve().parents[3] / "docs" / "labs.md"
every_lab = pytest.mark.parametrize("lab", LABS, ids=[lab.id for lab in LABS])
every_language = pytest.mark.parametrize("lang", LANGUAGES)


@every_lab
@every_language
def test_a_learner_who_knows_passes_with_all_points(lab: Lab, lang: str, tmp_path: Path, scripted_jobs: None) -> None:
    session = measured(lab, tmp_path)
    for question in lab.questions:
        session.answer(question.id, right_text(session, question))
        assert session.is_settled(question)
    found = session.score()
    assert found.passed and found.share == 1.0 and session.state == "passed"
    _whole(session, lang)


@every_lab
@every_language
def test_a_learner_who_does_not_know_fails(lab: Lab, lang: str, tmp_path: Path, scripted_jobs: None) -> None:
    session = measured(lab, tmp_path)
    for question in lab.questions:
        wrong = wrong_text(session, question)
        while not session.is_settled(question):
            assert session.answer(question.id, wrong).credit == 0.0
    found = session.score()
    assert not found.passed and found.points == 0.0 and session.state == "answered"
    _whole(session, lang)


def _whole(session: LabSession, lang: str) -> None:
    """Every text of the lab is there, with every figure in its place."""
    shown = lab_json(session, lang)
    text = lab_text(session, lang)
    assert "{{" not in text and MISSING not in text
    assert all(question["solution"] for question in shown["questions"])
    assert all(figure["value"] is not None for figure in shown["results"]["figures"])
    assert shown["results"]["provenance"] in ("measured", "computed", "simulated")
    if lang == "zh":
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        chinese = len(re.findall(r"[一-鿿]", prose))
        assert chinese > 600, f"only {chinese} Chinese characters"
        assert re.findall(r".{12}[一-鿿][,;:] .{6}", prose) == []


@every_lab
def test_every_mistake_that_a_lab_names_is_wrong_and_told_by_name(
    lab: Lab, tmp_path: Path, scripted_jobs: None
) -> None:
    session = measured(lab, tmp_path)
    figures = session.figures
    for question in lab.questions:
        for name, figure in question.mistakes.items():
            fresh = measured(lab, tmp_path / question.id / name)
            known = figures[figure]
            value = convert(known.value, known.unit, question.unit)
            found = fresh.answer(question.id, f"{value:.12g} {question.unit}")
            assert (found.credit, found.mistake) == (0.0, name)
            for lang in LANGUAGES:
                assert fresh.verdict(question, fresh.attempts(question)[-1], lang)


@every_lab
def test_an_answer_in_bytes_that_mixes_gb_with_gib_is_wrong(lab: Lab, tmp_path: Path, scripted_jobs: None) -> None:
    for question in lab.questions:
        if question.kind != "number" or dimension_of(question.unit) != "bytes":
            continue
        session = measured(lab, tmp_path / question.id)
        right = float(right_text(session, question).split()[0])
        in_bytes = convert(right, question.unit, "B")
        for unit, other in (("GiB", "GB"), ("GB", "GiB")):
            if abs(in_bytes) < 1e9:
                continue
            session.reset()
            session = measured(lab, tmp_path / question.id)
            found = session.answer(question.id, f"{convert(in_bytes, 'B', unit):.9g} {other}")
            assert (found.credit, found.mistake) == (0.0, "gb_for_gib")


@every_lab
def test_nothing_is_shown_or_graded_before_its_turn(lab: Lab, tmp_path: Path, scripted_jobs: None) -> None:
    session = session_of(lab, tmp_path)
    shown = lab_json(session, "en")
    assert shown["results"] is None and shown["questions"] is None and shown["state"] == "new"
    assert all(question.id not in lab_text(session, "en").split("[")[1:] for question in lab.questions)


def test_labs_have_ids_orders_and_titles_of_their_own() -> None:
    assert len({lab.order for lab in LABS}) == len(LABS)
    for lang in LANGUAGES:
        assert len({lab.texts[lang].title for lab in LABS}) == len(LABS)


def test_every_general_mistake_has_words_in_both_languages() -> None:
    for lang in LANGUAGES:
        assert len({usual_mistake_told(lang, name) for name in USUAL}) == len(USUAL)


def example(folder: Path) -> Lab:
    """The lab that docs/labs.md shows, written out as a contributor would."""
    blocks = re.findall(r"^`(\w+\.toml)`:\n\n```toml\n(.*?)^```$", DOCS.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert [name for name, _ in blocks] == ["lab.toml", "en.toml", "zh.toml"]
    folder.mkdir()
    for name, text in blocks:
        (folder / name).write_text(text, "utf-8")
    return read_lab(folder)


def test_the_example_of_the_docs_is_a_lab_that_can_be_passed(tmp_path: Path, scripted_jobs: None) -> None:
    lab = example(tmp_path / "bonus-token")
    session = measured(lab, tmp_path, "4")
    assert session.compared("en").outcome == "5 tokens"
    found = session.answer("all", "8")
    assert found.mistake == "no_bonus"
    assert "bonus token" in session.verdict(lab.questions[0], session.attempts(lab.questions[0])[0], "en")
    for question in lab.questions:
        session.answer(question.id, right_text(session, question))
    assert session.score().points == pytest.approx(2.5) and session.score().passed


@pytest.mark.slow
@every_lab
def test_the_real_experiment_of_every_lab_can_be_graded(lab: Lab, tmp_path: Path) -> None:
    session = LabSession(lab, Progress(home=tmp_path), Store(tmp_path / "runs.sqlite3"))
    session.predict(lab.prediction.choices[0] if lab.prediction.choices else "1")
    run_id = session.start()
    if run_id is not None:
        ended = jobs.wait(run_id, session.store)
        if "is not installed" in (ended.error or ""):
            pytest.skip(ended.error)
        assert ended.state == "done", ended.error
    assert session.collect()
    for question in lab.questions:
        assert session.answer(question.id, right_text(session, question)).verdict == "right"
    figures: dict[str, Any] = {name: known.say("en") for name, known in session.figures.items()}
    print(lab.id, figures)
    assert session.score().share == 1.0
