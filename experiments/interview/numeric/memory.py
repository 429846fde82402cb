"""Numeric questions about memory: KV of several kinds of model, weights by format, how many sequences a card holds."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from random import Random

from experiments.interview.numeric.kind import Kind, Values
from ledger.capacity import Deployment, kv_room_bytes, max_concurrency
from ledger.formats import element_format
from ledger.hardware import GIB, accelerator
from ledger.kv_cache import kv_bytes_per_sequence, kv_bytes_per_token, kv_bytes_per_token_all_layers
from ledger.layers import LayerSpec
from ledger.model_spec import ModelSpec, load_model_spec
from ledger.weight_formats import formatted_groups, weight_bytes_of, weights_report
from ledger.weights import weight_bytes

LENGTHS = (4096, 8192, 16384, 32768, 65536, 131072)
LAYERS = (16, 24, 28, 32, 36, 40, 48, 60, 64, 80)
LARGE = (
    "llama-2-13b", "llama-3.1-8b", "llama-3.1-70b", "qwen2.5-7b", "qwen2.5-32b", "qwen2.5-72b", "mistral-nemo-12b",
    "phi-4",
)  # fmt: skip
SMALL = ("smollm2-135m", "llama-3.2-1b", "llama-3.2-3b", "qwen2.5-3b", "gemma-2-2b", "qwen2.5-7b")
GB_OF_GIB = GIB / 1e9


def gqa(values: Values, kv_heads: int | None = None) -> ModelSpec:
    """The model that the values describe, or the same with another number of KV heads."""
    return ModelSpec.from_fields(
        layers=values["layers"],
        kv_heads=kv_heads or values["kv_heads"],
        head_dim=values["head_dim"],
        num_heads=values["heads"],
    )


def draw_gqa(rng: Random) -> dict[str, int]:
    """Layers, KV heads, query heads, head size and a length of a grouped-query model."""
    kv_heads = rng.choice((2, 4, 8))
    return {
        "layers": rng.choice(LAYERS),
        "kv_heads": kv_heads,
        "heads": kv_heads * rng.choice((3, 4, 5, 6, 7)),
        "head_dim": rng.choice((64, 96, 128, 256)),
        "seq_len": rng.choice(LENGTHS),
    }


@lru_cache(maxsize=64)
def preset(name: str) -> ModelSpec:
    """A preset's spec, made once."""
    return load_model_spec(name)


def _sequence_gib(values: Values) -> float:
    return kv_bytes_per_sequence(gqa(values), values["seq_len"]) / GIB


def _heads_gib(values: Values) -> float:
    return kv_bytes_per_sequence(gqa(values, values["heads"]), values["seq_len"]) / GIB


def _shown_gqa(values: Values) -> Values:
    token = kv_bytes_per_token(gqa(values))
    total = token * values["seq_len"]
    return {"token_bytes": token, "total_bytes": total, "total_gb": total / 1e9, "one_gib": total / GIB}


def _mla(values: Values, latent: int | None = None) -> ModelSpec:
    width = values["rank"] + values["rope"] if latent is None else latent
    return replace(
        gqa({**values, "kv_heads": values["heads"]}), layers=(LayerSpec("mla", latent_dim=width),) * values["layers"]
    )


def _draw_mla(rng: Random) -> Values:
    return {
        "layers": rng.choice((27, 40, 48, 60, 61)),
        "heads": rng.choice((16, 64, 128)),
        "head_dim": 128,
        "rank": rng.choice((256, 384, 512)),
        "rope": rng.choice((32, 64, 128)),
        "seq_len": rng.choice(LENGTHS),
    }


def _mla_gib(values: Values, latent: int | None = None) -> float:
    return kv_bytes_per_sequence(_mla(values, latent), values["seq_len"]) / GIB


def _plain_gib(values: Values) -> float:
    """With keys and values of every head instead of a latent."""
    return kv_bytes_per_sequence(gqa(values, values["heads"]), values["seq_len"]) / GIB


