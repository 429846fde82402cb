"""The executor that a loaded model needs: of this process, or of the ranks that hold it."""

from __future__ import annotations

from core_engine.config import EngineConfig
from core_engine.executor.base import Executor
from core_engine.executor.torch_executor import make_torch_executor, most_drafts
from core_engine.model.loader import LoadedModel
from core_engine.parallel.executor import make_parallel_executor
from core_engine.parallel.shards import ShardedModel


def make_executor(config: EngineConfig, loaded: LoadedModel) -> Executor:
    """CannotRunError when its KV cache can't be allocated, or the model has no kernels for what the settings ask."""
    if isinstance(loaded.decoder, ShardedModel):
        return make_parallel_executor(config, loaded, most_drafts(config))
    return make_torch_executor(config, loaded)
