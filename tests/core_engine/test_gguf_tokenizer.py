"""Tokenizers of GGUF files: splits of each known kind, SentencePiece merges by score, bytes, begin tokens, refusals."""

from __future__ import annotations

import heapq
import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as RustTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from core_engine.model.gguf_tokenizer import CONTROL, NORMAL, SPLITS, UNKNOWN, USER_DEFINED, build_tokenizer
from core_engine.model.gguf_tokenizer import write_tokenizer as write_gguf_tokenizer
from core_engine.model.tokenizer import Tokenizer
from ledger.errors import InputError

BYTE = 6
TEXTS = (
    "It's 12345 tests, I'LL say:\n\n  two  spaces\tand a tab...\r\n",
    "中文没有空格 ünïcode ﬁne e\u0301 🙂👨‍👩‍👧 <tool>x</tool>",
    "def f(x):\n    return x**2  # 3.14\n",
    "",
    " leading",
)
CORPUS = [*TEXTS, "the cat sat on the mat and the dog said it's 12345 " * 3, "二十三 测试 测试"]


def trained(split: str) -> dict[str, Any]:
    """A byte-level BPE trained on a small text, as GGUF metadata of the pre-tokenizer `split`."""
    tokenizer = RustTokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = [*sorted(model["vocab"], key=model["vocab"].__getitem__), "<|end|>", "<tool>"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": split,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [NORMAL] * (len(tokens) - 2) + [CONTROL, USER_DEFINED],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.eos_token_id": len(tokens) - 2,
    }


def pieces(tokenizer: RustTokenizer, text: str) -> list[str]:
    split = tokenizer.pre_tokenizer.pre_tokenize_str(text)
    return [decoders.ByteLevel().decode([piece]) for piece, _ in split]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("gpt-2", "it's 1234 a", ["it", "'s", " 1234", " a"]),
        ("default", "it's 1234 a", ["it", "'s", " 1234", " a"]),
        ("smollm", "a 123", ["a", " ", "1", "2", "3"]),
        ("llama-bpe", "IT'S 12345,\n\nx", ["IT", "'S", " ", "123", "45", ",\n\n", "x"]),
        ("qwen2", "IT'S 123,\n\nx", ["IT", "'S", " ", "1", "2", "3", ",\n\n", "x"]),
        ("qwen2", "a  b\n  c", ["a", " ", " b", "\n", " ", " c"]),
        ("llama-bpe", "(word) é", ["(word", ")", " é"]),
    ],
)
def test_text_is_split_as_the_kind_says(name: str, text: str, expected: list[str]) -> None:
    assert pieces(build_tokenizer(trained(name)), text) == expected


@pytest.mark.parametrize("name", SPLITS)
def test_byte_level_text_round_trips_with_special_and_added_tokens(name: str, tmp_path: Path) -> None:
    fields = trained(name)
    write_gguf_tokenizer(fields, tmp_path)
    tokenizer = Tokenizer(tmp_path, ())
    end, tool = len(fields["tokenizer.ggml.tokens"]) - 2, len(fields["tokenizer.ggml.tokens"]) - 1
    for text in TEXTS:
        expected = normalizers.NFC().normalize_str(text) if name == "qwen2" else text
        assert tokenizer.decode(tokenizer.encode(text)) == expected
    ids = tokenizer.encode("a<|end|>b<tool>c")
    assert end in ids and tool in ids
    assert tokenizer.decode(ids) == "ab<tool>c"  # only control tokens are left out of text


def test_llama_bpe_begins_with_its_token_unless_the_file_says_no() -> None:
    fields = {**trained("llama-bpe"), "tokenizer.ggml.bos_token_id": 5}
    assert build_tokenizer(fields).encode("a").ids[0] == 5
    assert build_tokenizer({**fields, "tokenizer.ggml.add_bos_token": False}).encode("a").ids[0] != 5
    assert build_tokenizer({**trained("qwen2"), "tokenizer.ggml.bos_token_id": 5}).encode("a").ids[0] != 5


# -- SentencePiece ---------------------------------------------------------------------------------------------------


