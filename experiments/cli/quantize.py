"""`trilemma quantize`: a quantized checkpoint of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from core_engine.variables import MADE_HERE
from experiments.cli.options import Json, Set, settings
from experiments.cli.output import note, print_json
from ledger.errors import InputError

FORMATS = ", ".join(MADE_HERE)
Weights = Annotated[str, typer.Option("--weights", metavar="FORMAT", help=f"{FORMATS}.")]
Out = Annotated[str, typer.Option("--out", metavar="DIR", help="A new directory for the checkpoint.")]
Calibration = Annotated[
    str | None,
    typer.Option("--calibration", metavar="FILE", help="Text to calibrate w8a8, AWQ and GPTQ on, instead of our own."),
]


def quantize(
    weights: Weights, out: Out, calibration: Calibration = None, sets: Set = None, as_json: Json = False
) -> None:
    """Quantize a model and write it as a checkpoint, to be loaded with --set model=DIR --set weights=as-stored.

    The format is that of compressed-tensors, which vLLM, SGLang and transformers read as well: safetensors with a
    quantization_config, 4 bits and w8a16 as pack-quantized, w8a8 as int-quantized with int8 inputs for each token. Our
    engine rounds w8a8's inputs in groups of 32, a key of config.json that others ignore. Model, group size, symmetry
    and number format of the rest are set with --set.
    """
    from core_engine.config import EngineConfig
    from core_engine.model.quantized_checkpoint import quantize_model

    if weights not in MADE_HERE:
        raise InputError("--weights", weights, FORMATS)
    config = EngineConfig.from_settings({**settings(sets), "weights": weights})
    result = quantize_model(config, Path(out), None if calibration is None else Path(calibration), note)
    if as_json:
        print_json(result)
    else:
        print(_text(result))


def _text(result: dict[str, Any]) -> str:
    cost = result["quantizing"]
    took = f"{cost['seconds']:.0f} s"
    if cost["calibration_tokens"]:
        took += f" on {cost['calibration_tokens']:,} tokens of calibration text"
    if cost["from_cache"]:
        took += ", read from the cache"
    return f"{result['out']}: {result['weights']} ({result['format']}), {result['bytes']:,} B; {took}"
