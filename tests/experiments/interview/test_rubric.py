"""Open answers by key terms: synonyms in both languages, denials, sentences, and what the check cannot see."""

from __future__ import annotations

import pytest

from experiments.interview.rubric import DENIED, FOUND, MISSING, Rubric, grade

RUBRIC = Rubric(
    {
        "prefill": ("prefill|预填充 & compute|算力",),
        "decode": ("decod|解码 & bandwidth|带宽",),
        "split": ("split kv|切分 kv",),
    },
    {"free": ("always faster|总是更快",)},
    needed=2,
)


def states(answer: str) -> dict[str, str]:
    return dict(grade(RUBRIC, answer).points)


@pytest.mark.parametrize(
    "answer",
    [
        "Prefill is compute-bound. Decoding is limited by bandwidth.",
        "预填充算力受限；解码受带宽限制。",
        "prefill 阶段吃算力，decode 阶段吃带宽",
        "PREFILL needs COMPUTE; ＤＥＣＯＤＥ needs Bandwidth",
        "Prefill is not bandwidth-bound but compute-bound. Decode is bound by bandwidth.",
        "预填充不是带宽受限而是算力受限。解码受带宽限制。",
        "Prefill is not only compute-bound at batch 1. Decode wants bandwidth",
        "不同长度的提示，预填充都是算力受限。解码不断读权重，带宽受限。",
    ],
)
def test_both_points_are_found_in_either_language(answer: str) -> None:
    found = states(answer)
    assert (found["prefill"], found["decode"]) == (FOUND, FOUND)
    assert grade(RUBRIC, answer).passed


@pytest.mark.parametrize(
    "answer",
    [
        "Prefill is not compute-bound.",
        "Prefill isn't really compute bound",
        "预填充不是算力受限",
        "预填充并非受算力限制",
    ],
)
def test_a_denied_point_does_not_count(answer: str) -> None:
    assert states(answer)["prefill"] == DENIED


def test_what_is_asked_for_may_be_said_by_a_denial() -> None:
    idle = Rubric({"idle": ("~idle|空闲",)}, {}, needed=1)
    for said in ("No slot is idle.", "Slots are idle.", "槽位不会空闲"):
        assert grade(idle, said).points["idle"] == FOUND


def test_a_wrong_statement_stands_in_one_clause() -> None:
    swapped = Rubric({"tp": ("tp",)}, {"pp": ("pp & lowers latency",)}, needed=1)
    assert grade(swapped, "TP lowers latency, PP raises throughput").wrong == ()
    assert grade(swapped, "TP splits a layer, PP lowers latency").wrong == ("pp",)


def test_a_question_denies_nothing_and_not_enough_is_no_denial() -> None:
    assert states("解码有没有受带宽限制")["decode"] == FOUND
    assert states("解码时不够的是带宽")["decode"] == FOUND
    assert states("解码没有受带宽限制")["decode"] == DENIED


def test_parts_in_different_sentences_are_no_point() -> None:
    assert states("Prefill is long. Compute is cheap.")["prefill"] == MISSING
    assert states("Prefill takes 0.5 s of compute")["prefill"] == FOUND


def test_terms_begin_words_and_hyphens_do_not_matter() -> None:
    assert states("it uses split-KV")["split"] == FOUND
    assert states("it uses Split KV")["split"] == FOUND
    assert states("recompute in prefill")["prefill"] == MISSING


def test_something_wrong_fails_an_answer_and_halves_it() -> None:
    good = "Prefill is compute-bound. Decode is bound by bandwidth."
    made = grade(RUBRIC, good + " It is always faster.")
    assert made.wrong == ("free",) and not made.passed and made.credit == pytest.approx(1 / 3)
    assert grade(RUBRIC, good + " It is not always faster.").wrong == ()
    assert grade(RUBRIC, good + " 它并不总是更快。").wrong == ()


def test_a_partial_answer_has_partial_credit() -> None:
    made = grade(RUBRIC, "解码受带宽限制")
    assert (made.covered, made.passed) == (1, False) and made.credit == pytest.approx(1 / 3)
    assert grade(RUBRIC, "").credit == 0


def test_what_it_cannot_see_is_as_documented() -> None:
    """Right words in a wrong sentence count: the limits say so."""
    assert states("I have no idea why people say that decode and bandwidth belong together")["decode"] == FOUND
