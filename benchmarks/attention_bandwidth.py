"""Decode attention alone: the share of the measured read bandwidth at which it reads its keys and values.

    python benchmarks/attention_bandwidth.py [--rounds 15] [--quick] [--formats] [--json FILE]

The embedded model's heads (9 of queries, 3 of keys and values, 64 wide) and its 30 layers, or as many more as make the
cache four times as large as the last-level cache, so that no layer is still there when its turn comes again. Blocks lie
as the pool hands them to prompts, one after another, or all over it with --scattered. A round times, in turn: a sum
over 512 MB (the read bandwidth of `trilemma calibrate`), the compiled attention over all layers (kv_splits auto, then
1), and torch's (blocks gathered, then scaled_dot_product_attention). Their results are compared before anything is
timed.

--formats compares KV formats instead: one model's rows and layers, a cache in each format with the same random content,
and in every round each of them in turn.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import torch
from interleave import Arm, interleaved, markdown, ratio

from core_engine.environment import cpu_name, dtype_name, resolve_threads
from core_engine.executor.batch import build_batch
from core_engine.executor.flat_batch import flat_batch
from core_engine.kernels.cpu.native import Batch, Layer, Model, library
from core_engine.kernels.options import AUTO_SPLITS
from core_engine.kernels.reference import paged_attention
from core_engine.kv.cache import QuantizedCache
from core_engine.kv.format import KVFormat
from core_engine.memory_readings import prefer_huge_pages
from core_engine.model.compiled import form_of, places_of
from core_engine.plan import Row
from experiments.calibrate import COPY_BYTES

HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE, LEAST_LAYERS = 9, 3, 64, 16, 30
CASES = ((32, 256), (8, 2048), (1, 2048), (1, 8192))  # sequences, context
ARMS = ("auto", "unsplit", "torch")  # kv_splits auto, kv_splits 1, torch's operators
CACHE_TIMES = 4  # the KV is at least so many times as large as the last-level cache
GOAL = 0.60
FORMAT_CASES = ((8, 2048),)
FORMATS = [KVFormat(name) for name in ("bf16", "fp32", "int8", "int4", "int2")] + [KVFormat("int4", "token")]
FORMAT_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 3e-2}  # torch rounds queries, weights and results to bf16, we do not


def last_level_cache_bytes() -> int:
    """The largest cache that the system tells of; 32 MiB where it tells of none."""
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max((int(size[:-1]) * {"K": 2**10, "M": 2**20}[size[-1]] for size in sizes), default=32 * 2**20)


@dataclass
class Attention:
    """The KV of one case, and the operator over all its layers as compiled code and as torch computes it.

    form: of the cache, elements of `dtype` by default. Quantized caches hold one random block, over and over.
    """

    sequences: int
    context: int
    dtype: torch.dtype
    scattered: bool
    form: KVFormat | None = None

    def __post_init__(self) -> None:
        a_layer = 2 * self.sequences * self.context * KV_HEADS * HEAD_DIM * self.dtype.itemsize
        self.layers = max(LEAST_LAYERS, math.ceil(CACHE_TIMES * last_level_cache_bytes() / a_layer))
        self.kv_bytes = self.layers * a_layer
        blocks = list(range(self.sequences * -(-self.context // BLOCK_SIZE)))
        if self.scattered:
            random.Random(0).shuffle(blocks)
        share = len(blocks) // self.sequences
        self.rows = [
            Row(f"r{i}", self.context - 1, (0,), tuple(blocks[i * share : (i + 1) * share]), is_prefill=False, slot=i)
            for i in range(self.sequences)
        ]
        generator = torch.Generator().manual_seed(0)
        self.cache = self._filled(len(blocks) + 1, generator)
        self.query = torch.randn(self.sequences, HEADS, HEAD_DIM, generator=generator)
        self.out = torch.empty_like(self.query)
        self._prepare_compiled()
        if self.form is None:
            self._prepare_torch()

    def _filled(self, blocks: int, generator: torch.Generator) -> torch.Tensor | QuantizedCache:
        if self.form is not None:
            sizes = SimpleNamespace(num_layers=self.layers, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM)
            cache = QuantizedCache(sizes, self.form, blocks, BLOCK_SIZE, self.sequences, torch.device("cpu"))
            prefer_huge_pages(cache.raw)
            cache.open.normal_(generator=generator)
            one = torch.randn(2, 1, BLOCK_SIZE, KV_HEADS, HEAD_DIM, generator=generator)
            cache.raw[:] = cache.layout.quantize(*one)
            self.kv_bytes = self.layers * (blocks - 1) * cache.layout.block_bytes
            return cache
        cache = torch.empty(self.layers, 2, blocks, BLOCK_SIZE, KV_HEADS, HEAD_DIM, dtype=self.dtype)
        prefer_huge_pages(cache)  # as the engine's
        for layer in cache:
            layer.copy_(torch.randn(layer.shape, generator=generator))
        return cache

    def _prepare_compiled(self) -> None:
        self._lib, threads = library(), torch.get_num_threads()
        layers = (Layer * self.layers)()  # attention looks at a layer's window alone, and 0 is none
        self._model = Model(
            layers=self.layers, hidden=HEADS * HEAD_DIM, heads=HEADS, kv_heads=KV_HEADS, head_dim=HEAD_DIM, layer=layers
        )
        self._flat = flat = flat_batch(self.rows)
        arrays = (flat.tokens, flat.starts, flat.counts, flat.table_starts, flat.tables)
        self._batch = Batch(
            self.sequences, self.sequences, 0, *[numbers.buffer_info()[0] for numbers in arrays], None,
            *places_of(self.cache), None, None, None, threads, None,
            True, True, True, AUTO_SPLITS, 0, *form_of(self.cache, self._flat),
        )  # fmt: skip
        floats = self._lib.trilemma_workspace(
            ctypes.byref(self._model), ctypes.byref(self._batch), ctypes.c_int64(self.dtype is torch.bfloat16)
        )
        self._workspace = torch.empty(floats)
        self._batch.workspace = self._workspace.data_ptr()

    def compiled(self, kv_splits: int = AUTO_SPLITS) -> torch.Tensor:
        """The last layer's result [sequences, heads, head_dim], float32."""
        self._batch.kv_splits = kv_splits
        self._lib.trilemma_attention(
            ctypes.byref(self._model), ctypes.byref(self._batch), ctypes.c_int64(self.dtype is torch.bfloat16),
            ctypes.c_void_p(self.query.data_ptr()), ctypes.c_void_p(self.out.data_ptr()),
            ctypes.c_int64(0), ctypes.c_int64(self.layers),
        )  # fmt: skip
        return self.out

    def _prepare_torch(self) -> None:
        padding = self.cache.shape[2] - 1
        batch = build_batch(self.rows, BLOCK_SIZE, torch.device("cpu"), padding_block=padding)
        self._view = batch.attention.views[None]
        self._torch_query = self.query.to(self.dtype)

    @torch.inference_mode()
    def torch(self) -> torch.Tensor:
        """The same in the cache's dtype."""
        for keys, values in self.cache:
            result = paged_attention(self._torch_query, keys, values, self._view, HEAD_DIM**-0.5)
        return result

    def check(self) -> None:
        """Both results agree, or there is nothing to time."""
        torch.testing.assert_close(
            self.compiled(), self.torch().float(), rtol=TOLERANCE[self.dtype], atol=TOLERANCE[self.dtype]
        )


