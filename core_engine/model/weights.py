"""A model's weights in the format that the variables ask for: plain, as the file has them, or quantized here.

Owns which tensor goes which way and the refusals that need the model. Quantizers and their cache are core_engine/quant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from core_engine.model.embedded import CONVERSION, GGUF_SHA256, cache_root
from core_engine.model.sources import Source
from core_engine.model.spec import DecoderSpec
from core_engine.model.tensor_files import digest_of_files, weight_files
from core_engine.model.tokenizer import Tokenizer
from core_engine.quant.cache import cache_path, cached
from core_engine.quant.calibrate import CalibrationText, sequences
from core_engine.quant.matrix import QuantizedMatrix
from core_engine.quant.quantize import EMBEDDING, HEAD, Cost, Named, quantized_head, quantized_layers
from core_engine.quant.scheme import AS_STORED, INT8, Scheme
from ledger.errors import InputError


@dataclass(frozen=True)
class Wanted:
    """What weights are to be: the scheme, and device and dtype of all that is not quantized."""

    scheme: Scheme
    device: torch.device
    dtype: torch.dtype

    def moved(self, matrix: QuantizedMatrix) -> QuantizedMatrix:
        """Its numbers as they are, on the device."""
        return matrix.to(self.device)

    def held(self, tensor: torch.Tensor) -> torch.Tensor:
        """Memory of its own: files are mapped, and weights must be counted."""
        return tensor.to(device=self.device, dtype=self.dtype, copy=True)


def refuse(spec: DecoderSpec, source: Source, scheme: Scheme) -> None:
    """InputError for a scheme that this model can't be held in, before anything is read."""
    scheme.refuse_widths(spec)
    if scheme.weights != AS_STORED:
        return
    if not source.quantized:
        accepted = "embedded, a GGUF file with quantized blocks, or a checkpoint with a quantization_config"
        raise InputError("weights", AS_STORED, accepted)
    if scheme.head == INT8 and isinstance(source.stored(_head_name(spec)), QuantizedMatrix):
        raise InputError("head_weights", INT8, f"16bit with weights={AS_STORED}: the file's own head is quantized")


def plain_or_stored(source: Source, wanted: Wanted, names: list[str] | None = None) -> Named:
    """The tensors of these names (all by default), dequantized unless the scheme keeps them as stored."""
    found: Named = {}
    for name in source.names() if names is None else names:
        weight = source.stored(name)
        if isinstance(weight, QuantizedMatrix):
            stored = wanted.scheme.weights == AS_STORED
            found[name] = wanted.moved(weight) if stored else wanted.held(weight.dequantized())
        else:
            found[name] = wanted.held(weight)
    return found


def quantized(
    spec: DecoderSpec,
    source: Source,
    wanted: Wanted,
    tokenizer: Tokenizer,
    model: Path,
    text: CalibrationText | None,
    report: Callable[[str], None],
) -> tuple[Named, Cost]:
    """Every tensor, linear layers quantized here on `text`. `model` is where they are read, for the cache's key."""

    def make() -> tuple[Named, Cost]:
        ids = None if text is None else sequences(tokenizer.encode(text.text), spec.max_position)
        return quantized_layers(spec, source, wanted.scheme, ids, report)

    if text is not None:
        layers, cost = cached(cache_path(cache_root(), model_digest(model), wanted.scheme, text.digest), make, report)
    else:
        layers, cost = make()
    named = {
        name: wanted.moved(weight) if isinstance(weight, QuantizedMatrix) else wanted.held(weight)
        for name, weight in layers.items()
    }
    return named | plain_or_stored(source, wanted, [name for name in source.names() if name not in layers]), cost


def with_head(spec: DecoderSpec, named: Named, source: Source, wanted: Wanted) -> None:
    """Put the head in the scheme's format, in place: rounded from the file's own numbers, not from those of dtype."""
    if wanted.scheme.head == INT8:
        name = _head_name(spec)
        named.pop(name, None)
        head = quantized_head(source.plain(name), wanted.scheme)
        named[name] = wanted.moved(head) if isinstance(head, QuantizedMatrix) else wanted.held(head)
        if spec.tie_embeddings:
            named.pop(HEAD, None)  # an old checkpoint's second copy


def model_digest(model: Path) -> str:
    """What tells one model's weights from another's: the embedded model by its version, others by their files."""
    if model.is_dir() and model.name.endswith(f"-{GGUF_SHA256[:12]}-v{CONVERSION}"):
        return f"{GGUF_SHA256}-{CONVERSION}"
    return digest_of_files([model] if model.is_file() else weight_files(model))


def _head_name(spec: DecoderSpec) -> str:
    return EMBEDDING if spec.tie_embeddings else HEAD
