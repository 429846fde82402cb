"""Numbers as people type them, tolerance and mistakes, choices, tries, progress."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from experiments.labs import Lab, LabSession, Progress, get_lab
from experiments.labs.figures import Known
from experiments.labs.grade import Grade, check_answer, grade, shown_choices
from experiments.labs.keys import look_up
from experiments.labs.lab import Question
from experiments.labs.mistakes import mistake_behind
from experiments.labs.progress import empty
from experiments.labs.quantities import convert, parse_quantity, say_quantity
from experiments.store import Store
from ledger.errors import CannotRunError, InputError
from tests.experiments.labs.scripted import measured, right_text, scripted_jobs, session_of
from tests.experiments.labs.test_lab_walks import example

__all__ = ["scripted_jobs"]
GIB = 2**30
LAB_UNITS = (
    "", "B", "KiB", "GB", "s", "ms", "us", "x", "%", "tokens", "requests", "sequences", "cards", "blocks", "steps",
    "passes", "heads", "layers", "instances", "points", "bits", "tokens/s", "requests/s", "card-hours", "B/s", "FLOP",
    "FLOP/s", "FLOP/B", "units",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("17.18 GB", "B", 17.18e9),
        ("16 gib", "GB", 16 * GIB / 1e9),
        ("819,200 B/token", "B", 819_200),
        ("８１９２０ 字节", "B", 81_920),
        ("120 ms", "s", 0.12),
        ("2.4 ×", "x", 2.4),
        ("−35 %", "%", -35.0),
        ("35％", "x", 0.35),
        ("28 条序列", "sequences", 28.0),
        ("40 steps", "steps", 40.0),
        ("12 块", "blocks", 12.0),
        ("8.25 位", "bits", 8.25),
        ("$1.20", "units", 1.2),
        ("1.2", "units", 1.2),
        ("295 FLOP/byte", "FLOP/B", 295.0),
        ("7", "", 7.0),
    ],
)
def test_a_number_is_read_in_the_unit_that_a_lab_asks_for(text: str, unit: str, value: float) -> None:
    assert parse_quantity(text, unit) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "unit"), [("", "B"), ("many", "bits"), ("1,5", "s"), ("3 s", "B"), ("12 requests/s", "tokens/s")]
)
def test_what_is_no_such_number_is_one_line(text: str, unit: str) -> None:
    with pytest.raises(InputError) as error:
        parse_quantity(text, unit)
    assert "\n" not in str(error.value) and "accepted" in str(error.value)


@pytest.mark.parametrize("unit", LAB_UNITS)
def test_every_unit_of_the_docs_is_known_and_written_in_both_languages(unit: str) -> None:
    assert convert(3.0, unit, unit) == 3.0
    assert "3" in say_quantity(3.0, unit) and "3" in say_quantity(3.0, unit, "zh")


def test_bytes_are_written_in_both_kinds_of_units() -> None:
    assert say_quantity(17_179_869_184, "B") == "17.18 GB (16 GiB)"
    assert say_quantity(16, "GiB") == "17.18 GB (16 GiB)"
    assert say_quantity(989e12, "FLOP/s") == "989 TFLOP/s" and say_quantity(3.35e12, "B/s") == "3.35 TB/s"
    assert say_quantity(0.0125, "s") == "12.5 ms" and say_quantity(2.5, "x", "zh") == "2.5 倍"


@pytest.mark.parametrize(
    ("given", "right", "unit", "name"),
    [
        (32.0, 16.0, "GiB", "factor_2"),
        (8.0, 16.0, "GiB", "factor_2"),
        (17.18, 16.0, "GiB", "gb_for_gib"),
        (14.90, 16.0, "GiB", "gb_for_gib"),
        (128.0, 16.0, "GiB", "bits_for_bytes"),
        (0.012, 12.0, "ms", "thousand"),
        (0.5, 2.0, "x", "inverse"),
        (1.0, 2.0, "x", "factor_2"),
        (1 / 3, 3.0, "x", "inverse"),
        (2.0, 3.0, "x", "ratio_for_change"),
        (135.0, 35.0, "%", "ratio_for_change"),
        (0.35, 35.0, "%", "percent_for_share"),
        (-35.0, 35.0, "%", "sign"),
        (19.0, 16.0, "GiB", None),
    ],
)
def test_a_usual_mistake_is_told_by_its_value(given: float, right: float, unit: str, name: str | None) -> None:
    assert mistake_behind(given, right, unit, {}) == name


def test_a_mistake_that_a_question_names_goes_before_the_general_ones() -> None:
    assert mistake_behind(8.0, 16.0, "GiB", {"k_without_v": 8.0}) == "k_without_v"
    assert mistake_behind(8.0, 16.0, "GiB", {"k_without_v": None}) == "factor_2"


def question(**fields: object) -> Question:
    return Question(**{"id": "q", "kind": "number", "figure": "f", "unit": "x", **fields})  # type: ignore[arg-type]


def known(value: object, unit: str = "x") -> dict[str, Known]:
    return {"f": Known(value, unit, "measured")}


def test_a_number_is_right_within_its_tolerance_and_close_within_three() -> None:
    asked = question(tolerance=0.1)
    assert grade(asked, 2.2, known(2.0)) == Grade(1.0, "right")
    assert grade(asked, 2.21, known(2.0)) == Grade(0.5, "close")
    assert grade(asked, 2.61, known(2.0)).verdict == "wrong"
    assert grade(question(absolute=0.0), 28.0, known(28.0)).verdict == "right"
    assert grade(question(absolute=0.0), 29.0, known(28.0)).verdict == "wrong"


def test_a_mistake_inside_the_tolerance_is_no_mistake() -> None:
    assert grade(question(unit="GiB", tolerance=0.1), 17.18, known(16.0, "GiB")).verdict == "right"


def test_what_the_run_could_not_tell_does_not_count() -> None:
    assert grade(question(), 2.0, known(None)).verdict == "open"


def test_of_several_choices_each_counts_and_a_wrong_one_takes_away() -> None:
    asked = question(kind="many", figure=None, choices=("a1", "b1", "c1", "d1"), answer=("a1", "b1"))
    assert grade(asked, ("b1", "a1"), {}).verdict == "right"
    assert grade(asked, ("a1",), {}) == Grade(0.5, "partly")
    assert grade(asked, ("a1", "c1"), {}).credit == 0.0
    assert grade(asked, ("a1", "b1", "c1"), {}) == Grade(0.5, "partly", chosen=("c1",))


def test_an_order_earns_the_pairs_beyond_what_guessing_gives() -> None:
    asked = question(kind="order", figure=None, choices=("x1", "y1", "z1"), answer=("x1", "y1", "z1"))
    assert grade(asked, ("x1", "y1", "z1"), {}).credit == 1.0
    assert grade(asked, ("x1", "z1", "y1"), {}).credit == pytest.approx(1 / 3)
    assert grade(asked, ("z1", "y1", "x1"), {}).credit == 0.0


def test_an_order_is_never_shown_in_the_right_order(tmp_path: Path) -> None:
    lab = example(tmp_path / "bonus-token")
    for asked in lab.questions:
        if asked.kind == "order":
            assert shown_choices(lab, asked) != asked.answer and set(shown_choices(lab, asked)) == set(asked.answer)


def test_choices_are_taken_by_letter_or_id_and_nothing_else() -> None:
    lab = get_lab("triangle")
    several, one = lab.question("latencies"), lab.question("why")
    assert several is not None and one is not None
    assert check_answer(lab, several, "a, b，d") == ("ttft", "itl", "e2e") == check_answer(lab, several, "A B D")
    assert check_answer(lab, one, "weights") == ("weights",) == check_answer(lab, one, "a")
    for text in ("", "z", "a,b", "1"):
        with pytest.raises(InputError):
            check_answer(lab, one, text)


# -- the steps -------------------------------------------------------------------------------------------------------


@pytest.fixture
def triangle() -> Lab:
    return get_lab("triangle")


def test_an_answer_before_the_prediction_or_the_run_is_refused_in_one_line(triangle: Lab, tmp_path: Path) -> None:
    session = session_of(triangle, tmp_path)
    for step in (lambda: session.answer("itl", "2"), session.start):
        with pytest.raises(InputError, match="a prediction first: trilemma lab predict triangle VALUE"):
            step()
    session.predict("3 x")
    with pytest.raises(InputError, match="the experiment first: trilemma lab run triangle"):
        session.answer("itl", "2")
    with pytest.raises(InputError, match="one a lab"):
        session.predict("4 x")


def test_a_later_try_is_worth_less_and_the_solution_comes_when_none_is_left(
    triangle: Lab, tmp_path: Path, scripted_jobs: None
) -> None:
    session = measured(triangle, tmp_path)
    asked = triangle.question("why")
    assert asked is not None
    session.answer("why", "clock")
    assert "Clocks move" in session.verdict(asked, session.attempts(asked)[0], "en")
    session.answer("why", "weights")
    assert session.score().points == 0.5 and session.is_settled(asked)
    with pytest.raises(InputError, match="still open"):
        session.answer("why", "weights")


def test_progress_outlives_the_process_and_the_run(triangle: Lab, tmp_path: Path, scripted_jobs: None) -> None:
    session = measured(triangle, tmp_path)
    asked = triangle.questions[0]
    session.answer(asked.id, right_text(session, asked))
    Store(tmp_path / "runs.sqlite3").delete_run(session.kept["run_id"])
    again = session_of(triangle, tmp_path)
    assert again.state == "measured" and again.score().points == 1.0
    again.answer(triangle.questions[1].id, right_text(again, triangle.questions[1]))
    again.reset()
    assert session_of(triangle, tmp_path).state == "new"


def test_a_lab_that_changed_takes_its_figures_from_the_stored_run_again(
    triangle: Lab, tmp_path: Path, scripted_jobs: None
) -> None:
    session = measured(triangle, tmp_path)
    path = session.progress.path(triangle.id)
    kept = json.loads(path.read_text("utf-8"))
    kept["edition"], kept["figures"] = "older", {}
    path.write_text(json.dumps(kept), "utf-8")
    assert session_of(triangle, tmp_path).figures == session.figures


def test_a_damaged_file_is_one_line_with_the_way_out(triangle: Lab, tmp_path: Path) -> None:
    path = Progress(home=tmp_path).path(triangle.id)
    path.parent.mkdir(parents=True)
    for text in ("{", "[]", '{"version": 9}', json.dumps({**empty(), "answers": []})):
        path.write_text(text, "utf-8")
        with pytest.raises(CannotRunError, match="trilemma lab reset triangle begins the lab anew"):
            session_of(triangle, tmp_path)
    Progress(home=tmp_path).reset(triangle.id)
    assert session_of(triangle, tmp_path).state == "new"


def test_two_learners_have_progress_of_their_own(triangle: Lab, tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.sqlite3")
    LabSession(triangle, Progress("ann", tmp_path), store).predict("2")
    assert LabSession(triangle, Progress("bo", tmp_path), store).state == "new"
    for name in ("..", "", "a/b", "x" * 41):
        with pytest.raises(InputError, match="--learner"):
            Progress(name, tmp_path)


def test_a_path_reads_what_it_names_and_says_what_is_missing() -> None:
    result = {"points": [{"value": 1, "m": {"p": 3}}, {"value": 8, "m": None}]}
    assert look_up(result, "points[value=1].m.p") == 3 == look_up(result, "points[0].m.p")
    assert look_up(result, "points[value=8].m.p") is None and look_up(result, "points[*].value") == [1, 8]
    for path in ("points[value=2].m", "points[5].m", "nothing", "points[0].m.q", "points.m"):
        with pytest.raises(CannotRunError, match="the run's result has no"):
            look_up(result, path)


def test_a_page_and_a_terminal_at_once_lose_no_answer(triangle: Lab, tmp_path: Path, scripted_jobs: None) -> None:
    page = session_of(triangle, tmp_path)
    page.predict("2")
    early = session_of(triangle, tmp_path)
    page.start()
    terminal = session_of(triangle, tmp_path)
    assert page.collect()
    first, second = triangle.questions[:2]
    page.answer(first.id, right_text(page, first))
    with pytest.raises(InputError):
        early.start()
    assert terminal.collect(), "it waited for the run, and sees what the page has done since"
    terminal.answer(second.id, right_text(terminal, second))
    assert set(session_of(triangle, tmp_path).kept["answers"]) == {first.id, second.id}
    with pytest.raises(InputError):
        page.predict("3")


def test_threads_that_save_at_once_leave_a_whole_file(tmp_path: Path) -> None:
    progress, states = Progress(home=tmp_path), []
    for place in range(8):
        states.append({**empty(), "run_id": f"{place}" * 20_000})

    def save(place: int) -> None:
        for _ in range(10):
            progress.save("x", states[place])
            assert progress.load("x") in states

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(save, range(8)))
    assert [path.name for path in progress.path("x").parent.iterdir()] == ["x.json"]
