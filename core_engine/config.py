"""EngineConfig: one field per registered variable, validated once.

Owns the combination rules between variables. Knows no torch: what a device offers is asked in `resolve.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from core_engine.variables import VARIABLES, Value, parse_value, variable
from ledger.errors import InputError


@dataclass(frozen=True)
class EngineConfig:
    """A complete, valid set of values; see core_engine.variables for the meaning and unit of each."""

    batching: str = "continuous"
    max_num_seqs: int = 8
    max_wait_ms: float = 200.0
    max_num_batched_tokens: int = 256
    chunked_prefill: str = "on"
    max_queue: int = 4096
    rate_limit_rps: float = 0.0
    kv_layout: str = "paged"
    block_size: int = 16
    kv_memory_mib: int = 256
    kv_dtype: str = "auto"
    kv_key_axis: str = "channel"
    kv_protect: str = "none"
    kv_watermark: float = 0.01
    prefix_cache: str = "on"
    model: str = "embedded"
    device: str = "auto"
    dtype: str = "auto"
    weights: str = "none"
    weight_group: str = "64"
    weight_symmetric: str = "on"
    head_weights: str = "16bit"
    threads: int = 0
    kernels: str = "auto"
    graph: str = "auto"
    overlap: str = "on"
    fused_ops: str = "on"
    attention: str = "flash"
    kv_splits: str = "auto"
    pin_threads: str = "off"
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    micro_batches: int = 0
    disaggregation: str = "off"
    speculation: str = "off"
    draft_model: str = "shipped"
    num_draft_tokens: int = 4
    draft_control: str = "adaptive"
    exact_cache: str = "off"
    semantic_cache: str = "off"
    semantic_threshold: float = 0.89
    prompt_compression: str = "off"
    prompt_keep: float = 0.5
    router: str = "off"
    router_small: str = "quantized"
    router_threshold: float = -1.0
    seed: int = 0

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any] | None = None) -> EngineConfig:
        """Defaults overridden by `settings`; InputError names the first field that is unknown or out of range."""
        values: dict[str, Any] = {name: entry.default for name, entry in VARIABLES.items()}
        for name, value in (settings or {}).items():
            values[variable(name).name] = parse_value(name, value)
        _refuse_conflicts(values)
        return cls(**values)

    @property
    def ranks(self) -> int:
        """Processes that the model is split over; 1: it is in the engine's own."""
        return self.tensor_parallel * self.pipeline_parallel

    def settings(self) -> dict[str, Value]:
        """Every variable and its value, for records and reports."""
        return asdict(self)


def _refuse_conflicts(values: Mapping[str, Value]) -> None:
    """InputError that lists every value that another variable's value rules out, and what it would have to be."""
    conflicts = [*_missing(values), *_excluded(values)]
    if values["batching"] != "continuous" and int(values["max_queue"]) < int(values["max_num_seqs"]):
        least = f"of at least max_num_seqs={values['max_num_seqs']} with batching={values['batching']}"
        conflicts.append(("max_queue", f"max_queue {least}, or no batch gets full"))
    if conflicts:
        given = ", ".join(f"{name}={values[name]}" for name in dict.fromkeys(name for name, _ in conflicts))
        raise InputError("settings", given, "; ".join(needed for _, needed in conflicts))


def _missing(values: Mapping[str, Value]) -> list[tuple[str, str]]:
    """(variable, what it has to be and why) of every value that another needs and that is not so."""
    return [
        (other, f"{other}={needed} (needed by {name}={value})")
        for name, value in values.items()
        for other, needed in VARIABLES[name].requires.get(str(value), {}).items()
        if values[other] != needed
    ]


def _excluded(values: Mapping[str, Value]) -> list[tuple[str, str]]:
    """(variable, what it may be and why) of every value that another can't go with."""
    return [
        (other, f"{other} other than {' or '.join(map(str, ruled_out))} (which has no {name}={value})")
        for name, value in values.items()
        for other, ruled_out in VARIABLES[name].ruled_out(value).items()
        if values[other] in ruled_out
    ]