def measure(case: Attention, read: Arm, read_bytes: int, rounds: int) -> dict[str, Any]:
    """One row of the table: bytes/s of the read, and what share of it each arm reaches, of the same round."""
    case.check()
    arms = {"read": read, "auto": case.compiled, "unsplit": lambda: case.compiled(1), "torch": case.torch}
    seconds = interleaved(arms, rounds)
    bytes_ratio = case.kv_bytes / read_bytes
    return {
        "sequences": case.sequences, "context": case.context, "dtype": dtype_name(case.dtype), "layers": case.layers,
        "kv_bytes": case.kv_bytes, "rounds": rounds,
        "read_bytes_per_s": read_bytes / median(seconds["read"]),
        "ms": {arm: 1e3 * median(seconds[arm]) for arm in ARMS},
        "share": {
            arm: {name: bytes_ratio * value for name, value in ratio(seconds["read"], seconds[arm]).items()}
            for arm in ARMS
        },
    }  # fmt: skip


def measure_formats(
    sequences: int, context: int, read: Arm, read_bytes: int, rounds: int, scattered: bool
) -> list[dict[str, Any]]:
    """A row for every KV format of one case, timed in the same rounds: bytes, ms, and the time as a share of bf16's."""
    cases = {
        form.text(): Attention(sequences, context, FORMAT_DTYPES.get(form.name, torch.float32), scattered, form)
        if form.is_quantized
        else Attention(sequences, context, FORMAT_DTYPES[form.name], scattered)
        for form in FORMATS
    }
    seconds = interleaved({"read": read, **{name: case.compiled for name, case in cases.items()}}, rounds)
    return [
        {
            "sequences": sequences, "context": context, "format": name, "layers": case.layers,
            "kv_bytes": case.kv_bytes,
            "ms": 1e3 * median(seconds[name]), "time_of_bf16": ratio(seconds[name], seconds["bf16"]),
            "share": case.kv_bytes / read_bytes * ratio(seconds["read"], seconds[name])["median"],
        }
        for name, case in cases.items()
    ]  # fmt: skip


