"""Reading English: words without their inflection, numbers in digits and in words, names, negation, opposites."""

from __future__ import annotations

import re

from core_engine.answer_cache.gate.opposites import ENGLISH
from core_engine.answer_cache.gate.question import BELOW_ZERO, Reading, with_signs

TOKEN = re.compile(r"\d+(?:[.,]\d+)*|°?[^\W\d_]+(?:_\w+)*|[%$€£+*/=<>#^]|(?<=\s)-(?=\s)", re.UNICODE)
NAME = re.compile(r"[^\W_][\w.]*(?:\(\))?", re.UNICODE)
QUOTED = re.compile(r"[\"“”`«»]([^\"“”`«»]+)[\"“”`«»]")
SENTENCE = re.compile(r"(?<=[.?!:;])\s+")
# Words that may come and go in a sentence that otherwise stays.
SLACK = frozenset(
    {
        "a", "an", "the", "please", "do", "does", "did", "is", "are", "was", "were", "can", "could", "would", "will",
        "so", "then", "just", "really",
    }
)  # fmt: skip
NEGATIONS = frozenset(
    {
        "not", "no", "never", "cannot", "without", "except", "neither", "nor", "none", "nobody", "nothing", "unless",
        "non", "lack", "lacks",
    }
)  # fmt: skip
ASKS = {"who": "person", "whom": "person", "when": "time", "where": "place", "why": "reason"}
DIGITS = {
    "zero": "0", "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7",
    "eight": "8", "nine": "9", "ten": "10", "eleven": "11", "twelve": "12", "thirteen": "13", "fourteen": "14",
    "fifteen": "15", "sixteen": "16", "seventeen": "17", "eighteen": "18", "nineteen": "19", "twenty": "20",
    "thirty": "30", "forty": "40", "fifty": "50", "sixty": "60", "seventy": "70", "eighty": "80", "ninety": "90",
    "hundred": "100", "thousand": "1000", "million": "1000000", "billion": "1000000000", "half": "0.5", "first": "1",
    "second": "2", "third": "3", "fourth": "4", "fifth": "5", "sixth": "6", "seventh": "7", "eighth": "8",
    "ninth": "9", "tenth": "10",
}  # fmt: skip
UNCOUNTED = frozenset({"one", "zero"})  # an article as often as a number
ROMAN = {"I": "1", "II": "2", "III": "3", "IV": "4", "V": "5", "VI": "6", "VII": "7", "VIII": "8", "IX": "9", "X": "10"}
UNITS = {
    "g": "g", "gram": "g", "kg": "kg", "kilo": "kg", "kilogram": "kg", "mg": "mg", "lb": "lb", "pound": "pound",
    "cm": "cm", "mm": "mm", "m": "m", "metre": "m", "meter": "m", "km": "km", "kilometre": "km", "kilometer": "km",
    "mile": "mile", "inch": "inch", "second": "s", "minute": "min", "hour": "h", "day": "day", "week": "week",
    "month": "month", "year": "year", "celsius": "°c", "°c": "°c", "fahrenheit": "°f", "°f": "°f", "euro": "€",
    "€": "€", "dollar": "$", "$": "$", "£": "pound", "%": "%", "percent": "%", "litre": "l", "liter": "l",
    "ml": "ml", "cup": "cup", "gb": "gb", "mb": "mb",
}  # fmt: skip
POLES = {word: (pair, side) for pair, words in enumerate(ENGLISH) for side, word in enumerate(words)}


def read_english(text: str) -> Reading:
    """See Reading."""
    plain = _expanded(text)
    words = TOKEN.findall(plain.lower())
    tokens = tuple(stem(word) for word in words)
    return Reading(
        tokens=tokens,
        wording=tuple(stem(word) for word in words if word not in SLACK),
        numbers=tuple(sorted(_numbers(words, plain))),
        units=frozenset(_units(words)),
        names=_names(plain),
        poles=frozenset(POLES[form] for word in words for form in {word, stem(word)} if form in POLES),
        asks=_asks(plain.lower()),
        negated=any(word in NEGATIONS for word in words),
    )


