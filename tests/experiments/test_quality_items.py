"""The project's own multiple-choice items: their form, their balance, and that nothing is calibrated on them."""

from __future__ import annotations

import json
import re
from collections import Counter
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from core_engine.model.embedded import ensure_embedded
from core_engine.model.tokenizer import Tokenizer
from experiments.quality.items import SLICES, Item, default_items, load_items
from experiments.quality.make_items import GENERATED
from experiments.quality.passage_stock import FILLERS, NEEDLES
from ledger.errors import InputError

GOOD = {"id": "a-1", "slice": "a", "prompt": "One and one is", "choices": [" two", " three"], "answer": 0}
# Positions of the embedded model, and what is left of them for a continuation and its measurement.
MAX_POSITION, ROOM = 2048, 256


def written(tmp_path: Path, *rows: Any) -> Path:
    path = tmp_path / "own.jsonl"
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def text_of(*parts: str) -> str:
    package, *rest = parts
    return files(package).joinpath(*rest).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def items() -> list[Item]:
    return default_items()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(ensure_embedded(), ())


# -- the loader --------------------------------------------------------------------------------------------------------


def test_a_line_becomes_an_item_and_empty_lines_are_skipped(tmp_path: Path) -> None:
    loaded = load_items(written(tmp_path, GOOD, "", {**GOOD, "id": "a-2", "prompt": "a\u2028b"}))
    assert loaded[0] == Item("a-1", "a", "One and one is", (" two", " three"), 0)
    assert [item.prompt for item in loaded] == ["One and one is", "a\u2028b"]


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ("not json", "line 2"),
        ([1, 2], "line 2"),
        ({**GOOD, "id": ""}, "line 2: id"),
        ({**GOOD, "id": "a-1"}, "line 2: id"),
        ({**GOOD, "id": 7}, "line 2: id"),
        ({**GOOD, "id": "b", "slice": None}, "line 2: slice"),
        ({**GOOD, "id": "b", "prompt": "  "}, "line 2: prompt"),
        ({**GOOD, "id": "b", "choices": [" two"]}, "line 2: choices"),
        ({**GOOD, "id": "b", "choices": [" two", " two"]}, "line 2: choices"),
        ({**GOOD, "id": "b", "choices": [" two", 3]}, "line 2: choices"),
        ({**GOOD, "id": "b", "choices": " two"}, "line 2: choices"),
        ({**GOOD, "id": "b", "answer": 2}, "line 2: answer"),
        ({**GOOD, "id": "b", "answer": -1}, "line 2: answer"),
        ({**GOOD, "id": "b", "answer": True}, "line 2: answer"),
        ({**GOOD, "id": "b", "answer": "0"}, "line 2: answer"),
        ({**GOOD, "id": "b", "label": 0}, "line 2: label"),
        ({name: GOOD[name] for name in ("id", "slice", "prompt", "choices")} | {"id": "b"}, "line 2: answer"),
    ],
)
def test_a_bad_line_is_refused_by_file_line_and_field(tmp_path: Path, row: Any, field: str) -> None:
    with pytest.raises(InputError) as refused:
        load_items(written(tmp_path, GOOD, row))
    assert refused.value.field == f"{tmp_path / 'own.jsonl'}, {field}"
    assert "accepted: " in str(refused.value)


def test_a_file_that_is_missing_empty_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="existing JSON Lines file"):
        load_items(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="at least one item"):
        load_items(written(tmp_path, ""))
    (tmp_path / "latin.jsonl").write_bytes(b'{"id": "caf\xe9"}')
    with pytest.raises(InputError, match="UTF-8"):
        load_items(tmp_path / "latin.jsonl")


# -- the project's own items -------------------------------------------------------------------------------------------


def test_every_slice_has_at_least_150_items(items: list[Item]) -> None:
    counts = Counter(item.slice for item in items)
    assert tuple(counts) == SLICES
    assert min(counts.values()) >= 150, counts


def test_ids_and_prompts_are_unique(items: list[Item]) -> None:
    assert len({item.id for item in items}) == len(items)
    assert len({item.prompt for item in items}) == len(items)
    assert all(item.id.startswith(f"{item.slice}-") for item in items)


def test_the_right_answer_stands_equally_often_at_every_place(items: list[Item]) -> None:
    groups: dict[tuple[str, int], Counter[int]] = {}
    for item in items:
        groups.setdefault((item.slice, len(item.choices)), Counter())[item.answer] += 1
    for (name, size), places in groups.items():
        assert size in (2, 3, 4), name
        counts = [places[place] for place in range(size)]
        assert max(counts) - min(counts) <= 1, (name, size, counts)


