"""Numeric questions about the roofline: how long a step takes at least, what bounds it, and from which batch on."""

from __future__ import annotations

from functools import lru_cache
from random import Random

from experiments.interview.numeric.kind import Kind, Values
from experiments.interview.numeric.memory import preset
from ledger.hardware import Accelerator, accelerator
from ledger.kv_cache import kv_bytes_per_sequence
from ledger.model_spec import ModelSpec
from ledger.operators import Operator, StepCosts, experts_touched
from ledger.roofline import attention_intensity, crossover_batch, step_time_s

MODELS = ("llama-3.1-8b", "qwen2.5-7b", "llama-2-13b", "mistral-nemo-12b", "phi-4", "qwen2.5-32b")
CARDS = ("a100-sxm-80gb", "h100-sxm", "h200-sxm", "mi300x")
# Format of the weights -> (bytes of a weight, what it is multiplied in)
MULTIPLIED = {"bf16": (2.0, "bf16"), "w8a8": (1.0, "int8"), "w4a16": (0.5, "bf16")}


@lru_cache(maxsize=64)
def _costs(model: str, weights: str = "bf16") -> StepCosts:
    return StepCosts(preset(model), weights)


@lru_cache(maxsize=2048)
def _step(model: str, phase: str, batch: int, seq_len: int) -> tuple[Operator, ...]:
    return _costs(model).operators(phase, batch, seq_len)


@lru_cache(maxsize=64)
def _crossover(model: str, weights: str, card: str) -> int | None:
    return crossover_batch(_costs(model, weights), _device(card))


def _device(card: str) -> Accelerator:
    return accelerator(card)


def _weights_read(model: str) -> float:
    """Bytes of weights that a decode step reads: of the embedding only the rows it looks up."""
    return sum(operator.weight_bytes for operator in _step(model, "decode", 1, 1024))


def _draw_decode(rng: Random) -> Values:
    return {
        "model": rng.choice(MODELS), "card": rng.choice(CARDS), "batch": 1,
        "seq_len": rng.choice((16384, 32768, 65536, 131072)),
    }  # fmt: skip


def _decode_ms(values: Values) -> float:
    found = _step(values["model"], "decode", values["batch"], values["seq_len"])
    return step_time_s(found, _device(values["card"])) * 1e3


def _bandwidth(values: Values) -> float:
    return _device(values["card"]).bandwidth_bytes_per_s


def _kv_bytes(values: Values) -> int:
    return kv_bytes_per_sequence(preset(values["model"]), values["seq_len"])


def _by_compute_ms(values: Values) -> float:
    flops = sum(operator.flops for operator in _step(values["model"], "decode", values["batch"], values["seq_len"]))
    return flops / _device(values["card"]).rate("bf16")[1] * 1e3


def _shown_decode(values: Values) -> Values:
    weights, kv = _weights_read(values["model"]), _kv_bytes(values) * values["batch"]
    spec = preset(values["model"])
    return {
        "label": _device(values["card"]).label, "bandwidth_tb": _bandwidth(values) / 1e12, "weights_gb": weights / 1e9,
        "kv_gb": kv / 1e9, "sum_gb": (weights + kv) / 1e9, "one_kv_gb": _kv_bytes(values) / 1e9,
        "tflops": _device(values["card"]).rate("bf16")[1] / 1e12, "by_compute_ms": _by_compute_ms(values),
        "by_hand_ms": (weights + kv) / _bandwidth(values) * 1e3, "layers": spec.num_layers,
        "kv_heads": spec.num_kv_heads, "heads": spec.num_heads, "head_dim": spec.head_dim,
    }  # fmt: skip


def _draw_batch(rng: Random) -> Values | None:
    values: Values = {
        "model": rng.choice(MODELS), "card": rng.choice(CARDS), "batch": rng.choice((4, 8, 16, 32)),
        "seq_len": rng.choice((2048, 4096, 8192, 16384)),
    }  # fmt: skip
    needed = _weights_read(values["model"]) + values["batch"] * _kv_bytes(values)
    return values if needed < 0.85 * _device(values["card"]).memory_bytes else None