def _shown_mla(values: Values) -> Values:
    token = kv_bytes_per_token(_mla(values))
    total = token * values["seq_len"]
    return {
        "width": values["rank"] + values["rope"], "token_bytes": token, "total_bytes": total, "total_gb": total / 1e9,
        "plain_gib": _plain_gib(values),
    }  # fmt: skip


def _windowed(values: Values, full: int, swa: int) -> ModelSpec:
    size = values["kv_heads"], values["head_dim"], values["head_dim"]
    layers = (LayerSpec("full", *size),) * full + (LayerSpec("swa", *size, window=values["window"]),) * swa
    return replace(gqa(values), layers=layers)


def _draw_window(rng: Random) -> Values:
    values = draw_gqa(rng)
    full = values["layers"] // rng.choice((2, 4, 6))
    return {**values, "full": full, "swa": values["layers"] - full, "window": rng.choice((512, 1024, 4096))}


def _window_gib(values: Values, full: int | None = None, swa: int | None = None) -> float:
    spec = _windowed(values, values["full"] if full is None else full, values["swa"] if swa is None else swa)
    return kv_bytes_per_sequence(spec, values["seq_len"]) / GIB


def _shown_window(values: Values) -> Values:
    row = 2 * values["kv_heads"] * values["head_dim"] * 2
    return {
        "layer_bytes": row,
        "kept": min(values["seq_len"], values["window"]),
        "full_bytes": row * values["full"] * values["seq_len"],
        "swa_bytes": row * values["swa"] * min(values["seq_len"], values["window"]),
    }


def _all_in_full_gib(values: Values) -> float:
    spec = _windowed(values, values["full"], values["swa"])
    return kv_bytes_per_token_all_layers(spec) * values["seq_len"] / GIB


def _draw_batch(rng: Random) -> Values:
    return {**draw_gqa(rng), "concurrency": rng.choice((6, 12, 16, 24, 32, 48, 64))}


def _draw_rank(rng: Random) -> Values:
    values = {**draw_gqa(rng), "concurrency": rng.choice((8, 16, 32, 64))}
    values["kv_heads"] = rng.choice((2, 4))
    values["heads"] = rng.choice((32, 64))
    return {**values, "tp": values["kv_heads"] * rng.choice((4, 8))}


def _rank_gib(values: Values, tp: int) -> float:
    return kv_bytes_per_sequence(gqa(values), values["seq_len"], tp=tp) * values["concurrency"] / GIB


def _draw_bits(rng: Random) -> Values:
    name = rng.choice(("int4", "int2", "int8"))
    return {"format": name.upper(), "bits": int(name[3:]), "group": rng.choice((32, 64, 128)),
            "head_dim": rng.choice((64, 128, 256))}  # fmt: skip


def _bits(values: Values, head_dim: int | None = None) -> float:
    width = head_dim or values["head_dim"]
    return 8 * element_format(values["format"].lower(), values["group"]).bytes_of(width) / width


def _overhead_bits(values: Values) -> int:
    return 8 * element_format(values["format"].lower(), values["group"]).group_overhead_bytes


def _no_zero_point(values: Values) -> float | None:
    """Bits an element with the scales alone; None where the format has nothing else.

    Twice the elements a group give the same, so that is left to the mistake of a group that is too large.
    """
    if _overhead_bits(values) == 16 or values["group"] == 2 * values["head_dim"]:
        return None
    return values["bits"] + 16 / _used_group(values)


def _used_group(values: Values) -> int:
    return int(min(values["group"], values["head_dim"]))


def _shown_bits(values: Values) -> Values:
    return {"overhead_bits": _overhead_bits(values), "used_group": _used_group(values)}


