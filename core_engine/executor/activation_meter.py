"""Peak bytes of tensors alive at one time during a piece of torch code, counted at every operator.

Works on any device: torch keeps allocator statistics only on CUDA. It is slow, so it runs on dummy steps at start-up.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class ActivationMeter(TorchDispatchMode):
    """Counts storages that operators create inside the block while they live; peak_bytes is their largest sum.

    there: tensors that were made before, for an operator that gives one of them out anew, as Triton's interpreter does.
    """

    def __init__(self, there: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self.peak_bytes = 0
        self._alive_bytes = 0
        self._known = {tensor.untyped_storage()._cdata for tensor in there}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # True, torch's default, loads torch._dynamo, sympy, triton and torch.distributed at the first operator: 143 MB
        # and 1.7 s in a process that compiles nothing.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator and count the storages it made."""
        inputs = {t.untyped_storage()._cdata for t in _tensors((args, kwargs or {}))}
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            storage = tensor.untyped_storage()
            if storage._cdata not in inputs and storage._cdata not in self._known:
                self._count(storage)
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        self._known.add(key)
        self._alive_bytes += size
        self.peak_bytes = max(self.peak_bytes, self._alive_bytes)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self._alive_bytes -= size


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
