"""A trained draft as a file: safetensors with int8 matrices, and in its metadata how it was made and for which model.

Owns the format and the refusal of a draft for another model. Knows no kind of draft beyond its name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from core_engine.quant.matrix import QuantizedMatrix
from ledger.errors import CannotRunError, InputError

FORMAT = 1
KINDS = ("draft", "medusa", "eagle", "self")
SCALE = ".scale"
SHIPPED = Path(__file__).with_name("trained")


@dataclass(frozen=True)
class Artefact:
    """A trained draft.

    tensors: by name, matrices as QuantizedMatrix with one scale a row, everything else float32. about: what the command
    wrote down: `shape`, `recipe`, `text`, `seed`, `cost`, `acceptance`. target: name and fingerprint of the model that
    it was trained for; shortlist: the ids it proposes, ascending.
    """

    kind: str
    tensors: Mapping[str, torch.Tensor | QuantizedMatrix]
    shortlist: torch.Tensor
    target: Mapping[str, str]
    about: Mapping[str, Any]

    def plain(self, name: str) -> torch.Tensor:
        """A tensor in float32; InputError when the file lacks it."""
        found = self.weight(name)
        return found.dequantized() if isinstance(found, QuantizedMatrix) else found

    def weight(self, name: str) -> torch.Tensor | QuantizedMatrix:
        """A tensor as it is held; InputError when the file lacks it."""
        if name not in self.tensors:
            raise InputError("draft_model", f"no tensor {name}", f"a whole {self.kind} draft")
        return self.tensors[name]

    def refuse_other(self, kind: str, fingerprint: str) -> None:
        """InputError when this is another kind of draft, or was trained for another model."""
        if self.kind != kind:
            raise InputError("draft_model", f"a {self.kind} draft", f"a {kind} draft, as speculation={kind} needs")
        if self.target["fingerprint"] != fingerprint:
            raise InputError(
                "draft_model",
                f"a draft for {self.target['name']}",
                f"one trained for this model (trilemma train-draft {kind} --set model=...)",
            )


def rounded_rows(matrix: torch.Tensor) -> QuantizedMatrix:
    """A matrix [out, depth] in int8 with a scale for each row, its largest magnitude / 127."""
    scale = (matrix.float().abs().amax(1, keepdim=True) / 127).clamp_min(1e-12)
    codes = (matrix.float() / scale).round().clamp(-127, 127) + 128
    return QuantizedMatrix(8, matrix.shape[1], codes.to(torch.uint8), scale)


def save(path: Path, artefact: Artefact) -> int:
    """Write a draft and return the file's bytes; CannotRunError when it can't be written."""
    from safetensors.torch import save_file

    tensors = {"shortlist": artefact.shortlist.to(torch.int32)}
    for name, weight in artefact.tensors.items():
        if isinstance(weight, QuantizedMatrix):
            tensors[name], tensors[name + SCALE] = weight.codes.contiguous(), weight.scale[:, 0].contiguous()
        else:
            tensors[name] = weight.contiguous()
    about = {"format": FORMAT, "kind": artefact.kind, "target": dict(artefact.target), **artefact.about}
    work = path.with_suffix(".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, work, metadata={"trilemma": json.dumps(about)})
        os.replace(work, path)
        return path.stat().st_size
    except OSError as error:
        raise CannotRunError(f"draft: {path} can't be written: {error.strerror or error}") from None


def load(path: Path) -> Artefact:
    """Read a draft; InputError naming the path when it is not a whole one."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads((file.metadata() or {})["trilemma"])
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - not a dict
        form, kind, target = about.pop("format"), about.pop("kind"), about.pop("target")
        if form != FORMAT or kind not in KINDS or set(target) != {"name", "fingerprint"}:
            raise ValueError("format")
        shortlist = tensors.pop("shortlist").long()
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            "draft_model", str(path), f"a file made by trilemma train-draft ({type(error).__name__})"
        ) from None
    return Artefact(kind, _matrices(tensors), shortlist, target, about)


def shipped(kind: str) -> Path:
    """Where the draft of the embedded model that comes with the project lies."""
    return SHIPPED / f"{kind}.safetensors"


def _matrices(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor | QuantizedMatrix]:
    found: dict[str, torch.Tensor | QuantizedMatrix] = {}
    for name, tensor in tensors.items():
        if name.endswith(SCALE):
            continue
        scale = tensors.get(name + SCALE)
        found[name] = tensor if scale is None else QuantizedMatrix(8, tensor.shape[1], tensor, scale[:, None])
    return found
