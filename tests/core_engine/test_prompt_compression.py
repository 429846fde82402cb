"""Shorter prompts out of longer ones: what always stays, what goes first, and an engine that computes the shorter."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.prompt_compression import PromptCompressor, asked_in, shortened
from core_engine.sampling_params import SamplingParams
from experiments.quality.choices import as_computed
from experiments.quality.items import Item
from ledger.errors import InputError
from tests.experiments.fakes import ByteTokenizer, FakeExecutor, VirtualClock, fake_loaded

ENGLISH = (
    "Read the handbook and answer in one sentence. The office opens at 8 and closes at 17 on weekdays. "
    "The garden behind the house has old trees and a bench that nobody uses in winter. "
    "Visitors sign their names at the desk before they walk upstairs with a colleague. "
    "The boiler in the cellar is serviced by Lindqvist every autumn. "
    "Some rooms have carpets, others have wooden floors, and the stairs are made of stone. "
    "The cafeteria serves soup, bread and coffee to everyone who works in the building. "
    "Invoice 4711 was paid late. "
    "Who services the boiler in the cellar?"
)
CHINESE = (
    "请阅读下面的手册并用一句话回答。办公室工作日八点开门，十七点关门。房子后面的花园里有老树，冬天没有人去那里坐。"
    "访客上楼之前要先在前台登记姓名，由同事陪同。地下室的锅炉每年秋天由林师傅检修。有的房间铺地毯，有的房间是木地板，楼梯是石头的。"
    "食堂给楼里所有工作的人提供汤、面包和咖啡。第 4711 号发票付款晚了。地下室的锅炉由谁检修？"
)


def numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+", text))


@pytest.mark.parametrize(
    ("text", "first", "question", "answer"),
    [
        (ENGLISH, "Read the handbook", "Who services the boiler in the cellar?", "serviced by Lindqvist"),
        (CHINESE, "请阅读下面的手册", "地下室的锅炉由谁检修？", "由林师傅检修"),
    ],
)
def test_the_question_its_answer_the_instruction_and_all_numbers_stay(
    text: str, first: str, question: str, answer: str
) -> None:
    short = shortened(text, 0.5, asked_in(text))
    assert len(short) < 0.75 * len(text)
    assert short.startswith(first) and short.endswith(question) and answer in short
    assert numbers(short) == numbers(text)


def test_what_is_left_is_in_the_text_and_in_its_order() -> None:
    pieces = re.split(r"(?<=[.?])\s", shortened(ENGLISH, 0.4, asked_in(ENGLISH)))
    places = [ENGLISH.find(piece.strip()) for piece in pieces]
    assert -1 not in places and all(one < other for one, other in pairwise(places))


def test_less_is_kept_of_a_smaller_share_and_everything_of_all() -> None:
    lengths = [len(shortened(ENGLISH, keep, asked_in(ENGLISH))) for keep in (0.3, 0.6, 0.9)]
    assert lengths[0] < lengths[1] < lengths[2] <= len(ENGLISH)
    assert shortened(ENGLISH, 1.0) == ENGLISH


@pytest.mark.parametrize("text", ["", "Why?", "The sky is blue. Why is that?", "天为什么是蓝的？", "\n\n"])
def test_short_texts_stay_as_they_are(text: str) -> None:
    assert shortened(text, 0.1, asked_in(text)) == text


def test_a_sentence_that_comes_again_is_kept_once() -> None:
    again = "The archive is kept in the cellar beside the boiler. "
    text = "Answer this. " + again * 8 + "Where is the archive?"
    assert shortened(text, 0.6, asked_in(text)).count(again.strip()) == 1


class Marked(ByteTokenizer):
    """Bytes, and 0 and 1 as special tokens that have no text; 2 marks the beginning of what is encoded."""

    def decode(self, ids: list[int]) -> str:  # type: ignore[override]
        return bytes(token for token in ids if token > 2).decode()

    def encode(self, text: str) -> list[int]:
        return [2, *text.encode()]


def chat(system: str, question: str) -> list[int]:
    return [0, *f"system\n{system}".encode(), 1, 10, 0, *f"user\n{question}".encode(), 1, 10, 0, *b"assistant\n"]


def test_special_tokens_and_roles_of_a_chat_stay_and_no_beginning_is_written_into_the_middle() -> None:
    made = PromptCompressor(Marked(), 0.4).shorten(chat(ENGLISH, "Who services the boiler?"))
    assert len(made) < len(chat(ENGLISH, "Who services the boiler?"))
    assert [token for token in made if token < 3] == [0, 1, 0, 1, 0]
    text = Marked().decode(made)
    assert text.startswith("system\nRead") and text.endswith("user\nWho services the boiler?\nassistant\n")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (ENGLISH, "Read the handbook and answer in one sentence."),
        (CHINESE, "请阅读下面的手册并用一句话回答。"),
    ],
)
@pytest.mark.parametrize("before", ["user\n", "\n\n", "user\n\n"])
def test_the_instruction_behind_a_role_or_an_empty_line_stays(before: str, text: str, told: str) -> None:
    short = shortened(before + text, 0.3, asked_in(text))
    assert short.removeprefix("user").lstrip().startswith(told) and len(short) < len(text)


def test_the_last_sentence_stays_when_empty_lines_follow_it() -> None:
    text = ENGLISH + " Answer in French.\n\n"
    assert shortened(text, 0.3, asked_in(text)).rstrip().endswith(" Answer in French.")


def test_a_preamble_of_its_own_stays_the_same_for_every_question() -> None:
    compressor = PromptCompressor(Marked(), 0.4)
    one, other = (compressor.shorten(chat(ENGLISH, text)) for text in ("Who sells soup?", "When does it open?"))
    assert one[: one.index(1)] == other[: other.index(1)]


def test_an_engine_computes_the_shorter_prompt_and_records_what_came() -> None:
    config = EngineConfig.from_settings({"prompt_compression": "on", "prompt_keep": 0.4})
    clock = VirtualClock()
    engine = Engine(config, fake_loaded(), clock=clock, executor=FakeExecutor(clock, config))
    done = engine.generate([ENGLISH, "Why?"], SamplingParams(max_tokens=2))
    long, short = engine.record()["requests"]
    assert done[0].prompt_tokens == long["prompt_tokens"] < len(ENGLISH) == long["uncompressed_tokens"]
    assert short["prompt_tokens"] == 4 and "uncompressed_tokens" not in short


def test_scores_are_of_the_text_that_was_given() -> None:
    config = EngineConfig.from_settings({"prompt_compression": "on"})
    clock = VirtualClock()
    engine = Engine(config, fake_loaded(), clock=clock, executor=FakeExecutor(clock, config))
    ids = list(ENGLISH.encode())
    assert len(engine.score(ids, len(ids) - 3)) == 3


def test_it_cannot_go_with_what_has_its_prompts_elsewhere() -> None:
    with pytest.raises(InputError, match="prompt_compression"):
        EngineConfig.from_settings({"prompt_compression": "on", "disaggregation": "on"})


def test_an_evaluation_shortens_the_prompt_of_an_item_and_never_its_choices() -> None:
    clock, item = VirtualClock(), Item("x", "retrieval", ENGLISH, (" Lindqvist", " Nobody"), 0)
    made = {}
    for value in ("off", "on"):
        config = EngineConfig.from_settings({"prompt_compression": value, "prompt_keep": 0.4})
        made[value] = Engine(config, fake_loaded(), clock=clock, executor=FakeExecutor(clock, config))
    assert as_computed(item, made["off"]) == item
    shorter = as_computed(item, made["on"])
    assert len(shorter.prompt) < len(item.prompt) and shorter.choices == item.choices
    assert shorter.prompt.endswith("Who services the boiler in the cellar?")
