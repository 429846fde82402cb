"""The pairs of questions for the semantic cache are what their folder says: enough, in their language, never twice."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter, defaultdict
from itertools import product

import pytest

from experiments.caching import pairs as package
from experiments.caching.pairs import HALVES, KINDS, LANGUAGES, Pair, read_pairs
from ledger.errors import InputError

FILES = [pytest.param(language, kind, id=f"{language}-{kind}") for language, kind in product(LANGUAGES, KINDS)]
HAN = re.compile("[\u4e00-\u9fff]")
# Characters that are written otherwise in Simplified Chinese, among those that questions use most.
TRADITIONAL = re.compile("[們個這來說時為會過還沒對開關問題機電話費請麼樣後從兩買賣錢嗎與應該裡點單號訂購學習國語車飛]")


def every_pair() -> list[Pair]:
    return [pair for language, kind in product(LANGUAGES, KINDS) for pair in read_pairs(language, kind)]


def plain(text: str) -> str:
    """A text without case, width, spaces and punctuation; signs that carry a meaning (+, -, %, °) stay."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(c for c in folded if unicodedata.category(c)[0] in "LNS" or c in "+-%")


@pytest.mark.parametrize(("language", "kind"), FILES)
def test_both_halves_of_a_file_are_of_one_size_of_at_least_150_pairs(language, kind):
    tune, held = (read_pairs(language, kind, half) for half in HALVES)
    assert len(tune) == len(held) >= 150
    assert {pair.half for pair in tune} == {"tune"} and {pair.half for pair in held} == {"held"}
    assert len(read_pairs(language, kind)) == len(tune) + len(held)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_files_of_a_language_have_halves_of_one_size(language):
    assert len({len(read_pairs(language, kind, half)) for kind, half in product(KINDS, HALVES)}) == 1


@pytest.mark.parametrize(("language", "kind"), FILES)
def test_each_line_has_the_five_fields_and_counts_on(language, kind):
    lines = (package.files(package.__name__) / language / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        row = json.loads(line)
        assert list(row) == ["id", "a", "b", "topic", "half"]
        assert all(isinstance(value, str) and value and value == value.strip() for value in row.values()), line
        assert row["id"] == f"{language}-{kind[0]}-{number:03d}"


def test_no_text_occurs_twice_in_any_file():
    texts = Counter(plain(text) for pair in every_pair() for text in (pair.a, pair.b))
    assert [text for text, times in texts.items() if times > 1] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_topic_of_a_language_is_in_both_halves(language):
    halves = defaultdict(set)
    for pair in every_pair():
        if pair.id.startswith(f"{language}-"):
            halves[pair.topic].add(pair.half)
    assert {topic: found for topic, found in halves.items() if len(found) > 1} == {}
    assert len(halves) >= 20


@pytest.mark.parametrize("kind", KINDS)
def test_texts_are_in_the_language_of_their_folder(kind):
    for pair in read_pairs("en", kind):
        assert not HAN.search(pair.a + pair.b), pair.id
    for pair in read_pairs("zh", kind):
        for text in (pair.a, pair.b):
            foreign_words = re.findall("[A-Za-z]+", text)
            assert len(HAN.findall(text)) >= max(3, len(foreign_words)), pair.id
            assert not TRADITIONAL.search(text), pair.id


@pytest.mark.parametrize("language", LANGUAGES)
def test_near_misses_are_closer_in_wording_than_paraphrases(language):
    """What makes them a test: a cache that goes by shared characters alone gets most of them wrong."""

    def median_overlap(kind: str) -> float:
        shares = []
        for pair in read_pairs(language, kind):
            a, b = (Counter(plain(text)[i : i + 2] for i in range(len(plain(text)) - 1)) for text in (pair.a, pair.b))
            shares.append(2 * (a & b).total() / (a.total() + b.total()))
        return sorted(shares)[len(shares) // 2]

    assert median_overlap("near_miss") > median_overlap("paraphrase") + 0.2


@pytest.mark.parametrize(
    ("arguments", "field"),
    [(("fr", "paraphrase"), "language"), (("en", "opposite"), "kind"), (("en", "paraphrase", "all"), "half")],
)
def test_what_there_is_not_is_refused_by_name(arguments, field):
    with pytest.raises(InputError, match=f"^{field}: ") as error:
        read_pairs(*arguments)
    assert " or " in str(error.value)
