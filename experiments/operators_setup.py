"""What the choices of the Kernels page mean, as the spec of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core_engine.variables import VARIABLES, Value

STEPS = ("decode:1x256", "decode:8x256", "decode:32x256", "prefill:1x512")
NOTHING = "none"
VARIED: dict[str, tuple[str, ...]] = {
    NOTHING: (),
    "fused_ops": ("off", "on"),
    "graph": ("off", "on"),
    "attention": ("naive", "flash"),
    "kv_splits": ("1", "2", "4", "auto"),
    "kernels": ("torch", "auto"),
}
REPEATS = (6, 12, 24, 48)
DTYPES = ("auto", "bf16", "fp32")


@dataclass(frozen=True)
class Choice:
    """What was chosen. varied: a key of VARIED."""

    step: str = STEPS[0]
    varied: str = "fused_ops"
    repeats: int = 12
    model: str = "embedded"
    dtype: str = "auto"

    def spec(self) -> dict[str, Any]:
        """The spec of the run."""
        chosen: dict[str, Value] = {"model": self.model, "dtype": self.dtype}
        values = VARIED[self.varied]
        return {
            "step": self.step,
            "vary": [self.varied, list(values)] if values else None,
            "settings": {name: value for name, value in chosen.items() if value != VARIABLES[name].default},
            "repeats": self.repeats,
        }
