"""Numeric questions about several devices: all-reduces, pipeline bubbles, KV sent from prefill to decode."""

from __future__ import annotations

from random import Random

from experiments.interview.numeric.kind import Kind, Values
from experiments.interview.numeric.memory import draw_gqa, gqa
from ledger.kv_cache import kv_bytes_per_sequence
from ledger.links import Link
from ledger.model_spec import ModelSpec
from ledger.parallel import bubble_share, part_traffic, rank_parts, ring_factor

GBIT = 1e9 / 8


def _draw_tp(rng: Random) -> Values:
    hidden = rng.choice((2048, 3072, 4096, 5120, 6144, 8192))
    return {"layers": rng.choice((24, 28, 32, 40, 48, 64, 80)), "hidden": hidden, "tp": rng.choice((4, 8))}


def _tp_model(values: Values) -> ModelSpec:
    return ModelSpec.from_fields(
        layers=values["layers"], kv_heads=8, head_dim=128, num_heads=32, hidden_size=values["hidden"],
        intermediate_size=4 * values["hidden"], vocab_size=32000,
    )  # fmt: skip


def _payload_bytes(values: Values) -> int:
    """What a rank hands to the all-reduces of one token."""
    spec = _tp_model(values)
    return part_traffic(spec, rank_parts(spec, values["tp"], 1)[0], 1, 1, 2).all_reduce_bytes


def _sent_kib(values: Values) -> float:
    return _payload_bytes(values) * ring_factor(values["tp"]) / 1024


def _shown_tp(values: Values) -> Values:
    return {
        "reduces": 2 * values["layers"] + 1, "vector_bytes": values["hidden"] * 2,
        "payload_kib": _payload_bytes(values) / 1024, "ring": ring_factor(values["tp"]),
    }  # fmt: skip


def _draw_tp_time(rng: Random) -> Values:
    return {
        **_draw_tp(rng), "batch": rng.choice((1, 8, 16, 32)), "latency_us": rng.choice((2, 4, 5, 8, 10)),
        "link_gb": rng.choice((25, 50, 64, 150, 300, 450)),
    }  # fmt: skip


def _reduce_s(values: Values, latency_s: float, messages: int | None = None) -> float:
    """Seconds of one all-reduce; with `messages` that many latencies instead of the ring's."""
    size = values["batch"] * values["hidden"] * 2
    link = Link(latency_s, values["link_gb"] * 1e9)
    if messages is None:
        return link.all_reduce_s(size, values["tp"])
    return messages * latency_s + Link(0.0, link.bytes_per_s).all_reduce_s(size, values["tp"])


def _tp_ms(values: Values, latency_s: float | None = None, messages: int | None = None) -> float:
    latency = values["latency_us"] * 1e-6 if latency_s is None else latency_s
    return (2 * values["layers"] + 1) * _reduce_s(values, latency, messages) * 1e3


def _shown_tp_time(values: Values) -> Values:
    one = _reduce_s(values, values["latency_us"] * 1e-6)
    return {
        "reduces": 2 * values["layers"] + 1, "messages": 2 * (values["tp"] - 1), "ring": ring_factor(values["tp"]),
        "vector_bytes": values["batch"] * values["hidden"] * 2, "one_us": one * 1e6,
        "latency_part_us": 2 * (values["tp"] - 1) * values["latency_us"],
        "bytes_part_us": _reduce_s(values, 0.0) * 1e6,
    }  # fmt: skip


def _draw_bubble(rng: Random) -> Values:
    return {"pp": rng.choice((2, 3, 4, 6, 8)), "micro_batches": rng.choice((2, 3, 4, 6, 8, 12, 16, 24, 32))}


def _draw_transfer(rng: Random) -> Values:
    values = draw_gqa(rng)
    return {**values, "seq_len": rng.choice((2048, 4096, 8192, 16384, 32768)), "gbit": rng.choice((25, 100, 200, 400))}


