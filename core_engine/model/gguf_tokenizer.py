"""The tokenizer of a GGUF file as tokenizer.json and tokenizer_config.json.

Two kinds: byte-level BPE ("gpt2"), with the pre-tokenizers of SPLITS, and SentencePiece ("llama"), whose merges follow
from the scores. Another kind is refused: the ids, and so the text, would be wrong without a sign.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledger.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4  # gguf TokenType
SPACE = "▁"  # how SentencePiece writes a space

_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SHORT_FORMS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
# The split of a text before merging, by the name llama.cpp gives it: a pattern, "gpt2" or "digits".
SPLITS = {
    "default": "gpt2",
    "gpt-2": "gpt2",
    "smollm": "digits",
    "llama-bpe": rf"{_SHORT_FORMS}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}",
    "qwen2": rf"{_SHORT_FORMS}|{_WORDS}|\p{{N}}|{_REST}",
}


def write_tokenizer(fields: Mapping[str, Any], directory: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json into `directory`; InputError on a kind that is not known."""
    tokenizer = build_tokenizer(fields)
    tokenizer.save(str(directory / "tokenizer.json"))
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    tokens = fields["tokenizer.ggml.tokens"]
    for name in ("bos", "eos"):
        token_id = fields.get(f"tokenizer.ggml.{name}_token_id")
        if token_id is not None:
            settings[f"{name}_token"] = _token(tokens, name, token_id)
    if "tokenizer.chat_template" in fields:
        settings["chat_template"] = fields["tokenizer.chat_template"]
    length = fields.get(f"{fields.get('general.architecture')}.context_length")
    if length is not None:
        settings["model_max_length"] = int(length)
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=1), "utf-8")


def build_tokenizer(fields: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that a GGUF file's metadata describes; InputError when it is none of the known kinds."""
    from tokenizers import AddedToken

    kind = fields.get("tokenizer.ggml.model")
    builders = {"gpt2": _byte_level, "llama": _sentencepiece}
    if kind not in builders:
        raise InputError("model (tokenizer.ggml.model)", kind, ", ".join(builders))
    tokens: list[str] = fields.get("tokenizer.ggml.tokens") or []
    kinds: list[int] = fields.get("tokenizer.ggml.token_type") or [NORMAL] * len(tokens)
    if not tokens or len(set(tokens)) != len(tokens) or len(kinds) != len(tokens):
        raise InputError("model (tokenizer.ggml.tokens)", f"{len(tokens)} tokens", "distinct tokens, each with a type")
    vocab = {token: index for index, token in enumerate(tokens)}
    try:
        tokenizer = builders[kind](fields, vocab, kinds)
    except InputError:
        raise
    except Exception as error:  # the tokenizers library raises bare Exception, for merges outside the vocabulary
        raise InputError("model (tokenizer.ggml.merges)", str(error)[:80], "merges of known tokens") from None
    special = (CONTROL,) if kind == "gpt2" else (CONTROL, UNKNOWN)
    for is_special, types in ((True, special), (False, (USER_DEFINED,))):
        added = [
            AddedToken(token, special=is_special, normalized=False)
            for token, token_type in zip(tokens, kinds, strict=True)
            if token_type in types
        ]
        (tokenizer.add_special_tokens if is_special else tokenizer.add_tokens)(added)
    _add_ends(tokenizer, fields, tokens)
    return tokenizer


def _byte_level(fields: Mapping[str, Any], vocab: dict[str, int], kinds: list[int]) -> Tokenizer:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    name = fields.get("tokenizer.ggml.pre")
    if name not in SPLITS:
        raise InputError("model (tokenizer.ggml.pre)", name, ", ".join(SPLITS))
    merges = [tuple(pair.split(" ")) for pair in fields.get("tokenizer.ggml.merges") or []]
    model = models.BPE(vocab=vocab, merges=merges, ignore_merges=name == "llama-bpe")
    tokenizer = Tokenizer(model)
    split = SPLITS[name]
    if split == "gpt2":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    elif split == "digits":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(split), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    if name == "qwen2":
        tokenizer.normalizer = normalizers.NFC()  # as Qwen's own tokenizer.json has it
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(fields: Mapping[str, Any], vocab: dict[str, int], kinds: list[int]) -> Tokenizer:
    """SentencePiece BPE merges the neighbours whose union has the best score: that order, as a list of merges."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    scores = fields.get("tokenizer.ggml.scores") or []
    if len(scores) != len(vocab):
        raise InputError("model (tokenizer.ggml.scores)", f"{len(scores)} scores", f"one for each of {len(vocab)}")
    if "tokenizer.ggml.precompiled_charsmap" in fields or fields.get("tokenizer.ggml.remove_extra_whitespaces"):
        raise InputError("model (tokenizer.ggml)", "a text normalisation of its own", "a tokenizer without")
    pieces = {token: index for token, index in vocab.items() if kinds[index] == NORMAL}
    merges = [
        (scores[index], left, right)
        for token, index in pieces.items()
        for left, right in sorted(
            ((token[:cut], token[cut:]) for cut in range(1, len(token))), key=lambda pair: pieces.get(pair[0], -1)
        )
        if left in pieces and right in pieces
    ]
    merges.sort(key=lambda merge: -merge[0])
    unknown = next((token for token, index in vocab.items() if kinds[index] == UNKNOWN), None)
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocab,
            merges=[(left, right) for _, left, right in merges],
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefix = fields.get("tokenizer.ggml.add_space_prefix", True)
    tokenizer.normalizer = normalizers.Sequence(
        [*([normalizers.Prepend(SPACE)] if prefix else []), normalizers.Replace(" ", SPACE)]
    )
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, *([decoders.Strip(" ", left=1)] if prefix else [])])
    return tokenizer


def _add_ends(tokenizer: Tokenizer, fields: Mapping[str, Any], tokens: list[str]) -> None:
    """Put the begin and end tokens around an encoded text where the file asks for it, or its kind does by default."""
    from tokenizers.processors import ByteLevel, Sequence, TemplateProcessing

    kind, pre = fields["tokenizer.ggml.model"], fields.get("tokenizer.ggml.pre")
    begins = fields.get("tokenizer.ggml.add_bos_token", kind == "llama" or pre == "llama-bpe")
    wanted = {"bos": begins, "eos": fields.get("tokenizer.ggml.add_eos_token", False)}
    around = {}
    for name, want in wanted.items():
        token_id = fields.get(f"tokenizer.ggml.{name}_token_id")
        if want and token_id is not None:
            around[name] = (_token(tokens, name, token_id), int(token_id))
    if around:
        pieces = [*([around["bos"][0]] if "bos" in around else []), "$A"]
        pieces += [around["eos"][0]] if "eos" in around else []
        template = TemplateProcessing(single=" ".join(pieces), special_tokens=list(set(around.values())))
        tokenizer.post_processor = Sequence([ByteLevel(trim_offsets=False), template]) if kind == "gpt2" else template


def _token(tokens: list[str], name: str, token_id: Any) -> str:
    if not isinstance(token_id, int) or not 0 <= token_id < len(tokens):
        raise InputError(f"model (tokenizer.ggml.{name}_token_id)", token_id, f"an id from 0 to {len(tokens) - 1}")
    return tokens[token_id]
