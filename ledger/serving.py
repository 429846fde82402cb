"""How fast one deployment can serve a kind of request at most: a steady state at the roof, limited by memory and TPOT.

In a steady state of continuous batching with B requests at once, each of I new input and O output tokens, a request
takes P seconds of prefill and its share T(B) / B of each of its O decode steps. So one replica finishes
1 / (P + O T(B) / B) requests a second, and by Little's law a token takes B (P + O T(B) / B) / O seconds on average:
T(B), and the prefills that run between. P and T are times at the roof, so the rate is an upper bound that no engine
reaches. Knows no money.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ledger.capacity import Deployment, max_concurrency
from ledger.errors import InputError
from ledger.formats import positive
from ledger.hardware import Accelerator
from ledger.operators import StepCosts
from ledger.roofline import step_time_s


@dataclass(frozen=True)
class Traffic:
    """What is asked: requests a second, tokens of each, and the share of input tokens whose KV is cached already."""

    requests_per_s: float
    input_tokens: int
    output_tokens: int
    cached_share: float = 0.0

    def __post_init__(self) -> None:
        above_zero("rate", self.requests_per_s)
        positive("input_tokens", self.input_tokens)
        positive("output_tokens", self.output_tokens)
        share("cache_hit", self.cached_share)

    @property
    def new_input_tokens(self) -> int:
        """Input tokens to compute: at least one, because the last one's logits start the answer."""
        return max(1, self.input_tokens - int(self.input_tokens * self.cached_share))


@dataclass(frozen=True)
class ServingBound:
    """The most that one replica (tp devices) serves, at the roof.

    `concurrency` requests at once, 0 when none fits or none meets the objective; then the rates are None. `tpot_s` is
    the mean time a token at that concurrency, `prefill_s` and `decode_step_s` the times of the two steps.
    """

    concurrency: int
    limited_by: str
    requests_per_s: float | None
    tpot_s: float | None
    prefill_s: float
    decode_step_s: float | None
    devices: int
    memory_concurrency: int
    how: str
    provenance: str = field(default="computed", init=False)

    def to_json(self, output_tokens: int) -> dict[str, Any]:
        """The bound with its token rates, a replica's and a device's."""
        tokens = None if self.requests_per_s is None else self.requests_per_s * output_tokens
        return {
            "concurrency": self.concurrency,
            "memory_concurrency": self.memory_concurrency,
            "limited_by": self.limited_by,
            "requests_per_s_per_replica": self.requests_per_s,
            "output_tokens_per_s_per_replica": tokens,
            "output_tokens_per_s_per_device": None if tokens is None else tokens / self.devices,
            "tpot_s": self.tpot_s,
            "prefill_s": self.prefill_s,
            "decode_step_s": self.decode_step_s,
            "devices_per_replica": self.devices,
            "how": self.how,
            "label": "upper bound at the roof: no launch, scheduling or imbalance costs",
            "provenance": self.provenance,
        }


def serving_bound(
    deployment: Deployment,
    device: Accelerator,
    traffic: Traffic,
    *,
    concurrency: int | None = None,
    tpot_slo_s: float | None = None,
) -> ServingBound:
    """The bound for `deployment` on `device`, whose memory it gets; its own seq_len and concurrency do not count.

    `concurrency`: at most so many requests at once. `tpot_slo_s`: at most so long a token on average. InputError for
    pipeline stages (the roofline has none), numbers below 1, or an objective of 0 or less.
    """
    if deployment.pp != 1:
        raise InputError("pp", deployment.pp, "1: the bound knows no pipeline stages")
    if tpot_slo_s is not None:
        above_zero("tpot_slo", tpot_slo_s)
    length = traffic.input_tokens + traffic.output_tokens
    on_card = {"capacity_bytes": device.memory_bytes, "card": device.name}
    held = max_concurrency(replace(deployment, seq_len=length, concurrency=1, **on_card)) or 0  # type: ignore[arg-type]
    most = held if concurrency is None else min(held, positive("concurrency", concurrency))
    costs = StepCosts(deployment.spec, deployment.weights, deployment.tp)
    options = {"kv_dtype": deployment.kv_dtype, "kv_group_size": deployment.kv_group_size}
    middle = traffic.input_tokens + max(1, traffic.output_tokens // 2)
    prefill_s = step_time_s(costs.operators("prefill", 1, traffic.new_input_tokens, **options), device)  # type: ignore[arg-type]

    def step_s(batch: int) -> float:
        return step_time_s(costs.operators("decode", batch, middle, **options), device)  # type: ignore[arg-type]

    def tpot_s(batch: int) -> float:
        return step_s(batch) + batch * prefill_s / traffic.output_tokens

    limited_by = "memory" if most == held else "concurrency"
    if most and tpot_slo_s is not None:
        allowed = _largest(lambda batch: tpot_s(batch) <= tpot_slo_s, most)
        limited_by = limited_by if allowed == most else "tpot objective"
        most = allowed
    if not most:
        reason = (
            "memory: not one request fits" if not held else "tpot objective: not even one request at a time meets it"
        )
        return ServingBound(0, reason, None, None, prefill_s, None, deployment.tp, held, reason)
    decode_s = step_s(most)
    rate = 1 / (prefill_s + traffic.output_tokens * decode_s / most)
    how = (
        f"{most:,} at once ({limited_by}; memory holds {held:,} of {length:,} tokens):"
        f" 1 / ({prefill_s:.4g} s prefill of {traffic.new_input_tokens:,} tokens"
        f" + {traffic.output_tokens:,} x {decode_s:.4g} s / {most:,})"
        f" = {rate:.4g} requests/s on {deployment.tp} x {device.label}"
    )
    return ServingBound(
        most, limited_by, rate, tpot_s(most), prefill_s, decode_s, deployment.tp, held, how
    )  # fmt: skip


def above_zero(name: str, value: float) -> float:
    """`value` when it is a finite number above 0; InputError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
        raise InputError(name, value, "a number above 0")
    return float(value)


def share(name: str, value: float) -> float:
    """`value` when it is from 0 to below 1; InputError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise InputError(name, value, "a share from 0 to below 1, such as 0.3")
    return float(value)


def _largest(holds: Callable[[int], bool], most: int) -> int:
    """The largest number of 1..most that `holds`, given that all below one that does do too; 0 when 1 does not."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