def _transfer_ms(values: Values, bytes_per_s: float | None = None) -> float:
    link = Link(0.0, values["gbit"] * GBIT if bytes_per_s is None else bytes_per_s)
    return link.send_s(kv_bytes_per_sequence(gqa(values), values["seq_len"])) * 1e3


def _heads_ms(values: Values) -> float:
    return _transfer_ms({**values, "kv_heads": values["heads"]})


def _shown_transfer(values: Values) -> Values:
    size = kv_bytes_per_sequence(gqa(values), values["seq_len"])
    return {"kv_bytes": size, "kv_gb": size / 1e9, "link_gb": values["gbit"] / 8, "transfer_ms": _transfer_ms(values)}


def _draw_ttft(rng: Random) -> Values:
    return {
        **_draw_transfer(rng), "queue_ms": rng.choice((40, 60, 80, 120, 200, 300)),
        "prefill_rate": rng.choice((6000, 8000, 10000, 16000, 20000, 30000)),
        "step_ms": rng.choice((15, 20, 25, 30, 40)),
    }  # fmt: skip


def _prefill_ms(values: Values) -> float:
    return 1e3 * values["seq_len"] / values["prefill_rate"]


def _ttft_ms(values: Values) -> float:
    return values["queue_ms"] + _prefill_ms(values) + _transfer_ms(values) + values["step_ms"]


KINDS = (
    Kind(
        "tp_traffic", "parallel", "KiB", _draw_tp, _sent_kib,
        {
            "one_way": lambda _v, key: key / 2,
            "ring_forgotten": lambda v, _key: _payload_bytes(v) / 1024,
            "one_all_reduce": lambda v, key: key / (2 * v["layers"] + 1),
            "all_ranks": lambda v, key: key * v["tp"],
            "bits_for_bytes": lambda _v, key: key * 8,
        },
        _shown_tp,
    ),
    Kind(
        "tp_time", "parallel", "ms", _draw_tp_time, _tp_ms,
        {
            "latency_forgotten": lambda v, _key: _tp_ms(v, 0.0),
            "one_message": lambda v, _key: _tp_ms(v, messages=1),
            "one_all_reduce": lambda v, key: key / (2 * v["layers"] + 1),
            "factor_2": lambda _v, key: key * 2,
        },
        _shown_tp_time, tolerance=0.03,
    ),
    Kind(
        "pipeline_bubble", "parallel", "%", _draw_bubble, lambda v: 100 * bubble_share(v["pp"], v["micro_batches"]),
        {
            "over_micro_batches": lambda v, _key: 100 * (v["pp"] - 1) / v["micro_batches"],
            "stage_too_many": lambda v, _key: 100 * v["pp"] / (v["micro_batches"] + v["pp"]),
            "one_micro_batch": lambda v, _key: 100 * bubble_share(v["pp"], 1),
            "busy_for_idle": lambda _v, key: 100 - key,
        },
        lambda v: {"idle": v["pp"] - 1, "slots": v["micro_batches"] + v["pp"] - 1},
    ),
    Kind(
        "pd_transfer", "parallel", "ms", _draw_transfer, _transfer_ms,
        {
            "bits_for_bytes": lambda v, _key: _transfer_ms(v, v["gbit"] * 1e9),
            "k_without_v": lambda _v, key: key / 2,
            "heads_for_kv_heads": lambda v, _key: _heads_ms(v),
            "one_layer": lambda v, key: key / v["layers"],
        },
        _shown_transfer,
    ),
    Kind(
        "pd_ttft", "latency", "ms", _draw_ttft, _ttft_ms,
        {
            "transfer_forgotten": lambda v, key: key - _transfer_ms(v),
            "queue_forgotten": lambda v, key: key - v["queue_ms"],
            "k_without_v": lambda v, key: key - _transfer_ms(v) / 2,
            "bits_for_bytes": lambda v, key: key - _transfer_ms(v) * 7 / 8,
        },
        lambda v: {**_shown_transfer(v), "prefill_ms": _prefill_ms(v)}, tolerance=0.01,
    ),
)  # fmt: skip
