"""The tensors of a directory of safetensors files, by name, read when they are asked for. Knows no formats."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from ledger.errors import InputError, is_out_of_memory


class TensorFiles:
    """All tensors of a directory. The files are mapped: what is returned may share their memory."""

    def __init__(self, directory: Path) -> None:
        """InputError naming a file that is missing or can't be read, or a tensor that is in two of them."""
        from safetensors import SafetensorError, safe_open

        self._places: dict[str, Any] = {}
        for path in weight_files(directory):
            try:
                file = safe_open(path, framework="pt").__enter__()
                names = list(file.keys())
            except (SafetensorError, OSError) as error:
                if is_out_of_memory(error):
                    raise
                raise InputError("model", str(path), f"a readable safetensors file ({error})") from None
            for name in names:
                if name in self._places:
                    raise InputError("model", f"{name} in two files", "every tensor once")
                self._places[name] = file

    def names(self) -> list[str]:
        """Names of all tensors."""
        return list(self._places)

    def stored_as(self, name: str) -> str:
        """The format's name in the file, as F32 or I8."""
        return str(self._places[name].get_slice(name).get_dtype())

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor as it is stored."""
        found: torch.Tensor = self._places[name].get_tensor(name)
        return found


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a model, those of the index where there is one; InputError when one is missing."""
    index = directory / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
        except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
            raise InputError("model", str(index), "a readable index with a weight_map") from None
        if not all(isinstance(name, str) for name in names):
            raise InputError("model", str(index), "a readable index with a weight_map")
        strange = next((name for name in names if Path(name).name != name or Path(name).suffix != ".safetensors"), None)
        if strange is not None:
            raise InputError("model", f"{strange[:80]} in {index.name}", "names of *.safetensors beside the index")
        missing = [name for name in names if not (directory / name).is_file()]
        if missing:
            raise InputError("model", str(directory), f"all files of the index; missing: {', '.join(missing)}")
        return [directory / name for name in names]
    single = directory / "model.safetensors"
    files = [single] if single.is_file() else sorted(directory.glob("*.safetensors"))
    if not files:
        raise InputError("model", str(directory), "a directory with *.safetensors")
    return files


def digest_of_files(paths: list[Path]) -> str:
    """SHA-256 over the contents of files, in their order."""
    whole = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()
