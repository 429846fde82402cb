"""Mock interviews, boxes, score sheet and the learner's file, all by a clock of the test's."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from experiments.interview.answering import answer
from experiments.interview.items import TOPICS, form_of, item, names, topic_of
from experiments.interview.mock import Mock, minutes, plan
from experiments.interview.progress import FILE_NAME, Progress
from experiments.interview.schedule import BOX_DAYS, Answered, cards, due
from experiments.interview.sheet import mock_score, score
from ledger.errors import CannotRunError, InputError

START = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
DAY = timedelta(days=1)


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def progress(tmp_path: Path, clock: Clock) -> Progress:
    return Progress(tmp_path / FILE_NAME, clock)


def right(ref: str) -> str:
    asked = item(ref)
    assert asked.numeric is not None
    return f"{asked.numeric.answer:.8g}"


def test_topics_and_forms_of_a_mock_are_balanced() -> None:
    for seed in range(30):
        for count in (5, 11, 20):
            found = [ref.partition(":")[0] for ref in plan(seed, count)]
            assert len(set(found)) == count
            topics = Counter(map(topic_of, found))
            assert max(topics.values()) - min(topics.get(topic, 0) for topic in TOPICS) <= 1
    forms = Counter(form_of(ref.partition(":")[0]) for seed in range(30) for ref in plan(seed, 11))
    assert all(forms[form] > 30 for form in ("numeric", "open", "choice"))


def test_a_mock_of_one_topic_and_the_same_seed() -> None:
    assert {topic_of(ref.partition(":")[0]) for ref in plan(1, 5, "cost")} == {"cost"}
    assert plan(1, 10) == plan(1, 10) != plan(2, 10)
    for count in (0, -1, 51):
        with pytest.raises(InputError):
            plan(1, count)
    with pytest.raises(InputError):
        plan(1, len(names("kernels")) + 1, "kernels")


def test_time_runs_out_by_the_clock_passed_in() -> None:
    mock = Mock("m", START, minutes(30), ("kv_gqa:1",))
    assert mock.left_s(START + timedelta(minutes=10)) == 1200 and not mock.is_over(START + timedelta(minutes=29))
    assert mock.is_over(START + timedelta(minutes=30)) and mock.left_s(START + DAY) == 0
    assert Mock("m", START, 1800, (), ended=START).is_over(START)
    for value in (0, -1, 601, float("nan")):
        with pytest.raises(InputError):
            minutes(value)


def test_a_missed_question_climbs_the_boxes_and_leaves() -> None:
    answers, now = [Answered("a", START, False)], START
    for box, days in enumerate(BOX_DAYS, start=1):
        card = cards(answers)["a"]
        assert (card.box, card.due) == (box, now + days * DAY)
        now = card.due
        answers.append(Answered("a", now, True))
    assert cards(answers) == {}


def test_right_before_it_is_due_changes_nothing_and_wrong_begins_anew() -> None:
    first = [Answered("a", START, False)]
    assert cards([*first, Answered("a", START + DAY / 2, True)]) == cards(first)
    climbed = [*first, Answered("a", START + DAY, True)]
    assert cards(climbed)["a"].box == 2
    fell = cards([*climbed, Answered("a", START + 2 * DAY, False)])["a"]
    assert (fell.box, fell.due) == (1, START + 3 * DAY)
    assert cards([Answered("b", START, True)]) == {}
    assert cards(reversed(climbed)) == cards(climbed)


def test_the_longest_overdue_comes_first() -> None:
    missed = [Answered("b", START + DAY, False), Answered("a", START, False), Answered("c", START + 9 * DAY, False)]
    assert [card.name for card in due(cards(missed), START + 3 * DAY)] == ["a", "b"]


def test_answers_are_kept_and_review_follows_from_them(progress: Progress, clock: Clock) -> None:
    progress.add(answer(item("kv_gqa:1"), "0.001"), "ask")
    clock.now += DAY
    assert [card.name for card in due(cards(one.answered for one in progress.answers()), clock.now)] == ["kv_gqa"]
    progress.add(answer(item("kv_gqa:2"), right("kv_gqa:2")), "review")
    again = Progress(progress.path, clock)
    assert [(one.ref, one.passed, one.mode) for one in again.answers()] == [
        ("kv_gqa:1", False, "ask"),
        ("kv_gqa:2", True, "review"),
    ]
    assert cards(one.answered for one in again.answers())["kv_gqa"].box == 2


def test_a_mock_is_scored_by_topic_with_what_was_left_out(progress: Progress, clock: Clock) -> None:
    refs = ("kv_gqa:3", "kv_mla:3", "cards:3")
    progress.start(Mock("m1", clock.now, 600, refs))
    progress.add(answer(item(refs[0]), right(refs[0])), "mock", "m1", 0)
    progress.add(answer(item(refs[2]), "1000"), "mock", "m1", 2)
    with pytest.raises(InputError):
        progress.add(answer(item(refs[2]), "2"), "mock", "m1", 2)
    progress.end(progress.mock("m1"))
    clock.now += DAY
    progress.end(progress.mock("m1"))
    found = progress.mock("m1")
    assert found.refs == refs and found.ended == START
    sheet = mock_score(found, progress.answers("m1"))
    assert [(row.topic, row.asked, row.answered, row.passed) for row in sheet.rows] == [
        ("memory", 2, 1, 1),
        ("cost", 1, 1, 0),
    ]
    assert sheet.rows[0].credit == 0.5 and sheet.total.credit == pytest.approx(1 / 3)
    assert sheet.missed == ("kv_mla", "cards")


def test_what_a_mock_left_without_an_answer_comes_back_too(progress: Progress, clock: Clock) -> None:
    progress.start(Mock("handed-in", clock.now, 600, ("kv_gqa:3", "cards:3")))
    progress.start(Mock("left", clock.now, 600, ("kv_mla:3",)))
    progress.add(answer(item("kv_gqa:3"), right("kv_gqa:3")), "mock", "handed-in", 0)
    assert progress.cards() == {}
    progress.end(progress.mock("handed-in"))
    assert set(progress.cards()) == {"cards"}
    clock.now += timedelta(minutes=10)
    assert progress.cards()["kv_mla"].due == clock.now + DAY
    clock.now += DAY
    assert [card.name for card in progress.due()] == ["cards", "kv_mla"]


def test_an_empty_sheet_has_no_credit_and_unknown_mocks_are_refused(progress: Progress) -> None:
    assert score([]).rows == () and score([]).total.credit is None
    with pytest.raises(InputError):
        progress.mock("nothing")


def test_reset_forgets_everything(progress: Progress, clock: Clock) -> None:
    progress.add(answer(item("kv_gqa:1"), "1"), "ask")
    progress.start(Mock("m", clock.now, 60, ("kv_gqa:1",)))
    assert progress.reset() == 1 and progress.answers() == []
    with pytest.raises(InputError):
        progress.mock("m")


def test_a_file_that_cannot_be_used_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("this is no database, and long enough not to be taken for an empty one" * 40)
    with pytest.raises(CannotRunError) as refused:
        Progress(tmp_path / FILE_NAME)
    assert "\n" not in str(refused.value)
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotRunError):
        Progress(tmp_path / "file" / FILE_NAME)


def _writes(path: str, count: int) -> None:
    own = Progress(Path(path))
    for seed in range(count):
        own.add(answer(item(f"kv_bits:{seed}"), "4"), "ask")


def test_page_and_command_line_may_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    others = [multiprocessing.get_context("fork").Process(target=_writes, args=(str(path), 12)) for _ in range(2)]
    for other in others:
        other.start()
    for other in others:
        other.join(60)
    assert [other.exitcode for other in others] == [0, 0]
    assert len(Progress(path).answers()) == 24


def test_a_clock_that_was_ahead_puts_no_question_off(progress: Progress, clock: Clock) -> None:
    clock.now = START + 400 * DAY
    progress.add(answer(item("kv_gqa:1"), "0.001"), "ask")
    clock.now = START
    progress.add(answer(item("kv_mla:1"), right("kv_mla:1")), "ask")
    clock.now = START + DAY
    assert [card.name for card in progress.due()] == ["kv_gqa"]
    progress.add(answer(item("kv_gqa:2"), right("kv_gqa:2")), "review")
    assert progress.cards()["kv_gqa"].box == 2 and progress.due() == []


def test_a_clock_set_back_gives_no_more_than_the_limit() -> None:
    mock = Mock("m", START, 1800, ("kv_gqa:1",))
    assert mock.left_s(START - DAY) == 1800 and mock.left_share(START - DAY) == 1.0


@pytest.mark.parametrize("text", ["1e999", "-1e400 GiB"])
def test_a_number_beyond_all_bounds_is_no_answer(text: str) -> None:
    with pytest.raises(InputError):
        answer(item("kv_gqa:1"), text)


def test_bytes_that_are_no_text_are_refused() -> None:
    name = next(name for name in names() if form_of(name) == "open")
    with pytest.raises(InputError, match="UTF-8"):
        answer(item(name), "bandwidth \udcff")