def stem(word: str) -> str:
    """The word without the commonest endings; not a linguist's stem, but one that inflections share."""
    for ending, rest in (("ies", "y"), ("sses", "ss"), ("es", "e"), ("s", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 2 and not word.endswith(("ss", "us", "is")):
            word = word[: -len(ending)] + rest
            break
    for ending in ("ing", "ed"):
        base = word[: -len(ending)]
        if word.endswith(ending) and len(base) >= 3 and re.search("[aeiouy]", base):
            doubled = base[-1] == base[-2] and base[-1] not in "lsz"
            return (base[:-1] if doubled else base).removesuffix("e")
    return word.removesuffix("e") if len(word) > 3 else word


def _expanded(text: str) -> str:
    plain = text.replace("’", "'").replace("‘", "'")
    plain = re.sub(r"\bcan't\b", "can not", re.sub(r"\bwon't\b", "will not", plain, flags=re.I), flags=re.I)
    plain = re.sub(r"n't\b", " not", plain)
    return re.sub(r"'(s|re|ve|ll|d|m)\b", "", plain)


def _numbers(words: list[str], plain: str) -> list[str]:
    digits = [_value(word) for word in words if word[0].isdigit()]
    found = with_signs(digits, map(_value, BELOW_ZERO.findall(plain)))
    found += [DIGITS[word] for word in words if word in DIGITS and word not in UNCOUNTED and not _is_time(word, words)]
    return found + [value for sentence in SENTENCE.split(plain) for value in _roman(re.split(r"[\s\-–/]+", sentence))]


def _roman(spelled: list[str]) -> list[str]:
    """Roman numerals behind a name: World War II, Henry VIII. "I" behind a sentence's first word is the speaker."""
    found = []
    for place in range(1, len(spelled)):
        word, before = spelled[place].strip(".,?!:;"), spelled[place - 1]
        if word in ROMAN and before[:1].isupper() and (place > 1 or word != "I"):
            found.append(ROMAN[word])
    return found


UNIT_OF = {stem(word): unit for word, unit in UNITS.items()}


def _units(words: list[str]) -> list[str]:
    """Units that stand right behind or before a number."""
    near = {place + step for place, word in enumerate(words) if word[0].isdigit() or word in DIGITS for step in (-1, 1)}
    return [UNIT_OF[stem(words[place])] for place in near if 0 <= place < len(words) and stem(words[place]) in UNIT_OF]


def _is_time(word: str, words: list[str]) -> bool:
    """Whether "second" is a unit: a number or "per" stands before it."""
    if word != "second":
        return False
    before = words[words.index(word) - 1] if words.index(word) else ""
    return before in ("per", "a", "each", "every") or before in DIGITS or before[:1].isdigit()


def _value(number: str) -> str:
    """The number without separators of thousands, its decimals behind a point."""
    grouped = re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d+)?", number)
    return number.replace(",", "" if grouped else ".")


def _names(plain: str) -> frozenset[str]:
    """Words with a capital that do not begin a sentence, words with digits or capitals inside, what is quoted."""
    found = {word.lower() for quoted in QUOTED.findall(plain) for word in NAME.findall(quoted)} - SLACK
    for sentence in SENTENCE.split(plain):
        for place, match in enumerate(NAME.finditer(sentence)):
            word = match.group().strip(".")
            odd = any(char.isupper() for char in word[1:]) or "()" in word or "." in word
            mixed = any(char.isdigit() for char in word) and any(char.isalpha() for char in word)
            if (odd or mixed or (place and word[:1].isupper())) and word not in ("I", *ROMAN) and not word.isdigit():
                found.add(word.lower())
    return frozenset(name for name in found if not re.fullmatch(r"[\d.,]+", name))


def _asks(text: str) -> frozenset[str]:
    first = next(iter(re.findall(r"[a-z]+", text)), "")
    if text.startswith("how come"):
        return frozenset({"reason"})
    return frozenset({ASKS[first]}) if first in ASKS else frozenset()
