"""The enlarged target: a model whose MLP is several times as wide, and says exactly what the model says.

The rows that gate and up have more are copies, the columns that down has more are zero: what they compute counts for
nothing. So token ids are the same and a step takes several times the work, which is where speculation pays; drafts are
as good as before. Nothing is saved on the zeros: they are held and multiplied like any other weight.
"""

from __future__ import annotations

from typing import Any

import torch

from core_engine.model.sources import Source
from core_engine.quant.matrix import QuantizedMatrix

LABEL = "enlarged target"
TIMES = 6  # 533 M parameters instead of 135 M: of each, the embedding is 28 M

WIDENED, ZEROED = (".gate_proj.weight", ".up_proj.weight"), ".down_proj.weight"


def enlarged_config(config: dict[str, Any]) -> dict[str, Any]:
    """config.json of the enlarged model."""
    return {**config, "intermediate_size": TIMES * config["intermediate_size"]}


class EnlargedSource:
    """The tensors of another source with the MLP widened."""

    quantized = False

    def __init__(self, source: Source) -> None:
        self._source = source

    def names(self) -> list[str]:
        """Those of the source."""
        return self._source.names()

    def stored(self, name: str) -> torch.Tensor | QuantizedMatrix:
        """The widened tensor, in the number format of the source's."""
        found = self._source.stored(name)
        if not isinstance(found, torch.Tensor):
            raise TypeError(f"{name} is quantized: only plain matrices are widened")
        return _widened(name, found)

    def plain(self, name: str) -> torch.Tensor:
        """float32."""
        return _widened(name, self._source.plain(name))


def _widened(name: str, tensor: torch.Tensor) -> torch.Tensor:
    if name.endswith(WIDENED):
        return tensor.repeat(TIMES, 1)
    if name.endswith(ZEROED):
        return torch.cat([tensor, tensor.new_zeros(len(tensor), (TIMES - 1) * tensor.shape[1])], dim=1)
    return tensor