def _draw_sequences(rng: Random) -> Values | None:
    values = {**_draw_bits(rng), "held": rng.choice(range(6, 41))}
    exact = values["held"] * 16 / _bits(values)
    return values if 0.05 < exact % 1 < 0.95 else None


def _sequences(values: Values, bits: float) -> float:
    return math.floor(values["held"] * 16 / bits)


def _draw_w4(rng: Random) -> Values:
    return {"model": rng.choice(LARGE), "group": rng.choice((32, 64, 128))}


def _draw_share(rng: Random) -> Values | None:
    values: Values = {"model": rng.choice(SMALL), "group": rng.choice((32, 64, 128))}
    spec = preset(values["model"])
    # A group that does not divide a row leaves a short one, which no one computes by hand.
    return None if spec.hidden_size % values["group"] or spec.intermediate_size % values["group"] else values


@lru_cache(maxsize=256)
def _split(model: str, group: int) -> tuple[int, int]:
    """(parameters that W4A16 quantizes, those that stay 16-bit)."""
    found = formatted_groups(preset(model), f"w4a16-g{group}")
    quantized = sum(item.elements for item, fmt in found if fmt.quantized)
    return quantized, sum(item.elements for item, _ in found) - quantized


@lru_cache(maxsize=256)
def _w4_gib(model: str, group: int) -> float:
    return weight_bytes_of(preset(model), f"w4a16-g{group}") / GIB


@lru_cache(maxsize=256)
def _w4_share_pct(model: str, group: int) -> float:
    return 100 * float(weights_report(preset(model), f"w4a16-g{group}")["share_of_16bit"])


def _shown_w4(values: Values) -> Values:
    quantized, rest = _split(values["model"], values["group"])
    bits = 4 + 20 / values["group"]
    size = quantized * bits / 8 + rest * 2
    return {"quantized": quantized, "rest": rest, "bits": bits, "quantized_gb": quantized * bits / 8 / 1e9,
            "rest_gb": rest * 2 / 1e9, "total_gb": size / 1e9, "whole_gb": (quantized + rest) * 2 / 1e9}  # fmt: skip


def _w4_no_scales(values: Values) -> float:
    quantized, rest = _split(values["model"], values["group"])
    return quantized / 2 + rest * 2


def _w4_everything(values: Values) -> float:
    quantized, rest = _split(values["model"], values["group"])
    return (quantized + rest) * (4 + 20 / values["group"]) / 8


def _draw_fp16(rng: Random) -> Values:
    return {"model": rng.choice((*LARGE, *SMALL))}


@lru_cache(maxsize=64)
def _fp16_bytes(model: str) -> int:
    return weight_bytes(preset(model))