def sentencepiece_fields(**changes: Any) -> dict[str, Any]:
    """A vocabulary of words' parts with random scores, laid out as llama files are: specials, bytes, pieces."""
    rng = random.Random(3)
    parts = {"▁" + word[:end] for word in " ".join(CORPUS).split() for end in range(1, len(word) + 1)}
    parts |= {word[a:b] for word in " ".join(CORPUS).split() for a in range(len(word)) for b in range(a + 1, a + 4)}
    parts = {part for part in parts if rng.random() < 0.6 or len(part) == 1} | {"▁", "▁▁"}
    parts -= set("中没🙂") | {part for part in parts if set(part) & set("中没🙂")}
    pieces = sorted(parts)
    rng.shuffle(pieces)
    tokens = ["<unk>", "<s>", "</s>", *[f"<0x{byte:02X}>" for byte in range(256)], *pieces]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(pieces),
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(index) for index in range(len(pieces))],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        **changes,
    }


def by_score(fields: dict[str, Any], text: str) -> list[int]:
    """SentencePiece's BPE as published: merge the neighbours whose union scores best, leftmost first; else bytes."""
    vocab = {
        token: index
        for index, token in enumerate(fields["tokenizer.ggml.tokens"])
        if fields["tokenizer.ggml.token_type"][index] == NORMAL
    }
    scores = fields["tokenizer.ggml.scores"]
    symbols = list("▁" + text.replace(" ", "▁"))
    while True:
        found = [
            (-scores[vocab[a + b]], place) for place, (a, b) in enumerate(itertools.pairwise(symbols)) if a + b in vocab
        ]
        if not found:
            break
        _, place = heapq.nsmallest(1, found)[0]
        symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
    ids: list[int] = []
    for symbol in symbols:
        ids += [vocab[symbol]] if symbol in vocab else [3 + byte for byte in symbol.encode()]
    return ids


def test_sentencepiece_merges_by_score_and_falls_back_to_bytes() -> None:
    fields = sentencepiece_fields()
    tokenizer = build_tokenizer(fields)
    for text in TEXTS:
        if text:
            assert tokenizer.encode(text, add_special_tokens=False).ids == by_score(fields, text), text
    assert tokenizer.encode("the").ids[0] == 1


def test_sentencepiece_text_round_trips(tmp_path: Path) -> None:
    write_gguf_tokenizer(sentencepiece_fields(), tmp_path)
    tokenizer = Tokenizer(tmp_path, (2,))
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_sentencepiece_without_a_leading_space_or_begin_token() -> None:
    options = {"tokenizer.ggml.add_space_prefix": False, "tokenizer.ggml.add_bos_token": False}
    tokenizer = build_tokenizer(sentencepiece_fields(**options))
    ids = tokenizer.encode("the cat").ids
    assert ids[0] != 1 and tokenizer.decode(ids) == "the cat"
    assert not tokenizer.encode("the cat").tokens[0].startswith("▁")


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({**trained("gpt-2"), "tokenizer.ggml.model": "bert"}, "bert"),
        ({**trained("gpt-2"), "tokenizer.ggml.pre": "tekken"}, "tekken"),
        ({key: value for key, value in trained("gpt-2").items() if not key.endswith(".pre")}, "tokenizer.ggml.pre"),
        ({**trained("gpt-2"), "tokenizer.ggml.merges": ["no such"]}, "merges"),
        ({**trained("gpt-2"), "tokenizer.ggml.tokens": ["a", "a"]}, "distinct"),
        (sentencepiece_fields(**{"tokenizer.ggml.scores": [1.0]}), "scores"),
        (sentencepiece_fields(**{"tokenizer.ggml.precompiled_charsmap": [1]}), "normalisation"),
        ({**sentencepiece_fields(), "tokenizer.ggml.bos_token_id": 10**6}, "bos_token_id"),
    ],
)
def test_an_unknown_or_broken_tokenizer_is_refused_in_one_line(fields: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word) as caught:
        build_tokenizer(fields)
    assert "\n" not in str(caught.value)
