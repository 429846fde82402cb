"""Blocks of GGUF files against the gguf package's own reading of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, dequantize
from gguf.constants import GGML_QUANT_SIZES

from core_engine.quant.gguf_blocks import from_blocks, is_stored

KINDS = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]


def any_blocks(kind: str, rows: int, columns: int) -> np.ndarray:
    """Blocks of random bytes with finite scales: every code, sign and scale code occurs."""
    size, width = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    rng = np.random.default_rng(5)
    blocks = rng.integers(0, 256, (rows * columns // size, width), dtype=np.uint8)
    halves = {"Q6_K": [208], "Q8_0": [0], "Q4_0": [0], "Q5_0": [0]}.get(kind, [0, 2])
    for at in halves:
        numbers = rng.normal(0, 0.01, len(blocks)).astype(np.float16)
        blocks[:, at : at + 2] = numbers[:, None].view(np.uint8)
    return blocks.reshape(rows, -1)


@pytest.mark.parametrize("kind", KINDS)
def test_dequantized_equals_the_package_bit_for_bit(kind: str) -> None:
    stored = any_blocks(kind, 24, 512)
    matrix = from_blocks(stored, kind)
    theirs = torch.from_numpy(dequantize(stored, GGMLQuantizationType[kind]).astype(np.float32))
    assert matrix.shape == (24, 512)
    assert torch.equal(matrix.dequantized().view(torch.int32), theirs.view(torch.int32))
    assert int(matrix.codes.max()) < 2**matrix.bits


@pytest.mark.parametrize("kind", KINDS)
def test_the_matrix_does_not_share_the_files_memory(kind: str) -> None:
    stored = any_blocks(kind, 2, 256)
    matrix = from_blocks(stored, kind)
    before = matrix.dequantized().clone()
    stored[:] = 0
    assert torch.equal(matrix.dequantized(), before)


def test_floats_are_no_blocks() -> None:
    assert all(map(is_stored, KINDS))
    assert not any(map(is_stored, ("F32", "F16", "BF16")))
