"""One product of the model by itself: packed panels in compiled code, F.linear, and oneDNN's prepacked weights."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from core_engine.kernels.cpu.native import Batch, Layer, Model, library
from core_engine.kernels.cpu.packing import packed

SHAPES = {"q, k, v": (960, 576), "output": (576, 576), "gate, up": (3072, 576), "down": (576, 1536)}
WEIGHTS_BYTES = 160 * 2**20  # used in turn, so that none is in the cache: five times 32 MiB


@dataclass
class Products:
    """Different weights [out, depth] that fill `WEIGHTS_BYTES`, multiplied in turn with the same x [tokens, depth].

    Compiled code has no entry for a lone product: it runs a model without layers whose head is the weight, so looking
    up and normalizing the tokens is part of its time.
    """

    out: int
    depth: int
    tokens: int
    dtype: torch.dtype

    def __post_init__(self) -> None:
        self.count = max(2, WEIGHTS_BYTES // (self.out * self.depth * self.dtype.itemsize))
        torch.manual_seed(0)
        self.weights = [torch.randn(self.out, self.depth).to(self.dtype) for _ in range(self.count)]
        self.x = torch.randn(self.tokens, self.depth).to(self.dtype)
        self._prepare()

    def _prepare(self) -> None:
        self._lib, self._is_bf16 = library(), ctypes.c_int64(self.dtype is torch.bfloat16)
        norm, frequencies, no_layers = torch.ones(self.depth, dtype=self.dtype), torch.ones(1), (Layer * 1)()
        matrices, self._held = packed(self._lib, [[weight] for weight in self.weights], self.dtype)
        self._models = [
            Model(
                hidden=self.depth, heads=1, kv_heads=1, head_dim=2, inner=int(self._lib.trilemma_panel()),
                vocab=self.out, epsilon=1e-5, attention_factor=1.0, inverse_frequencies=frequencies.data_ptr(),
                embedding=self.x.data_ptr(),  # the tokens
                head=matrix, final_norm=norm.data_ptr(), layer=no_layers,
            )
            for (matrix,) in matrices
        ]  # fmt: skip
        every = np.arange(self.tokens, dtype=np.int32)
        ones, zeros = np.ones_like(every), np.zeros_like(every)
        self.result, threads = torch.empty(self.tokens, self.out), torch.get_num_threads()
        self._arrays = [every, ones, zeros, norm, frequencies, no_layers]
        self._batch = Batch(
            rows=self.tokens, tokens=self.tokens, wanted=self.tokens, token_ids=every.ctypes.data,
            starts=zeros.ctypes.data, counts=ones.ctypes.data, table_starts=zeros.ctypes.data,
            tables=zeros.ctypes.data, wanted_tokens=every.ctypes.data, num_blocks=1, block_size=1,
            logits=self.result.data_ptr(), threads=threads, one_call=True, fused=True, flash=True, kv_splits=1,
        )  # fmt: skip
        floats = self._lib.trilemma_workspace(ctypes.byref(self._models[0]), ctypes.byref(self._batch), self._is_bf16)
        self._workspace = torch.empty(floats)
        self._batch.workspace, self._batch.workspace_floats = self._workspace.data_ptr(), floats

    def compiled(self) -> torch.Tensor:
        """float32 [tokens, out] of the last weight, of tokens divided by their root mean square."""
        for model in self._models:
            self._lib.trilemma_step(ctypes.byref(model), ctypes.byref(self._batch), self._is_bf16)
        return self.result

    @torch.inference_mode()
    def plain(self) -> torch.Tensor:
        """F.linear with every weight; the last result."""
        for weight in self.weights:
            result = F.linear(self.x, weight)
        return result

    def prepacked(self) -> Callable[[], torch.Tensor] | None:
        """A function that does the same with oneDNN's weights; None where torch has no such product here."""
        try:
            packed = [torch.ops.mkldnn._reorder_linear_weight(weight, self.tokens) for weight in self.weights]
            torch.ops.mkldnn._linear_pointwise(self.x, packed[0], None, "none", [], "")
        except (RuntimeError, AttributeError):
            return None

        def run() -> torch.Tensor:
            with torch.inference_mode():
                for weight in packed:
                    result = torch.ops.mkldnn._linear_pointwise(self.x, weight, None, "none", [], "")
            return result

        return run

    def check(self) -> None:
        """The compiled product is F.linear's of the normalized tokens, to what the format allows."""
        normed = self.x.float() / (self.x.float().pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()
        wanted = normed @ self.weights[-1].float().t()
        torch.testing.assert_close(self.compiled(), wanted, rtol=1e-3, atol=1e-3 * self.depth**0.5)