def format_table(rows: list[dict[str, Any]]) -> str:
    """The rows of formats as Markdown."""
    header = ["sequences x context", "KV", "MB", "ms", "time, bf16 = 1", "share of read"]
    return markdown(header, [
        [
            f"{row['sequences']} x {row['context']:,}", row["format"], f"{row['kv_bytes'] / 1e6:.0f}",
            f"{row['ms']:.1f}", "{median:.2f} ({low:.2f} to {high:.2f})".format(**row["time_of_bf16"]),
            f"{row['share']:.0%}",
        ]
        for row in rows
    ])  # fmt: skip


def results(cases: tuple[tuple[int, int], ...], rounds: int, scattered: bool) -> Iterator[dict[str, Any]]:
    """Every case in both formats."""
    values = torch.ones(COPY_BYTES["cpu"] // 4)
    for dtype in (torch.bfloat16, torch.float32):
        for sequences, context in cases:
            yield measure(Attention(sequences, context, dtype, scattered), values.sum, 4 * len(values), rounds)


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    header = ["sequences x context", "KV", "layers", "MB", "read GB/s", "ms", "share of read", "kv_splits 1", "torch"]
    lines = []
    for row in rows:
        auto, unsplit, by_torch = (row["share"][arm] for arm in ARMS)
        lines.append([
            f"{row['sequences']} x {row['context']:,}", row["dtype"], str(row["layers"]),
            f"{row['kv_bytes'] / 1e6:.0f}", f"{row['read_bytes_per_s'] / 1e9:.1f}", f"{row['ms']['auto']:.1f}",
            f"{auto['median']:.0%} ({auto['low']:.0%} to {auto['high']:.0%})",
            f"{unsplit['median']:.0%}", f"{by_torch['median']:.0%}",
        ])  # fmt: skip
    return markdown(header, lines)


def main() -> None:
    """Print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=0, help="0: as the engine uses")
    parser.add_argument("--quick", action="store_true", help="the two cases of the goal, 5 rounds")
    parser.add_argument("--scattered", action="store_true", help="blocks all over the pool, none beside the one before")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--formats", action="store_true", help="KV formats beside one another")
    options = parser.parse_args()
    torch.set_num_threads(resolve_threads(options.threads))
    cases, rounds = (CASES[:2], 5) if options.quick else (CASES, options.rounds)
    if options.formats:
        values = torch.ones(COPY_BYTES["cpu"] // 4)
        arm = (values.sum, 4 * len(values), rounds, options.scattered)
        rows = [row for case in FORMAT_CASES for row in measure_formats(*case, *arm)]
    else:
        rows = list(results(cases, rounds, options.scattered))
    text = format_table(rows) if options.formats else table(rows)
    print(f"{cpu_name()}, {torch.get_num_threads()} threads, torch {torch.__version__}; goal {GOAL:.0%}\n\n{text}")
    if options.json:
        options.json.write_text(
            json.dumps({"cpu": cpu_name(), "threads": torch.get_num_threads(), "rows": rows}, indent=1)
        )


if __name__ == "__main__":
    main()
