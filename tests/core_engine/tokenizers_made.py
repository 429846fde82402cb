"""Small tokenizers made on the spot: byte-level as GPT-2's, byte fallback as Llama-2's, Metaspace, WordPiece."""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

BYTES = {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
SPECIAL = {"<unk>": 0, "<s>": 1, "</s>": 2}


def byte_level() -> Tokenizer:
    """256 bytes, merges that cross characters (a token may end one and begin the next), a special token and added ones.

    Of the added ones the decoder takes the last alone for spelled bytes: it has no space and no character beyond them.
    """
    chars = pre_tokenizers.ByteLevel.alphabet()
    vocab = {char: i for i, char in enumerate(sorted(chars))}
    pairs = [b"ab", "你".encode()[:2], "你".encode()[2:] + "好".encode()[:1], "🙂".encode()[:2]]
    merges = []
    for pair in pairs:
        left, right = (_spell(bytes([byte])) for byte in pair)
        merges.append((left, right))
        vocab[left + right] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True, normalized=False)])
    tokenizer.add_tokens([AddedToken(name, normalized=False) for name in ("<two words>", "<é好>", "<é>")])
    return tokenizer


def byte_fallback() -> Tokenizer:
    """Llama-2's pipeline: a space in front, ▁ for spaces, <0xNN> for unknown characters, Strip when decoding.

    The vocabulary has letters and a few characters; encoding puts <s> in front.
    """
    vocab = {**SPECIAL, **BYTES}
    for piece in "▁abcdefghijklmnopqrstuvwxyzSTOP.,!é好�":
        vocab[piece] = len(vocab)
    merges = [("▁", "a"), ("▁", "▁"), ("S", "T"), ("O", "P"), ("ST", "OP")]
    for left, right in merges:
        vocab[left + right] = len(vocab)
    model = models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def metaspace() -> Tokenizer:
    """The Metaspace decoder drops every leading space of the first token."""
    tokenizer = byte_fallback()
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(replacement="▁", prepend_scheme="first", split=False)]
    )
    return tokenizer


def word_pieces() -> Tokenizer:
    """WordPiece: spaces before every piece that does not continue a word, none before the first."""
    vocab = {piece: i for i, piece in enumerate(["[UNK]", "[SEP]", "a", "b", "##a", "##b", ".", "word"])}
    tokenizer = Tokenizer(models.WordPiece(vocab=vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens([AddedToken("[SEP]", special=True, normalized=False)])
    return tokenizer


def save(tokenizer: Tokenizer, directory: Path) -> Path:
    """Write tokenizer.json into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


def _spell(data: bytes) -> str:
    """Bytes in GPT-2's printable spelling."""
    tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {byte: chr(byte) for byte in kept}
    table.update({byte: chr(256 + i) for i, byte in enumerate(b for b in range(256) if b not in kept)})
    assert set(table.values()) == set(tokenizer.alphabet())
    return "".join(table[byte] for byte in data)
