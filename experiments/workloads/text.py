"""Prompt texts with an exact number of tokens.

A prompt is sentences of plain English, or pieces of one of our stocks, drawn at random, cut at the wanted length and
mended at the cut, so that `encode(decode(ids))` gives the same ids: a server that gets the text counts the same tokens
as an engine that gets ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from experiments.workloads.stock import stock
from ledger.errors import CannotRunError


class TokenizerLike(Protocol):
    """What a workload needs of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""

    def decode(self, ids: list[int]) -> str:
        """Text of ids."""

    def apply_chat_template(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Ids of a conversation, ready for the assistant's answer."""


SENTENCES = (
    "The harbour was quiet before the first ferry came in.",
    "A small library at the corner keeps maps from the last two hundred years.",
    "Farmers in the valley plant beans after the late frost has passed.",
    "The engineer measured the bridge twice and wrote both numbers down.",
    "Rain moved slowly across the plain and reached the town by noon.",
    "She learned to repair clocks from her uncle, who never owned one.",
    "The recipe asks for two cups of flour, a spoon of salt and warm water.",
    "Most of the stars we can see at night are larger than the sun.",
    "The train stops for ten minutes so that the crew can change.",
    "A teacher asked the class to explain why ice floats on water.",
    "The museum opened a new room for instruments made of wood.",
    "Birds that winter in the south return when the days grow longer.",
    "The committee agreed on the budget but not on the schedule.",
    "He wrote a letter every week and kept a copy of each one.",
    "The river is wide here, and the ferry needs half an hour to cross.",
    "Prices of coffee rose after a dry season in the highlands.",
    "The doctor explained the results in simple words and drew a picture.",
    "Children built a dam of stones and watched the water climb over it.",
    "The software keeps a list of tasks and runs the shortest one first.",
    "An old wall runs along the ridge and marks the border of the park.",
    "The orchestra rehearsed the slow part again until the horns agreed.",
    "Salt, sugar and sand look alike, yet only two of them dissolve.",
    "The captain checked the weather report and delayed the departure.",
    "Two students compared their notes and found the missing step.",
    "The bakery sells its last bread at six and closes soon after.",
    "A long queue formed in front of the office before it opened.",
    "The gardener cut the roses short so that they would flower again.",
    "Light from the tower could be seen from thirty kilometres away.",
    "The company moved its records to a building with thicker walls.",
    "Nobody remembered who had painted the door green.",
    "The path is steep at first and then follows the stream.",
    "They counted the votes by hand and reached the same result.",
)

QUESTIONS = (
    "How do I keep bread fresh for longer?",
    "Explain why the sky looks blue during the day.",
    "What should I pack for a week of walking in the hills?",
    "Write a short note that thanks a neighbour for their help.",
    "What is the difference between weather and climate?",
    "How does a bicycle stay upright?",
    "Give me three ideas for a quiet evening with friends.",
    "Why do we have leap years?",
    "How can I learn to read music as an adult?",
    "Describe how a letter travels from one town to another.",
    "What makes a good question in an interview?",
    "How do I begin to save money each month?",
)


def exact_prompt(
    tokenizer: TokenizerLike, num_tokens: int, rng: np.random.Generator, *, behind: str = ""
) -> tuple[int, ...]:
    """A prompt of exactly `num_tokens` ids that keeps its length when it is decoded and encoded again.

    With a text `behind` which it stands it has as many ids more as that text has. The round trip needs a tokenizer with
    whole words in its vocabulary; with one that has none (bytes alone) only the number of ids is exact.
    """
    total = num_tokens + (len(tokenizer.encode(behind)) if behind else 0)
    ids: list[int] = []
    text = f"{behind}Note {int(rng.integers(1000, 10_000))}."
    while len(ids) < total:
        text += " " + " ".join(SENTENCES[i] for i in rng.integers(0, len(SENTENCES), size=num_tokens // 8 + 4))
        ids = tokenizer.encode(text)
    return tuple(cut(tokenizer, ids, total))


def block_of_text(tokenizer: TokenizerLike, num_tokens: int, rng: np.random.Generator) -> tuple[int, ...]:
    """exact_prompt for a piece that stands behind ids of another: it begins with a space, so that the words at the seam
    keep their tokens when the whole is decoded and encoded again."""
    ids = tokenizer.encode(" " + tokenizer.decode(list(exact_prompt(tokenizer, num_tokens + 4, rng))))
    return tuple(cut(tokenizer, ids, num_tokens))


def stock_prompt(
    tokenizer: TokenizerLike, num_tokens: int, rng: np.random.Generator, *, kind: str, behind: str = ""
) -> tuple[int, ...]:
    """A prompt of our stock `kind` with exactly `num_tokens` ids, or that many more than the text `behind` has.

    No piece comes twice before all have come once.
    """
    texts = stock(kind)
    opener = texts.openers[int(rng.integers(0, len(texts.openers)))]
    text = texts.joiner.join([f"{behind}{texts.head.format(int(rng.integers(1000, 1_000_000)))}", opener])
    total = num_tokens + (len(tokenizer.encode(behind)) if behind else 0)
    order: list[int] = []
    while len(ids := tokenizer.encode(text)) < total:
        # Enough for about what is missing, at no more than 4 bytes a token, so that long prompts are not encoded often.
        missing = 4 * (total - len(ids))
        while missing > 0:
            order = order or [int(place) for place in rng.permutation(len(texts.pieces))]
            piece = texts.joiner + texts.pieces[order.pop()]
            text, missing = text + piece, missing - len(piece.encode())
    return tuple(cut(tokenizer, ids, total))


def cut(tokenizer: TokenizerLike, ids: list[int], num_tokens: int) -> list[int]:
    """The first ids, with up to eight at the cut replaced by whole words so that the text encodes to the same ids."""
    fillers = [encoded for word in (" and", " the", " it", " a") if len(encoded := tokenizer.encode(word)) == 1]
    for dropped in range(min(8, num_tokens) + 1 if fillers else 1):
        tail = [fillers[i % len(fillers)][0] for i in range(dropped)]
        candidate = ids[: num_tokens - dropped] + tail
        if tokenizer.encode(tokenizer.decode(candidate)) == candidate:
            return candidate
    return ids[:num_tokens]


def system_prompt(tokenizer: TokenizerLike, num_tokens: int, rng: np.random.Generator, *, head: str = "") -> str:
    """The text that many requests of a workload begin with: sentences with at least `num_tokens` tokens in all."""
    text = f"{head}You answer in short, plain sentences. Keep these notes in mind."
    while len(tokenizer.encode(text)) < num_tokens:
        text += f" {SENTENCES[int(rng.integers(0, len(SENTENCES)))]}"
    return text


def shared_prompt(
    tokenizer: TokenizerLike, num_tokens: int, rng: np.random.Generator, *, system: str
) -> tuple[int, ...]:
    """`system` (may be empty), then a question of the request's own with about `num_tokens` tokens, as raw text.

    The ids are those of the whole text, so a server that gets the text counts the same tokens. No chat template: models
    without one can be measured too.
    """
    before = f"{system}\n\n" if system else ""
    return tuple(tokenizer.encode(f"{before}{question(tokenizer, num_tokens, rng)}\n\n"))


def chat_prompt(tokenizer: TokenizerLike, num_tokens: int, rng: np.random.Generator) -> tuple[int, ...]:
    """A one-turn conversation through the model's chat template: a question with about `num_tokens` tokens in all.

    The template's own tokens come on top. The ids are the template's, so their number is exact by construction.
    """
    content = question(tokenizer, num_tokens, rng)
    return tuple(tokenizer.apply_chat_template([{"role": "user", "content": content}]))


def question(tokenizer: TokenizerLike, num_tokens: int, rng: np.random.Generator) -> str:
    """A question, with sentences before it until it has about `num_tokens` tokens."""
    text = QUESTIONS[int(rng.integers(0, len(QUESTIONS)))]
    while len(tokenizer.encode(text)) < num_tokens:
        text = f"{SENTENCES[int(rng.integers(0, len(SENTENCES)))]} {text}"
    return text


def give_back_prompt(
    tokenizer: TokenizerLike, num_tokens: int, rng: np.random.Generator, *, what: str
) -> tuple[int, ...]:
    """A request for a text (what="text") or a function ("code") of at least `num_tokens` tokens once more.

    In the model's chat format, or as plain text for a model without one. The answer is as long as what it repeats, so
    ask for fewer tokens than num_tokens.
    """
    asked, made = _ASKED[what], _function if what == "code" else _passage
    given = made(tokenizer, num_tokens, rng)
    try:
        return tuple(tokenizer.apply_chat_template([{"role": "user", "content": f"{asked}\n\n{given}"}]))
    except CannotRunError:  # no template
        return tuple(tokenizer.encode(f"{asked}\n\n{given}\n\n"))


_ASKED = {
    "text": "Repeat the following text word for word, without any change:",
    "code": "Rename the function below to `compute` and give back the whole function:",
}
_NAMES = ("amount", "count", "height", "length", "level", "price", "rate", "score", "size", "weight", "width", "year")


def _passage(tokenizer: TokenizerLike, num_tokens: int, rng: np.random.Generator) -> str:
    text = ""
    while len(tokenizer.encode(text)) < num_tokens:
        text += f"{SENTENCES[int(rng.integers(0, len(SENTENCES)))]} "
    return text.strip()


def _function(tokenizer: TokenizerLike, num_tokens: int, rng: np.random.Generator) -> str:
    """Assignments and conditions over a few names, as many as it takes."""
    names = [str(name) for name in rng.choice(_NAMES, size=4, replace=False)]
    lines = [f"def {names[0]}_of({names[1]}, {names[2]}):", f"    {names[3]} = 0"]
    while len(tokenizer.encode("\n".join(lines))) < num_tokens:
        left, right = (str(name) for name in rng.choice(names[1:], size=2, replace=False))
        number = int(rng.integers(2, 100))
        lines += [
            f"    if {left} > {number}:",
            f"        {names[3]} += {right} * {int(rng.integers(2, 10))}",
            f"    {left} = {left} + {number}",
        ]
    return "\n".join(["```python", *lines, f"    return {names[3]}", "```"])
