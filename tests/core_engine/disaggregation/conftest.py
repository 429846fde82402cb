"""Two real processes of a tiny model, shared by the tests that leave them whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core_engine.config import EngineConfig
from core_engine.disaggregation.engine import DisaggregatedEngine
from core_engine.disaggregation.sides import TwoSides
from core_engine.engine import Engine
from core_engine.model.loader import LoadedModel, load_model

SIZES: dict[str, Any] = {
    "dtype": "fp32", "kernels": "torch", "max_num_seqs": 4, "kv_memory_mib": 1, "block_size": 8, "threads": 2,
}  # fmt: skip


class Pair:
    """The same tiny model in two processes and in this one."""

    def __init__(self, path: Path, whole: LoadedModel) -> None:
        self._base = {"model": str(path), **SIZES}
        self._whole = whole
        self.loaded = load_model(EngineConfig.from_settings({**self._base, "disaggregation": "on"}))
        assert isinstance(self.loaded.decoder, TwoSides)
        self.sides = self.loaded.decoder.sides

    def two(self, **settings: Any) -> DisaggregatedEngine:
        """A new engine over both processes."""
        config = EngineConfig.from_settings({**self._base, "disaggregation": "on", **settings})
        return DisaggregatedEngine(config, self.loaded)

    def one(self, **settings: Any) -> Engine:
        """A new engine in this process."""
        return Engine(EngineConfig.from_settings({**self._base, **settings}), self._whole)


@pytest.fixture(scope="module")
def pair(tiny: tuple[Path, Any], tiny_loaded: LoadedModel) -> Iterator[Pair]:
    if os.name != "posix":
        pytest.skip("two processes need a POSIX system")
    found = Pair(tiny[0], tiny_loaded)
    yield found
    found.loaded.close()
