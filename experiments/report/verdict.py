"""The verdict of a comparison in words: a headline and one sentence or two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.report.words import WORDS, Words, interval, signed_percent

# The order in which curves are shown and named.
ORDER = ("capacity_rps", "output_tokens_per_s", "ttft_s", "itl_s", "cost_per_request", "quality")


def ordered_curves(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The curves of a compare JSON in the order they are shown in."""
    return sorted(result["curves"], key=lambda curve: ORDER.index(curve["name"]) if curve["name"] in ORDER else 99)


def headline(result: Mapping[str, Any], lang: str = "en") -> tuple[str, str]:
    """(key, text): pays, pays_price, mixed_undecided, costs, same or undecided, and its words in `lang`."""
    verdicts = [curve["verdict"] for curve in result["curves"]]
    if "better" in verdicts and "worse" in verdicts:
        key = "pays_price"
    elif "better" in verdicts:
        key = "mixed_undecided" if "inconclusive" in verdicts else "pays"
    elif "worse" in verdicts:
        key = "costs"
    else:
        key = "undecided" if "inconclusive" in verdicts or not verdicts else "same"
    return key, Words(lang)(key)


def verdict_sentence(result: Mapping[str, Any], lang: str = "en") -> str:
    """The comparison in plain words: what got better with intervals, the price, what did not change, what is open."""
    words = Words(lang)
    subject = _subject(words, f"{result['variable']}={result['arms'][1]['value']}")
    groups: dict[str, list[Mapping[str, Any]]] = {"better": [], "worse": [], "no difference": [], "inconclusive": []}
    for curve in ordered_curves(result):
        groups[curve["verdict"]].append(curve)
    sentences = []
    if groups["better"]:
        sentences.append(words("s_better", subject=subject, changes=_changes(words, groups["better"])))
    if groups["worse"]:
        key = "s_worse" if groups["better"] else "s_worse_only"
        sentences.append(words(key, subject=subject, changes=_changes(words, groups["worse"])))
    if groups["no difference"]:
        sentences.append(
            words("s_same", names=words.listed([_within(words, c["name"]) for c in groups["no difference"]]))
        )
    if groups["inconclusive"]:
        sentences.append(words("s_open", names=words.listed([_open(words, c) for c in groups["inconclusive"]])))
    return ("" if lang == "zh" else " ").join(sentences)


def _subject(words: Words, setting: str) -> str:
    """The candidate's name where it has one in the reader's language, else NAME=VALUE."""
    return words(setting) if setting in WORDS else setting


def _changes(words: Words, curves: list[Mapping[str, Any]]) -> str:
    return words.listed(
        [f"{_within(words, c['name'])} {signed_percent(c['change_pct'])} {interval(c['ci95'])}" for c in curves]
    )


def _within(words: Words, curve: str) -> str:
    """A curve's name inside a sentence: small, unless it is an abbreviation."""
    name = words(curve)
    return name if name.isupper() else name[0].lower() + name[1:]


def _open(words: Words, curve: Mapping[str, Any]) -> str:
    name, repeats = _within(words, curve["name"]), curve.get("repeats_needed")
    return words("s_open_repeats", name=name, repeats=repeats) if repeats else name
