"""Every question there is, under one kind of reference: NAME:SEED. A numeric kind's seed gives its parameters, a
choice's the order of its options; other questions don't depend on it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from experiments.interview.bank import BankQuestion, ChoiceQuestion, FixedQuestion, OpenQuestion, bank
from experiments.interview.numeric import KINDS, NumericQuestion, drawn
from experiments.interview.words import LANGUAGES, Lang, kind_words, say, topic_name, unit_name
from ledger.errors import InputError, unknown_name

Form = Literal["numeric", "choice", "open"]
TOPICS = (
    "memory", "roofline", "batching", "speculation", "kernels", "parallel", "quantization", "latency", "tuning", "cost",
    "caching",
)  # fmt: skip
MOST_SEED = 10**9


@dataclass(frozen=True)
class Item:
    """A question as it is asked: which one, and with which seed."""

    name: str
    seed: int
    question: NumericQuestion | BankQuestion

    @property
    def ref(self) -> str:
        """NAME:SEED."""
        return f"{self.name}:{self.seed}"

    @property
    def topic(self) -> str:
        """One of TOPICS."""
        return self.question.kind.topic if isinstance(self.question, NumericQuestion) else self.question.topic

    @property
    def form(self) -> Form:
        """How it is answered."""
        return form_of(self.name)

    @property
    def numeric(self) -> NumericQuestion | None:
        """The numeric question in it; None for another form."""
        if isinstance(self.question, FixedQuestion):
            return self.question.question
        return self.question if isinstance(self.question, NumericQuestion) else None

    def ask(self, lang: Lang) -> str:
        """The question."""
        return self.question.ask(lang)

    def options(self, lang: Lang) -> dict[str, str]:
        """Letter -> option of a choice; empty for other forms."""
        if not isinstance(self.question, ChoiceQuestion):
            return {}
        question = self.question
        return {letter: question.text(lang, option) for letter, option in question.shown(self.seed).items()}

    def unit(self, lang: Lang) -> str:
        """What a numeric answer is asked in; empty for other forms."""
        return unit_name(lang, self.numeric.kind.unit) if self.numeric else ""

    def hint(self, lang: Lang) -> str:
        """How to write the answer; empty where nothing has to be said."""
        return say(lang, "answer_in", unit=self.unit(lang)) if self.numeric else ""


def names(topic: str | None = None) -> list[str]:
    """Names of all questions, or of a topic's: the bank's first, then the numeric kinds. InputError for no topic."""
    asked = None if topic is None else checked_topic(topic)
    return [name for name in (*bank(), *KINDS) if asked is None or topic_of(name) == asked]


def checked_topic(text: str) -> str:
    """A topic by its id, its name in either language or a word of that, such as 显存; InputError for none."""
    asked = text.strip().lower()
    called = {topic: [topic, *(topic_name(lang, topic).lower() for lang in LANGUAGES)] for topic in TOPICS}
    for found in (
        [topic for topic, said in called.items() if asked in said],
        [topic for topic, said in called.items() if asked and any(asked in name for name in said)],
    ):
        if len(found) == 1:
            return found[0]
    raise unknown_name("topic", text[:60], TOPICS)


def topic_of(name: str) -> str:
    """The topic of a question's name."""
    return KINDS[name].topic if name in KINDS else bank()[name].topic


def form_of(name: str) -> Form:
    """How a question is answered."""
    question = bank().get(name)
    if isinstance(question, OpenQuestion):
        return "open"
    return "choice" if isinstance(question, ChoiceQuestion) else "numeric"


def title_of(name: str, lang: Lang) -> str:
    """A short title for lists."""
    return kind_words(lang)[name]["title"] if name in KINDS else str(bank()[name].texts(lang)["title"])


def item(ref: str) -> Item:
    """The question of a reference NAME or NAME:SEED. InputError for one that does not exist."""
    name, _, seed = ref.strip().partition(":")
    if name not in KINDS and name not in bank():
        raise InputError("question", ref[:60], "NAME:SEED with a name of `trilemma interview list`")
    number = checked_seed(seed or "0")
    return Item(name, number, drawn(KINDS[name], number) if name in KINDS else bank()[name])


def checked_seed(text: str | int) -> int:
    """A seed as a whole number; InputError otherwise."""
    try:
        number = int(str(text))
    except ValueError:
        number = -1
    if not 0 <= number < MOST_SEED:
        raise InputError("seed", str(text)[:60], f"a whole number from 0 to {MOST_SEED - 1:,}")
    return number


def fresh_seed() -> int:
    """A seed that nobody has asked for."""
    return secrets.randbelow(10**6)


def pick(seed: int, topic: str | None = None, among: Sequence[str] | None = None) -> Item:
    """The question that a seed picks among all, a topic's, or the names given; InputError when there is none."""
    found = [name for name in names(topic) if among is None or name in among]
    if not found:
        raise InputError("topic", topic, "a topic with questions of this kind")
    return item(f"{Random(f'pick:{seed}').choice(found)}:{seed}")
