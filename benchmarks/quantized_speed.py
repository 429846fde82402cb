"""Steps of the embedded model with weights in few bits, each against bf16, in turn and in one process.

Weights are rounded to nearest here: only speed is looked at. Bytes are what a step of one token reads of the packed
weights (each once); their share is of the read bandwidth measured before and after.
`python benchmarks/quantized_speed.py --rounds 9`
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

import numpy as np
import torch
from interleave import interleaved, markdown, ratio
from model_steps import BLOCK_SIZE, decodes, prefill
from peer_engines.ceilings import measure

from core_engine.config import EngineConfig
from core_engine.kernels.options import StepOptions
from core_engine.model.compiled import CompiledDecoder
from core_engine.model.decoder import Decoder, DecoderWeights, LayerWeights
from core_engine.model.loader import load_model
from core_engine.model.spec import DecoderSpec
from core_engine.plan import Row
from core_engine.quant.linear import AnyWeight, unpacked
from core_engine.quant.matrix import Joined, QuantizedMatrix, Weight, rows_of

Quantize = Callable[[torch.Tensor], QuantizedMatrix]
CONTEXT = 256
PRODUCTS = ("qkv", "output", "gate_up", "down")
MIB = 2**20


def symmetric(bits: int, group: int | None, activation_group: int | None = None) -> Quantize:
    """Round to nearest with a scale for `group` columns (None: a row)."""

    def quantize(weight: torch.Tensor) -> QuantizedMatrix:
        out, depth = weight.shape
        width, half = group or depth, 2 ** (bits - 1)
        shares = weight.float().view(out, -1, width)
        scale = (shares.abs().amax(dim=-1) / (half - 1)).clamp_min(1e-8).half()
        codes = torch.round(shares / scale.float()[..., None]).clamp(-half, half - 1) + half
        return QuantizedMatrix(
            bits, width, codes.to(torch.uint8).view(out, depth), scale, activation_group=activation_group
        )

    return quantize


def with_minimum(bits: int, group: int) -> Quantize:
    """Round to nearest between the least and the largest number of a group."""

    def quantize(weight: torch.Tensor) -> QuantizedMatrix:
        out, depth = weight.shape
        shares = weight.float().view(out, -1, group)
        least = shares.amin(dim=-1).half()
        scale = ((shares.amax(dim=-1) - least.float()) / (2**bits - 1)).clamp_min(1e-8).half()
        codes = torch.round((shares - least.float()[..., None]) / scale.float()[..., None]).clamp(0, 2**bits - 1)
        return QuantizedMatrix(bits, group, codes.to(torch.uint8).view(out, depth), scale, minimum=least)

    return quantize


W8 = symmetric(8, None)
FORMATS: dict[str, tuple[Quantize, Quantize | None]] = {
    "w8a16": (W8, None),
    "w8a16, int8 head": (W8, W8),
    "w4a16 g64": (symmetric(4, 64), None),
    "w4a16 g64, int8 head": (symmetric(4, 64), W8),
    "w4a16 g32 with minimum (Q4_1), Q8_0 head": (with_minimum(4, 32), symmetric(8, 32)),
    "6-bit g16, int8 head": (symmetric(6, 16), W8),
    "w8a8 g32": (symmetric(8, None, 32), None),
}


def quantized(spec: DecoderSpec, weights: DecoderWeights, body: Quantize, head: Quantize | None) -> DecoderWeights:
    """The weights with every linear layer by `body`, and the tied head by `head`."""
    keys = spec.num_kv_heads * spec.head_dim
    sizes = {
        "qkv": (spec.num_heads * spec.head_dim, keys, keys),
        "gate_up": (spec.intermediate_size,) * 2,
        "output": (spec.hidden_size,),
        "down": (spec.hidden_size,),
    }

    def of(weight: AnyWeight, rows: Sequence[int]) -> Weight:
        parts = [body(part) for part in rows_of(unpacked(weight), rows) if isinstance(part, torch.Tensor)]
        return parts[0] if len(parts) == 1 else Joined(tuple(parts))

    def layer_of(layer: LayerWeights) -> LayerWeights:
        qkv, output, gate_up, down = (of(getattr(layer, name), sizes[name]) for name in PRODUCTS)
        return replace(layer, qkv=qkv, output=output, gate_up=gate_up, down=down)

    table = weights.embedding
    if head is not None and isinstance(table, torch.Tensor):
        table = head(table)
    return DecoderWeights(table, tuple(map(layer_of, weights.layers)), weights.final_norm, table)


class Arm:
    """A decoder with a cache of its own dtype, and the time of its operators."""

    def __init__(self, spec: DecoderSpec, weights: DecoderWeights, cache: torch.Tensor) -> None:
        self.decoder, self._cache = CompiledDecoder(spec, weights), cache
        self.names = self.decoder.operator_names()
        self.products_s: list[float] = []

    def step(self, rows: Sequence[Row], wanted: Sequence[int]) -> Callable[[], None]:
        """A function that computes one step and notes how long its linear layers took."""

        def run() -> None:
            self.decoder.operator_ns = np.zeros(len(self.names), dtype=np.int64)
            self.decoder.step(rows, wanted, self._cache, StepOptions())
            spent = dict(zip(self.names, self.decoder.operator_ns.tolist(), strict=True))
            self.products_s.append(sum(spent[name] for name in PRODUCTS) / 1e9)

        return run


def cases() -> dict[str, tuple[tuple[Row, ...], list[int]]]:
    """Rows and wanted logits by name."""
    steps = {f"decode {batch}": decodes(batch, CONTEXT) for batch in (1, 8, 32)}
    found = {name: (rows, list(range(len(rows)))) for name, rows in steps.items()}
    return found | {"prefill 512": (prefill(512), [511])}


def compare(case: str, arms: dict[str, Arm], rounds: int, read_bytes_per_s: float) -> list[list[str]]:
    """A row of the table for each format."""
    rows, wanted = cases()[case]
    for arm in arms.values():
        arm.products_s.clear()
    seconds = interleaved({name: arm.step(rows, wanted) for name, arm in arms.items()}, rounds)
    table = []
    for name, arm in arms.items():
        whole, products = (
            ratio(a, b) for a, b in (
                (seconds["bf16"], seconds[name]),
                (arms["bf16"].products_s[1:], arm.products_s[1:]),
            )
        )  # fmt: skip
        size = arm.decoder.weights.num_bytes()
        share = f"{size / median(seconds[name]) / read_bytes_per_s:.0%}" if case == "decode 1" else ""
        table.append([
            case, name, f"{median(seconds[name]) * 1e3:.2f}", f"{size / 1e6:.1f}", share,
            *(f"{of['median']:.2f} [{of['low']:.2f}, {of['high']:.2f}]" for of in (whole, products)),
        ])  # fmt: skip
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--formats", nargs="*", default=list(FORMATS))
    parser.add_argument("--cases", nargs="*", default=list(cases()))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    loaded = load_model(EngineConfig.from_settings({"dtype": "bf16", "kernels": "torch", "device": "cpu"})).decoder
    assert isinstance(loaded, Decoder)
    spec, weights = loaded.spec, loaded.weights
    blocks = 32 * CONTEXT // BLOCK_SIZE + 1
    cache = torch.full((spec.num_layers, 2, blocks, BLOCK_SIZE, spec.num_kv_heads, spec.head_dim), 0.01).bfloat16()
    arms = {"bf16": Arm(spec, weights, cache)}
    for name in given.formats:
        arms[name] = Arm(spec, quantized(spec, weights, *FORMATS[name]), cache)
    del weights
    gc.collect()
    reads = [measure(given.threads, ())["read_bytes_per_s"]]
    table = [row for case in given.cases for row in compare(case, arms, given.rounds, reads[0])]
    reads.append(measure(given.threads, ())["read_bytes_per_s"])
    print(f"Read bandwidth before and after: {reads[0] / 1e9:.1f} and {reads[1] / 1e9:.1f} GB/s")
    header = ["step", "weights", "ms", "MB held", "share of read bandwidth", "times bf16's speed", "of linear layers"]
    print(markdown(header, table))


if __name__ == "__main__":
    main()