def _rate(values: Values, weights: float, kv: float) -> float:
    """Tokens/s of the batch when so many copies of weights and KV are read."""
    read = weights * _weights_read(values["model"]) + kv * _kv_bytes(values)
    return values["batch"] * _bandwidth(values) / read


def _draw_ridge(rng: Random) -> Values:
    return {"card": rng.choice(CARDS), "weights": rng.choice(tuple(MULTIPLIED)), "model": rng.choice(MODELS)}


def _ridge_batch(values: Values) -> float:
    size, dtype = MULTIPLIED[values["weights"]]
    return _device(values["card"]).ridge(dtype) * size / 2


def _ridge_unsized(values: Values) -> float | None:
    size, dtype = MULTIPLIED[values["weights"]]
    return None if size == 2 else _device(values["card"]).ridge(dtype)


def _ridge_sparse(values: Values) -> float | None:
    """With the vendor's rate for sparse matrices; as large as another mistake where a weight is a byte."""
    return None if MULTIPLIED[values["weights"]][0] == 1 else 2 * _ridge_batch(values)


def _ridge_wrong_rate(values: Values) -> float | None:
    return _device(values["card"]).ridge("bf16") / 2 if values["weights"] == "w8a8" else None


def _ridge_of_a_byte(values: Values) -> float | None:
    return _ridge_batch(values) / 2 if values["weights"] == "bf16" else None


def _shown_ridge(values: Values) -> Values:
    size, dtype = MULTIPLIED[values["weights"]]
    device = _device(values["card"])
    return {
        "label": device.label, "format": values["weights"].upper(), "size": size, "rate_name": dtype.upper(),
        "tera": device.rate(dtype)[1] / 1e12, "bandwidth_tb": device.bandwidth_bytes_per_s / 1e12,
        "ridge": device.ridge(dtype), "exact": _crossover(values["model"], values["weights"], values["card"]) or "-",
    }  # fmt: skip


def _draw_prefill(rng: Random) -> Values:
    return {
        "model": rng.choice(MODELS), "card": rng.choice(CARDS), "seq_len": rng.choice((8192, 16384, 32768, 65536)),
        "mfu": rng.choice((40, 45, 50, 55, 60)),
    }  # fmt: skip


def _flops(values: Values) -> tuple[float, float]:
    """(operations of the matrices, of attention) of one prompt."""
    found = _step(values["model"], "prefill", 1, values["seq_len"])
    linear = sum(operator.flops for operator in found if operator.linear)
    return linear, sum(operator.flops for operator in found) - linear


def _prefill_ms(values: Values, flops: float | None = None, mfu: float | None = None) -> float:
    rate = _device(values["card"]).rate("bf16")[1] * (values["mfu"] if mfu is None else mfu) / 100
    return (sum(_flops(values)) if flops is None else flops) / rate * 1e3


def _shown_prefill(values: Values) -> Values:
    linear, mixing = _flops(values)
    spec = preset(values["model"])
    return {
        "label": _device(values["card"]).label, "tflops": _device(values["card"]).rate("bf16")[1] / 1e12,
        "billions": linear / 2 / values["seq_len"] / 1e9, "linear_t": linear / 1e12, "mixing_t": mixing / 1e12,
        "sum_t": (linear + mixing) / 1e12, "layers": spec.num_layers, "heads": spec.num_heads,
        "head_dim": spec.head_dim, "useful": _device(values["card"]).rate("bf16")[1] / 1e12 * values["mfu"] / 100,
    }  # fmt: skip


def _draw_intensity(rng: Random) -> Values:
    kv_heads = rng.choice((2, 4, 8))
    return {
        "layers": rng.choice((28, 32, 40, 64)), "kv_heads": kv_heads,
        "heads": kv_heads * rng.choice((3, 4, 5, 6, 7, 8)),
        "head_dim": 128, "seq_len": rng.choice((4096, 8192, 32768)), "batch": rng.choice((16, 24, 64, 128)),
        "kv_dtype": rng.choice(("bf16", "fp8")),
    }  # fmt: skip


