"""A lab whose parts don't agree is refused with file and field; the checks are those of the contributor's example."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.labs import read_lab
from experiments.labs.keys import ARITHMETIC, FORMULAS
from ledger.errors import InputError
from tests.experiments.labs.test_lab_walks import DOCS, example

READING = 'reading = ["Leviathan et al., Fast Inference from Transformers via Speculative Decoding (ICML 2023)"]'
OF = 'of = ["longer_tokens", "one"]'
BROKEN = {
    "an unknown figure": ("lab.toml", 'show = ["tokens", "speed"]', 'show = ["tokens", "sped"]', "show"),
    "an unknown key": ("lab.toml", 'key = "speculation_tokens"', 'key = "tokens_per_moon"', "figures.tokens"),
    "a wrong argument": ("lab.toml", "alpha = 1.0", "alpa = 1.0", "figures.tokens"),
    "an unknown unit": ("lab.toml", 'unit = "x"\n\n[figures.pays]', 'unit = "z"\n\n[figures.pays]', "unit"),
    "a figure of itself": ("lab.toml", OF, 'of = ["no_bonus", "one"]', "figures.no_bonus"),
    "what was predicted": ("lab.toml", 'figure = "longer_tokens"', 'figure = "tokens"', "questions.all.figure"),
    "an unknown claim": ("lab.toml", '"C13"', '"C99"', "claims"),
    "an unknown section": ("lab.toml", '"4.1"', '"4.9"', "sections"),
    "a misspelt field": ("lab.toml", "minutes = 10", "minutes = 10\nminute = 3", "minute"),
    "a missing field": ("lab.toml", "minutes = 10\n", "", "minutes"),
    "no reading": ("lab.toml", READING, "reading = []", "reading"),
    "an order too short": ("lab.toml", 'answer = ["draft", "verify", "accept"]', 'answer = ["draft"]', "order"),
    "a run in a lab without one": ("lab.toml", f'key = "difference"\n{OF}', 'run = "a.b"', "no_bonus"),
    "a text too few": ("zh.toml", 'gain = "此时投机解码划算。"', "", "zh: remarks"),
    "a text too many": ("en.toml", 'gain = "Here', 'loss = "x"\ngain = "Here', "en: remarks"),
    "a distractor without a reason": ("zh.toml", 'yes = "比不用时更慢。"', "", "zh: questions.pays.wrong"),
    "an unknown place": ("en.toml", "it is {{tokens}}", "it is {{token}}", "en: why"),
    "places that differ": ("zh.toml", "实际是 {{tokens}}", "实际是 5", "why"),
    "a formula of dollars": ("en.toml", "A formula; nothing runs.", "$x$", "en: experiment"),
    "the outcome too early": ("en.toml", "guesses {{drafts}} tokens", "guesses {{prediction}} tokens", "theory"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_what_does_not_agree_is_refused_by_name(what: str, tmp_path: Path) -> None:
    name, old, new, field = BROKEN[what]
    folder = tmp_path / "bonus-token"
    example(folder)
    text = (folder / name).read_text("utf-8")
    assert text.count(old) >= 1, f"the example no longer has {old}"
    (folder / name).write_text(text.replace(old, new, 1), "utf-8")
    with pytest.raises(InputError) as error:
        read_lab(folder)
    assert field in str(error.value) and "\n" not in str(error.value)


def test_the_docs_list_every_answer_key() -> None:
    text = DOCS.read_text("utf-8")
    assert [name for name in (*ARITHMETIC, *FORMULAS) if f"`{name}" not in text] == []
