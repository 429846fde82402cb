"""What the weight variables ask for, and what a model has to be for it. Knows sizes only, no tensors."""

from __future__ import annotations

from dataclasses import dataclass

from core_engine.config import EngineConfig
from core_engine.model.spec import DecoderSpec
from core_engine.quant.awq import Levels
from core_engine.variables import W4A16, variable
from ledger.errors import InputError

NONE, AS_STORED, W8A16, W8A8 = "none", "as-stored", "w8a16", "w8a8"
RTN, AWQ, GPTQ = "w4a16-rtn", "w4a16-awq", "w4a16-gptq"
CALIBRATED = (W8A8, AWQ, GPTQ)
INT8 = "int8"


@dataclass(frozen=True)
class Scheme:
    """How weights are held. levels: of linear layers at 4 bits, None where they are not; head: "16bit" or "int8"."""

    weights: str
    levels: Levels | None
    head: str

    @classmethod
    def of(cls, config: EngineConfig) -> Scheme:
        """From the variables weights, weight_group, weight_symmetric and head_weights."""
        four = config.weights in W4A16
        levels = Levels(4, int(config.weight_group), config.weight_symmetric == "on") if four else None
        return cls(config.weights, levels, config.head_weights)

    @property
    def calibrated(self) -> bool:
        """Whether the result depends on a calibration text."""
        return self.weights in CALIBRATED

    @property
    def makes(self) -> bool:
        """Whether linear layers are quantized here, from whatever format they are stored in."""
        return self.weights not in (NONE, AS_STORED)

    def refuse_widths(self, spec: DecoderSpec) -> None:
        """InputError when groups do not divide every input width of the model, naming those that do."""
        if self.levels is None:
            return
        widths = sorted({spec.hidden_size, spec.num_heads * spec.head_dim, spec.intermediate_size})
        if all(width % self.levels.group == 0 for width in widths):
            return
        fitting = [size for size in variable("weight_group").choices if all(width % int(size) == 0 for width in widths)]
        within = f"the input widths of this model, {' and '.join(map(str, widths))}"
        sizes = (
            f"{' or '.join(fitting)}, which divide {within}" if fitting else f"weights={W8A16}: none divides {within}"
        )
        raise InputError("weight_group", self.levels.group, sizes)
