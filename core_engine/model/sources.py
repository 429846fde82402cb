"""Where a model's tensors come from, under one form: by Hugging Face's names, plain or as they are stored.

A directory of safetensors, plain or quantized by one of the public libraries, or a GGUF file. Nothing is read before
it is asked for, so that who quantizes a model holds one layer of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from core_engine.model.gguf import GgufFile
from core_engine.model.tensor_files import TensorFiles
from core_engine.quant.checkpoints import Layout, layout_of
from core_engine.quant.matrix import QuantizedMatrix
from ledger.errors import InputError

STORED_DTYPES = ("F32", "F16", "BF16")


class Source(Protocol):
    """A model's tensors. `quantized`: whether any matrix is stored in few bits."""

    quantized: bool

    def names(self) -> list[str]:
        """Hugging Face's names of all tensors."""

    def stored(self, name: str) -> torch.Tensor | QuantizedMatrix:
        """The tensor in its own format; it may share the file's memory."""

    def plain(self, name: str) -> torch.Tensor:
        """float32, whatever it is stored as."""


class _Source:
    """What all sources derive from `stored`."""

    def stored(self, name: str) -> torch.Tensor | QuantizedMatrix:
        raise NotImplementedError

    def plain(self, name: str) -> torch.Tensor:
        """float32, whatever it is stored as."""
        found = self.stored(name)
        return found.dequantized() if isinstance(found, QuantizedMatrix) else found.float()


class DirectorySource(_Source):
    """A directory with config.json and safetensors files."""

    def __init__(self, directory: Path, config: Mapping[str, Any]) -> None:
        """InputError for files that can't be read, or a quantization_config that is not known."""
        layout = layout_of(config)
        self._files = TensorFiles(directory)
        names = self._files.names()
        self._modules: dict[str, Layout] = {}
        if layout is not None:
            modules = {name.removesuffix(f".{layout.key}") for name in names if name.endswith(f".{layout.key}")}
            self._modules = {f"{module}.weight": layout for module in modules}
            parts = {f"{module}.{suffix}" for module in modules for suffix in (*layout.suffixes, *layout.optional)}
            names = [name for name in names if name not in parts] + sorted(self._modules)
        self._names = names
        self.quantized = layout is not None

    def names(self) -> list[str]:
        """Hugging Face's names, one a matrix however many tensors it is stored in."""
        return self._names

    def stored(self, name: str) -> torch.Tensor | QuantizedMatrix:
        """The tensor in its own format; InputError for one that is no float and belongs to no quantized matrix."""
        if name in self._modules:
            return self._matrix(name, self._modules[name])
        kind = self._files.stored_as(name)
        if kind not in STORED_DTYPES:
            raise InputError("model", f"{name} stored as {kind}", f"{', '.join(STORED_DTYPES)}")
        return self._files.tensor(name)

    def _matrix(self, name: str, layout: Layout) -> QuantizedMatrix:
        module, have = name.removesuffix(".weight"), set(self._files.names())
        wanted = [f"{module}.{suffix}" for suffix in layout.suffixes]
        missing = [part for part in wanted if part not in have]
        if missing:
            raise InputError("model", f"no tensor {missing[0]}", f"all tensors of a {layout.method} matrix")
        found = {suffix: self._files.tensor(f"{module}.{suffix}") for suffix in layout.suffixes}
        for suffix in layout.optional:
            if f"{module}.{suffix}" in have:
                found[suffix] = self._files.tensor(f"{module}.{suffix}")
        try:
            matrix = layout.read(found)
            out, depth = matrix.shape
            groups = (out, depth // matrix.group)
            whole = depth % matrix.group == 0 and matrix.scale.shape == groups
            if whole and (matrix.zero is None or matrix.zero.shape == groups):
                return matrix
        except (RuntimeError, ValueError, IndexError):
            pass  # shapes that do not go together: told below
        shapes = ", ".join(f"{suffix} {list(tensor.shape)}" for suffix, tensor in found.items())
        raise InputError("model", f"{module} with {shapes}", f"shapes of a {layout.method} matrix in whole groups")


class GgufSource(_Source):
    """A GGUF file."""

    def __init__(self, file: GgufFile) -> None:
        self._file = file
        self.quantized = any(file.is_quantized(name) for name in file.names())

    def names(self) -> list[str]:
        """Hugging Face's names."""
        return self._file.names()

    def stored(self, name: str) -> torch.Tensor | QuantizedMatrix:
        """Blocks as they are; other tensors as float32."""
        if self._file.is_quantized(name):
            return self._file.matrix(name)
        return _tensor(self._file.array(name))

    def plain(self, name: str) -> torch.Tensor:
        """float32, whatever it is stored as."""
        return _tensor(self._file.array(name))


def _tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array if array.flags.writeable else array.copy())  # float32 is the mapped file itself