def test_prompt_and_choice_join_without_a_double_or_a_missing_space(items: list[Item]) -> None:
    for item in items:
        assert not item.prompt.endswith(" "), item.id
        if item.slice not in ("code", "chinese"):
            for choice in item.choices:
                assert re.fullmatch(r" \S.*\S| \S", choice), item.id


def test_length_does_not_give_the_answer_away(items: list[Item]) -> None:
    """Always taking the longest choice, or the shortest, does not get far in any slice."""
    for name in SLICES:
        of_slice = [item for item in items if item.slice == name]
        chance = sum(1 / len(item.choices) for item in of_slice) / len(of_slice)
        for sign in (1, -1):
            hits = 0.0
            for item in of_slice:
                lengths = [sign * len(choice) for choice in item.choices]
                if lengths[item.answer] == max(lengths):
                    hits += 1 / lengths.count(max(lengths))
            assert hits / len(of_slice) < chance + 0.15, (name, sign, hits / len(of_slice))


def test_long_prompts_are_long_and_fit_the_models_context(items: list[Item], tokenizer: Tokenizer) -> None:
    lengths = [len(tokenizer.encode(item.prompt)) for item in items if item.slice == "long_context"]
    assert min(lengths) >= 250
    assert max(lengths) >= 1_200
    assert max(lengths) <= MAX_POSITION - ROOM


@pytest.mark.parametrize("name", sorted(GENERATED))
def test_the_generated_files_are_what_their_script_makes(name: str) -> None:
    assert GENERATED[name]() == text_of("experiments.quality", "items", f"{name}.jsonl")


def test_a_planted_fact_stands_in_its_passage_once_and_no_filler_tells_it(items: list[Item]) -> None:
    told = " ".join(sentence for theme in FILLERS for sentence in theme)
    for needle in NEEDLES:
        for word in (*needle.keys, *needle.answers):
            assert not re.search(rf"\b{re.escape(word)}\b", told, re.IGNORECASE), word
    for item in items:
        if item.slice == "long_context":
            assert item.prompt.count(item.choices[item.answer]) == 1, item.id


def test_sums_of_the_arithmetic_slice_are_right(items: list[Item]) -> None:
    checked = 0
    for item in items:
        asked = re.search(r"(\d+) ([-+]|times|divided by) (\d+) (?:=|is)$", item.prompt)
        if item.slice == "arithmetic" and asked:
            a, sign, b = int(asked[1]), asked[2], int(asked[3])
            expected = {"+": a + b, "-": a - b, "times": a * b, "divided by": a / b}[sign]
            assert int(item.choices[item.answer]) == expected, item.id
            checked += 1
    assert checked >= 50


# -- the texts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "least"), [("essay.txt", 2_200), ("manual.txt", 2_200), ("chinese.txt", 800)])
def test_the_texts_are_long_enough_for_perplexity(tokenizer: Tokenizer, name: str, least: int) -> None:
    assert len(tokenizer.encode(text_of("experiments.quality", "texts", name))) >= least


def test_the_calibration_text_is_long_and_small(tokenizer: Tokenizer) -> None:
    text = text_of("core_engine.quant", "calibration.txt")
    assert len(tokenizer.encode(text)) >= 20_000
    assert len(text.encode()) < 120_000


def runs(text: str, length: int = 8) -> set[tuple[str, ...]]:
    """Runs of words, every Chinese character counting as a word."""
    words = re.findall(r"[\u4e00-\u9fff]|[^\W\u4e00-\u9fff]+", text.lower())
    return set(zip(*(words[at:] for at in range(length)), strict=False))


def test_nothing_that_is_evaluated_on_is_in_the_calibration_text(items: list[Item]) -> None:
    calibration = runs(text_of("core_engine.quant", "calibration.txt"))
    evaluated = [item.prompt + item.choices[item.answer] for item in items]
    evaluated += [text_of("experiments.quality", "texts", name) for name in ("essay.txt", "manual.txt", "chinese.txt")]
    for text in evaluated:
        assert not runs(text) & calibration, text[:60]


def test_the_evaluation_texts_share_no_run_of_words_with_the_items(items: list[Item]) -> None:
    texts = set().union(*(runs(text_of("experiments.quality", "texts", f"{n}.txt")) for n in ("essay", "manual")))
    for item in items:
        assert not runs(item.prompt) & texts, item.id


@pytest.mark.slow
def test_no_public_benchmark_is_copied(items: list[Item], shared_dir: Path) -> None:
    own = set().union(*(runs(item.prompt + item.choices[item.answer]) for item in items))
    for path in sorted((shared_dir / "data" / "eval").iterdir()):
        assert not own & runs(path.read_text(encoding="utf-8")), path.name
