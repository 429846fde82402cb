"""The decoder's step as one call into compiled code (kernels/cpu). Same weights and results as model/decoder.py.

Weights are packed once into panels of columns; whoever loaded the plain tensors lets them go: they are held once.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from core_engine.executor.flat_batch import FlatBatch, flat_batch
from core_engine.kernels.cpu.native import Batch, Layer, Matrix, Model, library
from core_engine.kernels.cpu.packing import packed
from core_engine.kernels.options import StepOptions
from core_engine.kv.cache import QuantizedCache
from core_engine.model.decoder import DecoderWeights, LayerWeights
from core_engine.model.rope import inverse_frequencies
from core_engine.model.spec import DecoderSpec
from core_engine.plan import Row
from core_engine.quant.describe import formats_of
from core_engine.quant.linear import unpacked
from core_engine.quant.matrix import QuantizedMatrix, rows_of


class PackedWeights:
    """The tensors that compiled code reads: products in panels, norms and biases as they were."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.device = torch.device("cpu")
        self._held: list[torch.Tensor] = []

    def tensors(self) -> list[torch.Tensor]:
        """Every tensor once."""
        return list(self._held)

    def num_bytes(self) -> int:
        """Bytes really held; a last panel that is not full is held in full."""
        return sum(tensor.untyped_storage().nbytes() for tensor in self._held)

    def keep(self, tensor: torch.Tensor | None) -> int | None:
        """Hold a tensor and return its address; None for None."""
        if tensor is None:
            return None
        self._held.append(tensor.contiguous())
        return self._held[-1].data_ptr()


