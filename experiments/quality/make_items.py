"""Makes the two slices that are generated, arithmetic and long_context, from fixed seeds.

`python -m experiments.quality.make_items` rewrites their files beside this module; a test holds that the files are what
this makes. The other slices are written by hand, and their files are their source.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

from experiments.quality.items import Item
from experiments.quality.passage_stock import FILLERS, NEEDLES, Needle

__all__ = ["GENERATED", "main"]

_FOLDER = Path(__file__).with_name("items")
_PER_KIND = 14
# Words of filler of each passage: many short ones and few long ones, since every word is prefilled. A passage is asked
# about several of its facts, each time alone, so that an engine with a prefix cache computes it once.
_PASSAGE_WORDS = (*(150,) * 12, *(260,) * 10, *(450,) * 6, *(700,) * 2, *(950,) * 2)
_QUESTIONS_A_PASSAGE = 5

# A question as (prompt, the right answer, the wrong answers), all without the space between.
_Question = tuple[str, str, list[str]]


def _near(answer: int, rng: Random) -> list[str]:
    """Three wrong numbers close to the answer and, where there are such, of as many digits."""
    offsets = [offset for offset in (-10, -3, -2, -1, 1, 2, 3, 10, 11) if answer + offset > 0]
    fitting = [offset for offset in offsets if len(str(answer + offset)) == len(str(answer))]
    return [str(answer + offset) for offset in rng.sample(fitting if len(fitting) >= 3 else offsets, 3)]


def _number(prompt: str, answer: int, rng: Random) -> _Question:
    return prompt, str(answer), _near(answer, rng)


def _small_sum(rng: Random) -> _Question:
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    return _number(f"1 + 1 = 2\n3 + 2 = 5\n{a} + {b} =", a + b, rng)


def _large_sum(rng: Random) -> _Question:
    a, b = rng.randint(11, 58), rng.randint(11, 41)
    return _number(f"10 + 20 = 30\n25 + 11 = 36\n{a} + {b} =", a + b, rng)


def _difference(rng: Random) -> _Question:
    a, b = rng.randint(20, 99), rng.randint(2, 18)
    return _number(f"12 - 2 = 10\n30 - 5 = 25\n{a} - {b} =", a - b, rng)


def _product(rng: Random) -> _Question:
    a, b = rng.randint(2, 9), rng.randint(3, 9)
    return _number(f"2 times 2 is 4. 10 times 3 is 30. {a} times {b} is", a * b, rng)


def _quotient(rng: Random) -> _Question:
    divisor, answer = rng.randint(2, 9), rng.randint(2, 9)
    return _number(f"10 divided by 2 is 5. {divisor * answer} divided by {divisor} is", answer, rng)


def _series(rng: Random) -> _Question:
    step, first = rng.choice((1, 2, 3, 4, 5, 10)), rng.randint(1, 12)
    shown = ", ".join(str(first + step * place) for place in range(5))
    return _number(f"The next number after {shown} is", first + step * 5, rng)


def _countdown(rng: Random) -> _Question:
    step, last = rng.choice((1, 2, 5, 10)), rng.randint(3, 20)
    shown = ", ".join(str(last + step * place) for place in range(5, 0, -1))
    return _number(f"Counting down in steps of {step}: {shown},", last, rng)


def _larger(rng: Random) -> _Question:
    low, high = sorted(rng.sample(range(11, 99), 2))
    pair = [low, high]
    rng.shuffle(pair)
    largest = rng.random() < 0.5
    word, right, wrong = ("larger", high, low) if largest else ("smaller", low, high)
    return f"Of the two numbers {pair[0]} and {pair[1]}, the {word} one is", str(right), [str(wrong)]


_UNITS = (
    ("hours", 60, "minutes"),
    ("minutes", 60, "seconds"),
    ("days", 24, "hours"),
    ("weeks", 7, "days"),
    ("years", 12, "months"),
    ("meters", 100, "centimeters"),
    ("kilometers", 1000, "meters"),
    ("kilograms", 1000, "grams"),
    ("feet", 12, "inches"),
    ("yards", 3, "feet"),
    ("dollars", 100, "cents"),
    ("dozen", 12, "pieces"),
)


def _conversion(rng: Random) -> _Question:
    unit, factor, smaller = rng.choice(_UNITS)
    amount = rng.randint(2, 6)
    # Multiples of the same factor: another factor would give numbers with fewer digits, and those are likelier as such.
    wrong = [f"{(amount + more) * factor} {smaller}" for more in rng.sample((-1, 1, 2, 3), 3)]
    return f"{amount} {unit} are equal to", f"{amount * factor} {smaller}", wrong


_NAMES = ("Mara", "Tobias", "Ines", "Kofi", "Lena", "Rafael", "Yuki", "Nadia")
_THINGS = ("apples", "coins", "stamps", "marbles", "books", "shells", "pencils", "cards")


def _story(rng: Random) -> _Question:
    name, things, have, more = rng.choice(_NAMES), rng.choice(_THINGS), rng.randint(4, 9), rng.randint(1, 3)
    if rng.random() < 0.5:
        told = f"{name} has {have} {things} and finds {more} more. Now {name} has"
        return _number(told, have + more, rng)
    return _number(f"{name} has {have} {things} and gives {more} of them away. Now {name} has", have - more, rng)


def _doubled(rng: Random) -> _Question:
    number = rng.randint(2, 40)
    if rng.random() < 0.5:
        return _number(f"Twice the number {number} is", 2 * number, rng)
    return _number(f"Half of the number {2 * number} is", number, rng)


_KINDS: tuple[Callable[[Random], _Question], ...] = (
    *(_small_sum, _large_sum, _difference, _product, _quotient, _series),
    *(_countdown, _larger, _conversion, _story, _doubled),
)


def _arithmetic(rng: Random) -> Iterator[_Question]:
    for kind in _KINDS:
        seen: set[str] = set()
        while len(seen) < _PER_KIND:
            question = kind(rng)
            if question[0] not in seen:
                seen.add(question[0])
                yield question


def _long_context(rng: Random) -> Iterator[_Question]:
    """Passages of _PASSAGE_WORDS with facts of neighbouring kinds, each kind equally often, at the places of a grid.

    Of every other fact the same kind of thing is told of the other keys too, with the wrong answers, so that finding
    any answer of the kind does not do.
    """
    words = list(_PASSAGE_WORDS)
    count = len(words) * _QUESTIONS_A_PASSAGE
    places = [number / (count - 1) for number in range(count)]
    rng.shuffle(words)
    rng.shuffle(places)
    for passage, length in enumerate(words):
        numbers = range(passage * _QUESTIONS_A_PASSAGE, (passage + 1) * _QUESTIONS_A_PASSAGE)
        kinds = [NEEDLES[number % len(NEEDLES)] for number in numbers]
        yield from _retrieval(kinds, length, [places[number] for number in numbers], passage % 2, rng)


def _retrieval(
    needles: Sequence[Needle], words: int, places: Sequence[float], first_with_decoys: int, rng: Random
) -> Iterator[_Question]:
    """The questions of one passage; no answer to choose from is told there of another kind."""
    facts, told = [], set[str]()
    for needle in needles:
        answers = rng.sample([answer for answer in needle.answers if answer not in told], 4)
        told.update(answers)
        facts.append((needle, rng.sample(needle.keys, 4), answers))
    passage = _filler(words, rng)
    for number, (needle, keys, answers) in enumerate(facts):
        for key, answer in zip(keys[1:], answers[1:], strict=True) if number % 2 == first_with_decoys else ():
            passage.insert(rng.randint(0, len(passage)), needle.statement.format(key=key, answer=answer))
    # From the front: a later one does not move an earlier one's share of the passage by more than a sentence.
    for place, (needle, keys, answers) in sorted(zip(places, facts, strict=True), key=lambda one: one[0]):
        passage.insert(round(place * len(passage)), needle.statement.format(key=keys[0], answer=answers[0]))
    # Paragraphs of six sentences, as prose has them.
    text = "\n\n".join(" ".join(passage[at : at + 6]) for at in range(0, len(passage), 6))
    for needle, keys, answers in facts:
        yield f"{text}\n\n{needle.question.format(key=keys[0])}", answers[0], answers[1:]


def _filler(words: int, rng: Random) -> list[str]:
    """Whole themes of sentences, each sentence once, in the order they are told, until there are enough words."""
    chosen: list[str] = []
    count = 0
    for theme in rng.sample(FILLERS, len(FILLERS)):
        for sentence in theme:
            if count >= words:
                return chosen
            chosen.append(sentence)
            count += len(sentence.split())
    return chosen


def _items(name: str, questions: list[_Question], rng: Random) -> list[Item]:
    """Items with the right answer at each place equally often, apart for each number of choices."""
    places: dict[int, list[int]] = {}
    for size in {1 + len(wrong) for _, _, wrong in questions}:
        count = sum(1 + len(wrong) == size for _, _, wrong in questions)
        places[size] = [at % size for at in range(count)]
        rng.shuffle(places[size])
    items = []
    for number, (prompt, right, wrong) in enumerate(questions, start=1):
        answer = places[1 + len(wrong)].pop()
        choices = [*wrong[:answer], right, *wrong[answer:]]
        items.append(Item(f"{name}-{number:03d}", name, prompt, tuple(f" {choice}" for choice in choices), answer))
    return items


def _text(name: str, questions: Callable[[Random], Iterator[_Question]]) -> str:
    rng = Random(name)
    items = _items(name, list(questions(rng)), rng)
    return "".join(json.dumps(vars(item), ensure_ascii=False) + "\n" for item in items)


# Name of the slice to the text of its file.
GENERATED: dict[str, Callable[[], str]] = {
    "arithmetic": lambda: _text("arithmetic", _arithmetic),
    "long_context": lambda: _text("long_context", _long_context),
}


def main() -> None:
    """Write the generated slices into the folder of the items."""
    for name, make in GENERATED.items():
        (_FOLDER / f"{name}.jsonl").write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
