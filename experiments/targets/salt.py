"""Prompts that no run before had: what stands in for emptying the prefix cache of a server that can't be told to.

A prefix cache finds a prompt by its beginning, so words in front that differ from run to run make every block of a run
new to the server, while prompts of one run still share what they share. All salts have the same number of words, each
one token in the usual vocabularies, so that runs stay equally long.
"""

from __future__ import annotations

import secrets
from typing import Any

WORDS = (
    "apple", "river", "house", "green", "water", "light", "stone", "paper", "music", "table", "horse", "bread",
    "cloud", "train", "glass", "north", "south", "money", "story", "night", "world", "point", "place", "right",
    "small", "great", "young", "white", "black", "heart", "earth", "field", "force", "plant", "power", "price",
    "share", "sound", "space", "speed", "start", "state", "study", "style", "sugar", "taste", "teach", "theme",
    "title", "total", "touch", "tower", "track", "trade", "truth", "value", "video", "visit", "voice", "watch",
    "wheel", "while", "woman", "write",
)  # fmt: skip
NUM_WORDS = 4  # 64 words: a repeat by chance among 1,000 runs in 3 %


def new_salt() -> str:
    """Text to stand in front of every prompt of one run; drawn anew, since a server remembers earlier runs' prompts."""
    return "".join(f" {secrets.choice(WORDS)}" for _ in range(NUM_WORDS)) + "\n"


def salt_tokens(salt: str, tokenizer: Any) -> tuple[int, ...]:
    """Ids of a salt, without the beginning-of-sequence token that a prompt has already."""
    ids = tokenizer.encode(salt)
    known = getattr(tokenizer, "token_bytes", None)
    return tuple(ids) if known is None else tuple(token for token in ids if known[token])