class CompiledDecoder:
    """A decoder in packed weights. `step` computes whole rows; nothing of it is visible to torch's operators.

    kernels: the open library; by default this processor's.
    """

    def __init__(self, spec: DecoderSpec, weights: DecoderWeights, kernels: ctypes.CDLL | None = None) -> None:
        self._lib = kernels or library()
        self.spec = spec
        self.weights = PackedWeights(weights.dtype)
        self.formats = formats_of(weights)
        self._is_bf16 = ctypes.c_int64(weights.dtype is torch.bfloat16)
        keep = self.weights.keep
        matrices = self._pack(weights)
        # When set to zeros [len(operator_names())], every step adds the time of each kind of operator.
        self.operator_ns: NDArray[np.int64] | None = None
        self._layers = (Layer * spec.num_layers)(
            *[
                self._layer(layer, window or 0, matrices[7 * index : 7 * index + 7])
                for index, (layer, window) in enumerate(zip(weights.layers, spec.windows, strict=True))
            ]
        )
        # Not a weight: it follows from the config.
        self._frequencies = inverse_frequencies(spec.rope, spec.head_dim).float().contiguous()
        table, tied = weights.embedding, weights.head is weights.embedding
        self._model = Model(
            spec.num_layers, spec.hidden_size, spec.num_heads, spec.num_kv_heads, spec.head_dim, spec.intermediate_size,
            spec.vocab_size, spec.rms_norm_eps, spec.rope.attention_factor, self._frequencies.data_ptr(),
            keep(table) if isinstance(table, torch.Tensor) and not tied else None, matrices[-1],
            matrices[7 * spec.num_layers],
            keep(weights.final_norm), self._layers,
        )  # fmt: skip
        self.release_workspace()

    def release_workspace(self) -> None:
        """Let go of the memory that steps work in; the next one takes what it needs."""
        self._workspace = torch.empty(0)

    def operator_names(self) -> list[str]:
        """The kinds of operators of a step, in the order of `operator_ns`."""
        names: bytes = self._lib.trilemma_kinds()
        return names.decode().lower().split()

    def _pack(self, weights: DecoderWeights) -> list[Matrix]:
        """The matrices of all layers (q, k, v, output, gate, up, down), the head, and where tokens are looked up."""
        (heads, halves), hidden = self._part_sizes(), self.spec.hidden_size
        families: list[Sequence[torch.Tensor | QuantizedMatrix]] = []
        for layer in weights.layers:
            # A panel of gate and one of up in turns, so that a thread that has both can put them together.
            families += [[part] for part in rows_of(unpacked(layer.qkv), heads)] + [
                rows_of(unpacked(layer.output), [hidden])
            ]
            families += [rows_of(unpacked(layer.gate_up), halves), rows_of(unpacked(layer.down), [hidden])]
        families.append(rows_of(unpacked(weights.head), [self.spec.vocab_size]))
        if not isinstance(weights.embedding, torch.Tensor) and weights.head is not weights.embedding:
            families.append(rows_of(unpacked(weights.embedding), [self.spec.vocab_size]))
        found, held = packed(self._lib, families, self.weights.dtype)
        for tensor in held:
            self.weights.keep(tensor)
        return [matrix for family in found for matrix in family]

    def _part_sizes(self) -> tuple[tuple[int, int, int], tuple[int, int]]:
        """Outputs of query, key and value, and of gate and up."""
        spec = self.spec
        keys = spec.num_kv_heads * spec.head_dim
        return (spec.num_heads * spec.head_dim, keys, keys), (spec.intermediate_size, spec.intermediate_size)

    def _whole(self, columns: int) -> int:
        """Columns filled up to whole panels."""
        panel = int(self._lib.trilemma_panel())
        return -(-columns // panel) * panel

    def _parts(self, joined: torch.Tensor, *sizes: int) -> torch.Tensor:
        """Each of the parts of a product's outputs (rows, or a bias) filled up to whole panels."""
        blank = joined.new_zeros
        return torch.cat([
            torch.cat([part, blank(self._whole(len(part)) - len(part), *joined.shape[1:])])
            for part in joined.split(sizes)
        ])  # fmt: skip

    def _bias(self, bias: torch.Tensor | None, *sizes: int) -> int | None:
        return None if bias is None else self.weights.keep(self._parts(bias, *sizes))

    def _layer(self, layer: LayerWeights, window: int, matrices: Sequence[Matrix]) -> Layer:
        keep, hidden = self.weights.keep, self.spec.hidden_size
        heads, halves = self._part_sizes()
        q, k, v, output, gate, up, down = matrices
        return Layer(
            input_norm=keep(layer.input_norm), post_norm=keep(layer.post_norm),
            qkv=(Matrix * 3)(q, k, v), output=output, gate_up=(Matrix * 2)(gate, up), down=down,
            qkv_bias=self._bias(layer.qkv_bias, *heads), output_bias=self._bias(layer.output_bias, hidden),
            gate_up_bias=self._bias(layer.gate_up_bias, *halves), down_bias=self._bias(layer.down_bias, hidden),
            query_norm=keep(layer.query_norm), key_norm=keep(layer.key_norm), window=window,
        )  # fmt: skip

    def step(
        self,
        rows: Sequence[Row],
        wanted: Sequence[int],
        cache: torch.Tensor | QuantizedCache,
        options: StepOptions = StepOptions(),
        best: NDArray[np.int32] | None = None,
        logits: torch.Tensor | None = None,
        hidden: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """float32 logits [len(wanted), vocab_size] of the flat token places `wanted`; KV of all rows is written.

        cache [num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim], or quantized. best [len(wanted)] receives
        the lowest id of each largest logit, `logits` the logits, `hidden`, float32 [tokens, hidden_size], the hidden
        states of all tokens after the final norm, where they are given. Runs on torch's number of threads.
        """
        flat, places = flat_batch(rows), array("i", wanted)
        if logits is None:
            logits = torch.empty(len(wanted), self.spec.vocab_size)
        arrays = (flat.tokens, flat.starts, flat.counts, flat.table_starts, flat.tables, places)
        batch = Batch(
            len(rows), len(flat.tokens), len(wanted), *[numbers.buffer_info()[0] for numbers in arrays],
            *places_of(cache), self._workspace.data_ptr(), logits.data_ptr(),
            None if best is None else best.ctypes.data, torch.get_num_threads(),
            None if self.operator_ns is None else self.operator_ns.ctypes.data,
            options.one_call, options.fused_ops, options.flash, options.kv_splits, self._workspace.numel(),
            *form_of(cache, flat), None if hidden is None else hidden.data_ptr(),
        )  # fmt: skip
        floats = self._run(batch)
        if floats > batch.workspace_floats:  # then nothing was computed
            self.release_workspace()
            self._workspace = torch.empty(floats)
            batch.workspace, batch.workspace_floats = self._workspace.data_ptr(), floats
            self._run(batch)
        return logits

    def _run(self, batch: Batch) -> int:
        """Compute the batch if its workspace has the returned number of floats."""
        return int(self._lib.trilemma_step(ctypes.byref(self._model), ctypes.byref(batch), self._is_bf16))


def places_of(cache: torch.Tensor | QuantizedCache) -> tuple[int, int, int]:
    """Blocks, tokens of a block and address of a cache, as Batch has them."""
    if isinstance(cache, QuantizedCache):
        return cache.num_blocks, cache.block_size, cache.raw.data_ptr()
    return cache.shape[2], cache.shape[3], cache.data_ptr()


def form_of(cache: torch.Tensor | QuantizedCache, flat: FlatBatch) -> tuple[int, ...]:
    """The format of a cache as Batch has it, with the address of the rows' slots."""
    if not isinstance(cache, QuantizedCache):
        return 8 * cache.dtype.itemsize, 0, 0, 0, 0, 0
    form = cache.form.blocks
    return (
        form.bits, int(form.key_axis == "token"), cache.layout.keys.outliers, cache.sinks,
        flat.slots.buffer_info()[0], cache.open.data_ptr(),
    )  # fmt: skip
