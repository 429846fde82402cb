"""What the choices of the plan page mean, as the spec of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ledger.errors import InputError

ANY = "any"  # every format that a card computes in
MODEL, CARDS = "llama-3.1-8b", ("h100-sxm", "a100-sxm-80gb")


@dataclass(frozen=True)
class PlanChoice:
    """What was chosen. Limits of 0 are no limits; prices are of one card for an hour."""

    model: str = MODEL
    gpus: Sequence[str] = CARDS
    rate_rps: float = 20.0
    input_tokens: int = 1024
    output_tokens: int = 256
    ttft_p95_s: float = 1.0
    tpot_p95_ms: float = 40.0
    max_devices: int = 0
    prices: Mapping[str, float] = field(default_factory=dict)
    disaggregation: bool = True
    itl_p95_ms: float = 0.0
    weights: str = ANY
    kv_dtype: str = ANY

    def spec(self) -> dict[str, Any]:
        """The spec of the run; InputError when no card was chosen."""
        if not self.gpus:
            raise InputError("--gpu", "", "at least one card")
        return {
            "model": self.model,
            "gpus": list(self.gpus),
            "rate_rps": self.rate_rps,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "slo": self.slo,
            "max_devices": self.max_devices or None,
            "prices": {name: self.prices[name] for name in self.gpus if name in self.prices},
            "disaggregation": self.disaggregation,
            "weights": None if self.weights == ANY else [self.weights],
            "kv_dtypes": None if self.kv_dtype == ANY else [self.kv_dtype],
        }

    @property
    def slo(self) -> str | None:
        """The limits in the form of --slo."""
        limits = {
            "ttft_p95": self.ttft_p95_s, "tpot_p95": self.tpot_p95_ms / 1000, "itl_p95": self.itl_p95_ms / 1000,
        }  # fmt: skip
        return ",".join(f"{name}={value:g}" for name, value in limits.items() if value) or None
