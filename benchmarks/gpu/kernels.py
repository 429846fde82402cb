"""Every kernel against torch on the device itself: whole steps over each KV format, quantized products, sampling."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch

from core_engine.executor.batch import build_batch
from core_engine.executor.choices import Choice
from core_engine.executor.device_batch import Tables, TileRule, device_batch
from core_engine.executor.device_choices import choose_on_device, uniforms_here
from core_engine.kernels.options import StepOptions
from core_engine.kernels.triton.attention import block_q_for
from core_engine.kv.cache import QuantizedCache
from core_engine.kv.format import KVFormat
from core_engine.model.decoder import Decoder, assemble
from core_engine.model.device_weights import on_device
from core_engine.model.spec import DecoderSpec
from core_engine.model.triton_decoder import TritonDecoder
from core_engine.plan import GREEDY, Row, RowSampling
from core_engine.quant.linear import PackedMatrix
from core_engine.quant.matrix import QuantizedMatrix
from core_engine.sampling import choose_token
from core_engine.sampling_params import SamplingParams
from ledger.model_spec import ModelSpec
from ledger.weights import parameter_shapes

BLOCK = 16
# The largest difference over the largest number of the reference. Activations are rounded at every operator; a wrong
# mask, block or scale is off by tenths and more.
TOLERANCE = {torch.float32: 2e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}
# How much more where KV is quantized: numbers that differ in their last bit may round to neighbouring codes.
FLIPS = {"int8": 2, "int4": 5, "int2": 20}
FORMS = (
    KVFormat("int8"), KVFormat("int4"), KVFormat("int4", "token"), KVFormat("int4", protect="outliers"),
    KVFormat("int4", protect="sinks"), KVFormat("int2"),
)  # fmt: skip
HEADS = ((64, 3, 1), (128, 4, 1), (128, 4, 2), (96, 2, 1), (256, 8, 1))  # head size, query heads, KV heads
FAMILIES: tuple[dict[str, Any], ...] = (
    {"model_type": "llama"},
    {"model_type": "mistral", "sliding_window": 21},
    {"model_type": "qwen3"},
)
# Rows of two steps, (start, new tokens): prompts, then newest tokens, drafts and a chunk up to the end of a block.
STEPS = (((0, 40), (0, 16), (0, 7), (0, 1)), ((40, 1), (16, 1), (7, 4), (1, 15)))


def kernel_checks(device: torch.device, *, most: int | None = None, limit_s: float = float("inf")) -> dict[str, Any]:
    """{"checks": [{"what", "error", "tolerance"}...], "passed", "all": whether none was left out}.

    most: only so many of each kind, for a dry run; after limit_s seconds no other one begins.
    """
    dtypes = [torch.bfloat16, torch.float16, torch.float32] if device.type == "cuda" else [torch.float16, torch.float32]
    ends_s, checks, complete = time.perf_counter() + limit_s, [], most is None
    for kind in (_draws(device), _products(device, dtypes), _steps(device, dtypes)):
        for check in islice(kind, most):
            checks.append(check)
            if time.perf_counter() > ends_s:
                complete = False
                break
    return {"checks": checks, "passed": all(check["error"] <= check["tolerance"] for check in checks), "all": complete}


def _checked(what: str, ours: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> dict[str, Any]:
    error = float((ours.float() - wanted.float()).abs().max() / wanted.float().abs().max())
    return {"what": what, "error": error if error == error else float("inf"), "tolerance": tolerance}


def _steps(device: torch.device, dtypes: list[torch.dtype]) -> Iterator[dict[str, Any]]:
    """Two steps of a small decoder in our kernels and in torch's operators, each over a cache of its own."""
    for index, (head_dim, heads, kv_heads) in enumerate(HEADS):
        for dtype in dtypes:
            if dtype is torch.float32 and index:
                continue  # without tensor cores, and long to compile: one head size
            plain = [KVFormat({torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}[dtype])]
            if device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9):
                plain.append(KVFormat("fp8"))
            forms = [*plain, *(FORMS if dtype is not torch.float16 else FORMS[:2])]
            for place, form in enumerate(forms):
                family = FAMILIES[(index + place) % len(FAMILIES)]
                config = {
                    **family, "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2, "vocab_size": 320,
                    "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim,
                    "max_position_embeddings": 512,
                }  # fmt: skip
                for options in (StepOptions(), StepOptions(fused_ops=False, kv_splits=4)):
                    ours, wanted = _two_steps(config, dtype, form, options, device)
                    said = f"{family['model_type']}, {dtype}, heads {heads}/{kv_heads} of {head_dim}, KV {form.text()}"
                    yield _checked(f"{said}, {options}", ours, wanted, TOLERANCE[dtype] * FLIPS.get(form.name, 1))