def _intensity(values: Values) -> float:
    spec = ModelSpec.from_fields(
        layers=values["layers"], kv_heads=values["kv_heads"], head_dim=values["head_dim"], num_heads=values["heads"]
    )
    return attention_intensity(spec, values["seq_len"], kv_dtype=values["kv_dtype"]) or 0.0


def _draw_experts(rng: Random) -> Values:
    return {
        "experts": rng.choice((32, 64, 128, 160, 256)), "chosen": rng.choice((2, 4, 6, 8)),
        "tokens": rng.choice((4, 8, 12, 16, 24, 32)),
    }  # fmt: skip


KINDS = (
    Kind(
        "decode_time", "roofline", "ms", _draw_decode, _decode_ms,
        {
            "kv_forgotten": lambda v, _key: _weights_read(v["model"]) / _bandwidth(v) * 1e3,
            "by_compute": lambda v, _key: _by_compute_ms(v),
            "weights_forgotten": lambda v, _key: _kv_bytes(v) / _bandwidth(v) * 1e3,
            "factor_2": lambda _v, key: key * 2,
            "bits_for_bytes": lambda _v, key: key * 8,
        },
        _shown_decode, tolerance=0.03,
    ),
    Kind(
        "decode_rate", "roofline", "tokens/s", _draw_batch, lambda v: 1e3 * v["batch"] / _decode_ms(v),
        {
            "one_of_batch": lambda v, key: key / v["batch"],
            "weights_per_sequence": lambda v, _key: _rate(v, v["batch"], v["batch"]),
            "kv_once": lambda v, _key: _rate(v, 1, 1),
            "kv_forgotten": lambda v, _key: _rate(v, 1, 0),
        },
        _shown_decode, tolerance=0.03,
    ),
    Kind(
        "ridge_batch", "roofline", "sequences", _draw_ridge, _ridge_batch,
        {
            "weight_bytes_forgotten": lambda v, _key: _ridge_unsized(v),
            "sparse_rate": lambda v, _key: _ridge_sparse(v),
            "wrong_rate": lambda v, _key: _ridge_wrong_rate(v),
            "byte_a_parameter": lambda v, _key: _ridge_of_a_byte(v),
        },
        _shown_ridge, tolerance=0.03,
    ),
    Kind(
        "prefill_time", "roofline", "ms", _draw_prefill, _prefill_ms,
        {
            "macs_for_flops": lambda _v, key: key / 2,
            "attention_forgotten": lambda v, _key: _prefill_ms(v, _flops(v)[0]),
            "not_causal": lambda v, _key: _prefill_ms(v, _flops(v)[0] + 2 * _flops(v)[1]),
            "peak_reached": lambda v, _key: _prefill_ms(v, mfu=100),
        },
        _shown_prefill, tolerance=0.03,
    ),
    Kind(
        "attention_intensity", "roofline", "FLOP/B", _draw_intensity, _intensity,
        {
            "batch_counted": lambda v, key: key * v["batch"],
            "heads_for_kv_heads": lambda v, key: key * v["kv_heads"],
            "macs_for_flops": lambda _v, key: key / 2,
            "k_without_v": lambda _v, key: key * 2,
        },
        lambda v: {"group": v["heads"] // v["kv_heads"], "size": 2 if v["kv_dtype"] == "bf16" else 1,
                   "format": v["kv_dtype"].upper()},
    ),
    Kind(
        "moe_experts", "roofline", "experts", _draw_experts,
        lambda v: experts_touched(v["experts"], v["chosen"], v["tokens"]),
        {
            "no_overlap": lambda v, _key: v["chosen"] * v["tokens"],
            "one_token": lambda v, _key: v["chosen"],
            "all_experts": lambda v, _key: v["experts"],
        },
        lambda v: {"missed": 100 * (1 - v["chosen"] / v["experts"]) ** v["tokens"]},
    ),
)  # fmt: skip
