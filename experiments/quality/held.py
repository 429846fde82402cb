"""What a configuration holds: weights and KV in bytes, what of the weights stays 16-bit, what calibrating them took.

Owns the figures that stand beside an evaluation's quality. Bytes of weights are those of the tensors held; the split
and the KV figures are the ledger's, with its arithmetic. No model is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from core_engine.config import EngineConfig
from ledger.block_formats import WeightFormat
from ledger.kv_blocks import admitted
from ledger.model_spec import ModelSpec
from ledger.weight_formats import AS_STORED, engine_groups, weights_report
from ledger.weights import parameter_count

if TYPE_CHECKING:
    from core_engine.quant.matrix import QuantizedMatrix

MIB = 2**20
SEQUENCE_TOKENS = 512  # of each sequence that is counted against the KV memory
MOST_SEQUENCES = 2**20
ORDER_BYTES = 4


def held_by(config: EngineConfig, loaded: Any) -> dict[str, Any]:
    """What a loaded model and the KV cache of `config` hold, as JSON; every part says where its figures are from.

    weights: bytes of the tensors held, and bits a parameter. unquantized: what of them is in 16 (or 32) bits. kv: bytes
    a token in whole blocks, and how many sequences of `sequence_tokens` the KV memory takes. calibration: what making
    the weights took, None where none were made.
    """
    size, count = loaded.weights.num_bytes(), parameter_count(loaded.spec)
    return {
        "weights": {
            "bytes": size,
            "parameters": count,
            "bits_per_weight": 8 * size / count,
            "provenance": "measured",
        },
        "unquantized": _unquantized(config, loaded),
        "kv": _kv(config, loaded),
        "calibration": None if loaded.quantizing is None else {**asdict(loaded.quantizing), "provenance": "measured"},
    }


def _unquantized(config: EngineConfig, loaded: Any) -> dict[str, Any]:
    """The ledger's split of the weights, and its arithmetic."""
    from core_engine.environment import dtype_name

    dtype = dtype_name(loaded.weights.dtype)
    groups = engine_groups(
        loaded.spec,
        config.weights,
        group=int(config.weight_group),
        symmetric=config.weight_symmetric == "on",
        head_weights=config.head_weights,
        dtype=dtype,
        stored=_stored_formats(config) if config.weights == AS_STORED else None,
    )
    report = weights_report(loaded.spec, dtype, groups=groups)
    kept = sum(group.count * fmt.bytes_of(group.shape) for group, fmt in groups if not fmt.quantized)
    return {
        "bytes": kept,
        "bits": 8 * loaded.weights.dtype.itemsize,
        "share": kept / report["total_bytes"],
        "predicted_bytes": report["total_bytes"],
        "how": report["how"],
        "provenance": "computed",
    }


def _stored_formats(config: EngineConfig) -> dict[str, WeightFormat]:
    """The format of every matrix that is held as a file has it."""
    from core_engine.model.loader import open_model
    from core_engine.quant.matrix import QuantizedMatrix

    source = open_model(config).source
    found = ((name, source.stored(name)) for name in source.names())
    return {name: format_of(matrix) for name, matrix in found if isinstance(matrix, QuantizedMatrix)}


def format_of(matrix: QuantizedMatrix) -> WeightFormat:
    """How a matrix is held: its codes, and what lies beside them for every scale."""
    depth, scales = matrix.shape[1], matrix.scale.shape[1]
    inner = [codes for codes in (matrix.scale_codes, matrix.minimum_codes, matrix.zero) if codes is not None]
    outer = [matrix.scale] if matrix.minimum is None else [matrix.scale, matrix.minimum]
    beside = sum(8 * part.element_size() for part in outer)
    beside += sum(8 * part.element_size() * part.shape[1] // scales for part in inner)
    name = f"{matrix.bits}-bit g{depth // scales}"
    order = ORDER_BYTES if matrix.order is not None else 0
    return WeightFormat(name, matrix.bits, depth // scales, beside, column_bytes=order)


def _kv(config: EngineConfig, loaded: Any) -> dict[str, Any]:
    from core_engine.kv.format import KVFormat

    form, spec = KVFormat.from_config(config, loaded.weights.dtype).blocks, loaded.spec
    block_bytes, room = form.block_bytes(spec, config.block_size), config.kv_memory_mib * MIB
    elements = sum(layer.kv_elements for layer in spec.layers)
    tokens = sequence_tokens(spec)
    return {
        "format": form.name,
        "bytes_per_token": block_bytes / config.block_size,
        "bits_per_element": 8 * block_bytes / (config.block_size * elements),
        "memory_bytes": room,
        "sequence_tokens": tokens,
        "sequences": admitted(spec, form, room, config.block_size, tokens, MOST_SEQUENCES),
        "how": f"{form.how(spec, config.block_size)} = {block_bytes:,} B a block",
        "provenance": "computed",
    }


def sequence_tokens(spec: ModelSpec) -> int:
    """SEQUENCE_TOKENS, or the model's most."""
    return min(SEQUENCE_TOKENS, spec.max_position or SEQUENCE_TOKENS)


def change_of(held: Mapping[str, Any], baseline: Mapping[str, Any]) -> dict[str, float]:
    """The share that weights and KV take of the baseline's, from two of `held_by`."""
    return {
        "weights_share": held["weights"]["bytes"] / baseline["weights"]["bytes"],
        "kv_share": held["kv"]["bytes_per_token"] / baseline["kv"]["bytes_per_token"],
    }
