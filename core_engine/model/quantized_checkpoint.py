"""`trilemma quantize`: a model's weights quantized here and written as a checkpoint, tokenizer included."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from core_engine.config import EngineConfig
from core_engine.environment import resolve_device, resolve_dtype, resolve_threads
from core_engine.model.gguf_tokenizer import write_tokenizer
from core_engine.model.loader import OpenedModel, open_model
from core_engine.model.weights import Wanted
from core_engine.quant.write import quantization_config, write_checkpoint
from core_engine.variables import MADE_HERE
from ledger.errors import CannotRunError, InputError

NOT_COPIED = ("config.json", "model.safetensors.index.json")


def quantize_model(
    config: EngineConfig, out: Path, calibration: Path | None = None, report: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Write the quantized model of `config` to the new directory `out`; returns what was written and what it took.

    calibration: a text of the user's. InputError for settings that quantize nothing, a text without use, or an `out`
    that is there; CannotRunError when it can't be written.
    """
    _refuse(config, out, calibration)
    device = resolve_device(config.device)
    torch.set_num_threads(resolve_threads(config.threads))
    opened = open_model(config, report)
    if calibration is not None and not opened.scheme.calibrated:
        raise InputError("--calibration", str(calibration), f"no text: weights={config.weights} needs none")
    wanted = Wanted(opened.scheme, torch.device("cpu"), resolve_dtype(config.dtype, device))
    named, cost = opened.weights(wanted, opened.tokenizer(), calibration, report)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
        try:
            size = write_checkpoint(work, opened.config, named, opened.scheme)
            _copy_tokenizer(opened, work)
            work.chmod(0o755)
            work.rename(out)  # whole or not there
        finally:
            shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise CannotRunError(f"--out: {out} can't be written: {error.strerror or error}") from None
    return {
        "out": str(out),
        "weights": config.weights,
        "format": f"compressed-tensors, {quantization_config(opened.scheme)['format']}",
        "bytes": size,
        "quantizing": None if cost is None else asdict(cost),
        "config": config.settings(),
    }


def _refuse(config: EngineConfig, out: Path, calibration: Path | None) -> None:
    if config.weights in ("none", "as-stored"):
        raise InputError("--weights", config.weights, ", ".join(MADE_HERE))
    if config.head_weights != "16bit":
        accepted = "16bit: the layout keeps a plain head; give it with weights=as-stored when the result is loaded"
        raise InputError("head_weights", config.head_weights, accepted)
    if out.exists():
        raise InputError("--out", str(out), "the path of a directory that is not there yet")
    if calibration is not None and not calibration.is_file():
        raise InputError("--calibration", str(calibration), "a text file")


def _copy_tokenizer(opened: OpenedModel, to: Path) -> None:
    if opened.file is not None:
        write_tokenizer(opened.file.fields, to)
        return
    for path in opened.path.iterdir():
        if path.suffix in (".json", ".model", ".jinja") and path.name not in NOT_COPIED:
            shutil.copyfile(path, to / path.name)
