"""Quantized layers on disk: a calibration is computed once for a model, its settings, a text and a state of the code.

A file is one safetensors file. It is written beside its place and renamed, and carries a digest of its tensors: what is
damaged is made again. Codes of 4 bits are kept two in a byte. All files together keep within LIMIT_BYTES: what was used
longest ago goes when a new one is written.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from core_engine.quant.matrix import QuantizedMatrix
from core_engine.quant.quantize import Cost, Named
from core_engine.quant.scheme import Scheme

# Part of every key: a change of a quantizer never meets results of the former one.
CODE = 1
LIMIT_BYTES = 4 * 1024**3  # 40 results of the embedded model, or one of a model of 7 billion weights
STALE_S = 24 * 3600.0  # an unfinished file this old is nobody's any more
FOLDER, UNFINISHED = "quant", ".quant-"
SEPARATOR = "::"  # between the name of a matrix and that of its part


def cache_path(root: Path, model_digest: str, scheme: Scheme, text_digest: str) -> Path:
    """Where the layers of these go, or are."""
    head_is_apart = replace(scheme, head="")  # the head is rounded anew, whatever the layers are
    key = json.dumps([CODE, model_digest, asdict(head_is_apart), text_digest], sort_keys=True)
    return root / FOLDER / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.safetensors"


def cached(path: Path, make: Callable[[], tuple[Named, Cost]], report: Callable[[str], None]) -> tuple[Named, Cost]:
    """What the file holds, or what `make` returns, which is then written there; a full disk is only reported."""
    found = load(path)
    if found is not None:
        return found
    made = make()
    try:
        save(path, *made)
        make_room(path)
    except OSError as error:
        report(f"The quantized layers were not kept: {path.parent} can't be written ({error.strerror or error})")
    return made


def held_in(folder: Path) -> list[tuple[Path, os.stat_result]]:
    """Every file of the cache and what the system says of it, the one used longest ago first."""
    found = []
    for file in folder.glob("*.safetensors"):
        with suppress(FileNotFoundError):  # another process made room meanwhile
            found.append((file, file.stat()))
    return sorted(found, key=lambda one: (one[1].st_mtime_ns, one[0].name))


def make_room(kept: Path, limit_bytes: int | None = None) -> None:
    """Remove files until all keep within the limit, never `kept`; those that a killed process left go as well."""
    limit = LIMIT_BYTES if limit_bytes is None else limit_bytes
    files = held_in(kept.parent)
    total = sum(about.st_size for _, about in files)
    for file, about in files:
        if total <= limit:
            break
        if file != kept:
            file.unlink(missing_ok=True)
            total -= about.st_size
    for file in kept.parent.glob(f"{UNFINISHED}*"):
        with suppress(FileNotFoundError):
            if time.time() - file.stat().st_mtime > STALE_S:
                file.unlink()


def save(path: Path, named: Named, cost: Cost) -> None:
    """Write tensors and cost; OSError when it can't be written."""
    from safetensors.torch import save_file

    tensors, matrices = _flat(named)
    about = {"matrices": matrices, "cost": asdict(cost)}
    metadata = {"about": json.dumps(about), "digest": _digest(tensors)}
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, work = tempfile.mkstemp(prefix=UNFINISHED, dir=path.parent)
    os.close(handle)
    try:
        save_file(tensors, work, metadata=metadata)
        os.replace(work, path)
    finally:
        Path(work).unlink(missing_ok=True)


def load(path: Path) -> tuple[Named, Cost] | None:
    """What `save` wrote, with the cost it had then; None when there is no file, or a damaged one, which is removed."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - not a dict
        if metadata.get("digest") != _digest(tensors):
            raise ValueError("the digest differs")
        about = json.loads(metadata["about"])
        with suppress(OSError):  # the time of use; a cache that may only be read has none
            os.utime(path)
        return _named(tensors, about["matrices"]), Cost(**{**about["cost"], "from_cache": True})
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        path.unlink(missing_ok=True)
        return None


def _flat(named: Named) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """(tensors by name, or by matrix and part; the numbers of each matrix)."""
    tensors: dict[str, torch.Tensor] = {}
    matrices: dict[str, Any] = {}
    for name, weight in named.items():
        if not isinstance(weight, QuantizedMatrix):
            tensors[name] = weight.contiguous()
            continue
        matrices[name] = {
            "bits": weight.bits, "group": weight.group, "activation_group": weight.activation_group,
            "depth": weight.shape[1],
        }  # fmt: skip
        for part, value in vars(weight).items():
            if isinstance(value, torch.Tensor):
                # A tensor that several matrices share (an order) is written for each: safetensors has no sharing.
                tensors[f"{name}{SEPARATOR}{part}"] = (
                    _halved(value) if part == "codes" and weight.bits == 4 else value.clone().contiguous()
                )
    return tensors, matrices


def _named(tensors: Mapping[str, torch.Tensor], matrices: Mapping[str, Any]) -> Named:
    named: Named = {name: tensor for name, tensor in tensors.items() if SEPARATOR not in name}
    parts: dict[str, dict[str, Any]] = {name: {} for name in matrices}
    for key, tensor in tensors.items():
        name, separator, part = key.partition(SEPARATOR)
        if separator:
            parts[name][part] = tensor
    for name, about in matrices.items():
        depth, found = about.pop("depth"), parts[name]
        if about["bits"] == 4:
            found["codes"] = _doubled(found["codes"], depth)
        named[name] = QuantizedMatrix(**about, **found)
    return named


def _halved(codes: torch.Tensor) -> torch.Tensor:
    """Codes of 4 bits [out, depth] two in a byte [out, (depth + 1) // 2]."""
    even = codes[:, 0::2].clone()
    even[:, : codes.shape[1] // 2] |= codes[:, 1::2] << 4
    return even


def _doubled(halved: torch.Tensor, depth: int) -> torch.Tensor:
    return torch.stack([halved & 0x0F, halved >> 4], dim=-1).flatten(1)[:, :depth].contiguous()


def _digest(tensors: Mapping[str, torch.Tensor]) -> str:
    whole = hashlib.sha256()
    for name in sorted(tensors):
        whole.update(name.encode())
        whole.update(tensors[name].contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return whole.hexdigest()