def _two_steps(
    config: dict[str, Any], dtype: torch.dtype, form: KVFormat, options: StepOptions, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states of the last step from both."""
    torch.manual_seed(0)
    spec = DecoderSpec.from_config(config)
    shapes = parameter_shapes(ModelSpec.from_config(config))
    named = {name: (torch.randn(shape) * 0.08).to(dtype).to(device) for name, shape in shapes.items()}
    named |= {name: tensor.abs() + 0.5 for name, tensor in named.items() if name.endswith("norm.weight")}
    decoders = TritonDecoder(spec, assemble(spec, dict(named))), Decoder(spec, assemble(spec, dict(named)))
    count, blocks = len(STEPS[0]), 5
    caches = [_cache(spec, form, count * blocks + 1, count, device) for _ in range(2)]
    tables, ours, wanted = Tables(), torch.empty(0), torch.empty(0)
    group = spec.num_heads // spec.num_kv_heads
    sizes = [block_q_for(most, group, BLOCK, form.is_quantized, spec.head_dim) for most in (4, 512)]
    rule = TileRule(4, *sizes, BLOCK if form.is_quantized else None)
    for step in STEPS:
        rows = [
            Row(f"r{at}", start, tuple((7 * at + start + i) % 300 for i in range(new)),
                tuple(range(at, count * blocks, count)), new > 1, GREEDY, slot=at)
            for at, (start, new) in enumerate(step)
        ]  # fmt: skip
        padding = count * blocks
        batch = device_batch(rows, [0], tables, rule, block_size=BLOCK, padding_block=padding, device=device)
        ours = decoders[0].step(batch, caches[0], options)
        reference = build_batch(rows, BLOCK, device, padding_block=padding, windows=spec.windows)
        wanted = decoders[1].forward(reference.token_ids, reference.positions, caches[1], reference.attention)
    return ours, wanted


def _cache(
    spec: DecoderSpec, form: KVFormat, blocks: int, slots: int, device: torch.device
) -> torch.Tensor | QuantizedCache:
    if form.is_quantized:
        cache = QuantizedCache(spec, form, blocks, BLOCK, slots, device)
        for tensor in cache.tensors():
            tensor.zero_()
        return cache
    shape = (spec.num_layers, 2, blocks, BLOCK, spec.num_kv_heads, spec.head_dim)
    return torch.zeros(shape, device=device).to(form.dtype)


def _products(device: torch.device, dtypes: list[torch.dtype]) -> Iterator[dict[str, Any]]:
    """Quantized products of a few and of many tokens."""
    torch.manual_seed(1)
    out, depth = 320, 512
    for dtype in dtypes:
        for name, matrix in _matrices(out, depth, device):
            ours, reference = on_device(matrix), PackedMatrix.of(matrix)
            for tokens in (1, 7, 33, 200):
                x = torch.randn(tokens, depth, device=device).to(dtype)
                wanted = reference.product(x.float())
                found = ours.product(x)  # type: ignore[union-attr]
                yield _checked(f"{name}, {dtype}, {tokens} tokens", found, wanted, TOLERANCE[dtype])


def _matrices(out: int, depth: int, device: torch.device) -> Iterator[tuple[str, QuantizedMatrix]]:
    for bits, group, kind in (
        (4, 64, "symmetric"), (4, 32, "minimum"), (4, 128, "zero"), (8, depth, "symmetric"), (8, depth, "w8a8"),
    ):  # fmt: skip
        codes = torch.randint(0, 2**bits, (out, depth), dtype=torch.uint8).to(device)
        scale = (torch.rand(out, depth // group) * 0.02 + 0.01).half().to(device)
        zero = torch.randint(0, 2**bits, scale.shape, dtype=torch.uint8).to(device) if kind == "zero" else None
        minimum = -scale * 7 if kind == "minimum" else None
        share = 32 if kind == "w8a8" else None
        yield (
            f"{bits} bits in {group}, {kind}",
            QuantizedMatrix(bits, group, codes, scale, zero=zero, minimum=minimum, activation_group=share),
        )


def _draws(device: torch.device) -> Iterator[dict[str, Any]]:
    """Tokens drawn on the device against the definition: the share that differs."""
    torch.manual_seed(2)
    for params in (
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.7, top_k=40, top_p=0.9),
        SamplingParams(temperature=1.3, min_p=0.02, top_p=0.95),
    ):
        logits = torch.randn(32, 4000, device=device) * 3
        samplings = [RowSampling(params, seed=at) for at in range(len(logits))]
        choices = [Choice(at, sampling, 11) for at, sampling in enumerate(samplings)]
        found = choose_on_device(logits, choices, uniforms_here()).cpu().numpy()
        wanted = np.array([choose_token(row, sampling, 11) for row, sampling in zip(logits, samplings, strict=True)])
        yield {"what": f"draws, {params}", "error": float((found != wanted).mean()), "tolerance": 0.05}