def _shown_fp16(values: Values) -> Values:
    size = _fp16_bytes(values["model"])
    return {"parameters": size // 2, "total_gb": size / 1e9}


@lru_cache(maxsize=256)
def _deployed(model: str, card: str, seq_len: int) -> Deployment:
    device = accelerator(card)
    return Deployment(
        preset(model), weights="bf16", seq_len=seq_len, capacity_bytes=device.memory_bytes, card=card, block_size=None
    )


@lru_cache(maxsize=256)
def _on_card(model: str, card: str, seq_len: int) -> tuple[int, int, int]:
    """(sequences held, bytes for them, bytes of one)."""
    made = _deployed(model, card, seq_len)
    return max_concurrency(made) or 0, kv_room_bytes(made) or 0, kv_bytes_per_sequence(made.spec, seq_len)


def _draw_card(rng: Random) -> Values | None:
    model = rng.choice(("llama-3.1-8b", "qwen2.5-7b", "llama-2-13b", "mistral-nemo-12b", "phi-4"))
    card = rng.choice(("l40s", "a100-sxm-80gb", "h100-sxm", "h200-sxm"))
    values = {"model": model, "card": card, "seq_len": rng.choice((2048, 3072, 4096, 6144, 8192, 12288, 16384))}
    held, room, one = _on_card(model, card, values["seq_len"])
    # Few enough, and far enough from a whole number, that numbers rounded to four digits give the same count.
    return values if 5 <= held <= 150 and 0.15 < room / one % 1 < 0.85 else None


def _shown_card(values: Values) -> Values:
    made = _deployed(values["model"], values["card"], values["seq_len"])
    _, room, one = _on_card(values["model"], values["card"], values["seq_len"])
    weights = _fp16_bytes(values["model"])
    usable = int((made.capacity_bytes or 0) * made.fraction)
    spec = made.spec
    return {
        "label": accelerator(values["card"]).label, "capacity": (made.capacity_bytes or 0) / GIB,
        "fraction": 100 * made.fraction, "usable": usable / GIB, "weights": weights / GIB,
        "buffers": (usable - room - weights) / GIB, "room": room / GIB, "one": one / GIB,
        "layers": spec.num_layers, "kv_heads": spec.num_kv_heads, "heads": spec.num_heads, "head_dim": spec.head_dim,
    }  # fmt: skip


def _card_count(values: Values, *, more_gib: float = 0.0, times: float = 1.0) -> float:
    _, room, one = _on_card(values["model"], values["card"], values["seq_len"])
    return math.floor((room + more_gib * GIB) / (one * times))


def _card_all_memory(values: Values) -> float:
    shown = _shown_card(values)
    return _card_count(values, more_gib=shown["capacity"] - shown["usable"])


def _card_heads(values: Values) -> float | None:
    spec = preset(values["model"])
    return (
        None if spec.num_heads == spec.num_kv_heads else _card_count(values, times=spec.num_heads / spec.num_kv_heads)
    )


KINDS = (
    Kind(
        "kv_gqa", "memory", "GiB", draw_gqa, _sequence_gib,
        {
            "k_without_v": lambda _v, key: key / 2,
            "heads_for_kv_heads": lambda v, _key: _heads_gib(v),
            "gb_for_gib": lambda _v, key: key * GB_OF_GIB,
            "bits_for_bytes": lambda _v, key: key * 8,
            "factor_2": lambda _v, key: key * 2,
            "one_layer": lambda v, key: key / v["layers"],
        },
        _shown_gqa,
    ),
    Kind(
        "kv_mla", "memory", "GiB", _draw_mla, _mla_gib,
        {
            "latent_as_heads": lambda v, _key: _plain_gib(v),
            "latent_twice": lambda _v, key: key * 2,
            "rope_forgotten": lambda v, _key: _mla_gib(v, v["rank"]),
            "gb_for_gib": lambda _v, key: key * GB_OF_GIB,
            "one_layer": lambda v, key: key / v["layers"],
        },
        _shown_mla, tolerance=0.01,
    ),
    Kind(
        "kv_window", "memory", "GiB", _draw_window, _window_gib,
        {
            "window_ignored": lambda v, _key: _all_in_full_gib(v),
            "window_everywhere": lambda v, _key: _window_gib(v, 0, v["layers"]),
            "windows_dropped": lambda v, _key: _window_gib(v, swa=0),
            "k_without_v": lambda _v, key: key / 2,
            "gb_for_gib": lambda _v, key: key * GB_OF_GIB,
        },
        _shown_window, tolerance=0.01,
    ),
    Kind(
        "kv_batch", "memory", "GiB", _draw_batch, lambda v: _sequence_gib(v) * v["concurrency"],
        {
            "one_sequence": lambda v, key: key / v["concurrency"],
            "k_without_v": lambda _v, key: key / 2,
            "heads_for_kv_heads": lambda v, _key: _heads_gib(v) * v["concurrency"],
            "gb_for_gib": lambda _v, key: key * GB_OF_GIB,
            "one_layer": lambda v, key: key / v["layers"],
        },
        _shown_gqa,
    ),
    Kind(
        "kv_rank", "parallel", "GiB", _draw_rank, lambda v: _rank_gib(v, v["tp"]),
        {
            "no_replication": lambda v, _key: _rank_gib(v, 1) / v["tp"],
            "not_split": lambda v, _key: _rank_gib(v, 1),
            "k_without_v": lambda _v, key: key / 2,
            "gb_for_gib": lambda _v, key: key * GB_OF_GIB,
        },
        lambda v: {**_shown_gqa(v), "whole_gib": _rank_gib(v, 1)},
    ),
    Kind(
        "kv_bits", "quantization", "bits/element", _draw_bits, _bits,
        {
            "payload_only": lambda v, _key: v["bits"],
            "zero_point_forgotten": lambda v, _key: _no_zero_point(v),
            "zero_point_counted": lambda v, _key: v["bits"] + 32 / _used_group(v) if v["bits"] == 8 else None,
            "group_beyond_head": lambda v, _key: v["bits"] + _overhead_bits(v) / v["group"]
            if v["group"] > v["head_dim"] else None,
        },
        _shown_bits, tolerance=0.005,
    ),
    Kind(
        "kv_sequences", "quantization", "sequences", _draw_sequences, lambda v: _sequences(v, _bits(v)),
        {
            "payload_only": lambda v, _key: _sequences(v, v["bits"]),
            "zero_point_forgotten": lambda v, _key: None if (b := _no_zero_point(v)) is None else _sequences(v, b),
            "rounded_up": lambda _v, key: key + 1,
            "unchanged": lambda v, _key: v["held"],
        },
        lambda v: {**_shown_bits(v), "bits_in_all": _bits(v), "exact": v["held"] * 16 / _bits(v)},
        tolerance=0.0, whole=True,
    ),
    Kind(
        "weights_fp16", "memory", "GiB", _draw_fp16, lambda v: _fp16_bytes(v["model"]) / GIB,
        {
            "gb_for_gib": lambda _v, key: key * GB_OF_GIB,
            "byte_a_parameter": lambda _v, key: key / 2,
            "bits_for_bytes": lambda _v, key: key * 8,
            "factor_2": lambda _v, key: key * 2,
        },
        _shown_fp16,
    ),
    Kind(
        "weights_w4", "quantization", "GiB", _draw_w4, lambda v: _w4_gib(v["model"], v["group"]),
        {
            "everything_quantized": lambda v, _key: _w4_everything(v) / GIB,
            "scales_forgotten": lambda v, _key: _w4_no_scales(v) / GIB,
            "gb_for_gib": lambda _v, key: key * GB_OF_GIB,
            "format_ignored": lambda v, _key: sum(_split(v["model"], v["group"])) * 2 / GIB,
        },
        _shown_w4, tolerance=0.01,
    ),
    Kind(
        "weights_share", "quantization", "%", _draw_share,
        lambda v: _w4_share_pct(v["model"], v["group"]),
        {
            "a_quarter": lambda _v, _key: 25.0,
            "scales_forgotten": lambda v, _key: 100 * _w4_no_scales(v) / (2 * sum(_split(v["model"], v["group"]))),
            "everything_quantized": lambda v, _key: 100 * (4 + 20 / v["group"]) / 16,
        },
        _shown_w4, tolerance=0.01,
    ),
    Kind(
        "max_concurrency", "memory", "sequences", _draw_card,
        lambda v: float(_on_card(v["model"], v["card"], v["seq_len"])[0]),
        {
            "weights_forgotten": lambda v, _key: _card_count(v, more_gib=_shown_card(v)["weights"]),
            "all_memory": lambda v, _key: _card_all_memory(v),
            "k_without_v": lambda v, _key: _card_count(v, times=0.5),
            "heads_for_kv_heads": lambda v, _key: _card_heads(v),
            "rounded_up": lambda _v, key: key + 1,
        },
        _shown_card, tolerance=0.0, whole=True,
    ),
)  # fmt: skip
