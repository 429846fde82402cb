"""The KV cache alone, for a model whose weights are not known: typed numbers, or an architecture without a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.ledger_view import KvTerm, compared, kv_terms
from ledger.errors import InputError
from ledger.formats import GROUP_OVERHEAD_BYTES, element_format
from ledger.kv_cache import kv_report
from ledger.model_spec import ModelSpec
from ledger.weights import parameter_shapes


@dataclass(frozen=True)
class KvPrecision:
    """The cache in one format. `at_most`: sequences the whole memory of the card would hold if it held nothing else."""

    kv_dtype: str
    payload_bits: int
    bits: float
    sequence_bytes: int
    total_bytes: int
    at_most: int


@dataclass(frozen=True)
class KvView:
    """All that the page draws of a cache; `why` says why nothing else is counted."""

    report: dict[str, Any]
    chosen: KvPrecision
    precisions: tuple[KvPrecision, ...]
    kv_terms: tuple[KvTerm, ...]
    sequence_bytes: int
    state_bytes: int
    warnings: tuple[str, ...]


def weights_known(spec: ModelSpec) -> bool:
    """Whether the model's parameters can be counted."""
    try:
        parameter_shapes(spec)
    except InputError:
        return False
    return True


def kv_view(spec: ModelSpec, capacity_bytes: int, settings: Mapping[str, Any]) -> KvView:
    """settings: seq_len, concurrency, kv_dtype, kv_group_size, block_size, tp, pp. InputError when they cannot be."""
    made = {name: _report(spec, name, settings) for name in compared(settings["kv_dtype"])}
    rows = tuple(_precision(name, report, capacity_bytes) for name, report in made.items())
    report = made[settings["kv_dtype"]]
    return KvView(
        report=report,
        chosen=next(row for row in rows if row.kv_dtype == settings["kv_dtype"]),
        precisions=rows,
        kv_terms=kv_terms(report, settings["tp"]),
        sequence_bytes=report["kv_bytes_per_sequence"],
        state_bytes=report["state_bytes_per_sequence"],
        warnings=tuple(report["warnings"]),
    )


def _report(spec: ModelSpec, kv_dtype: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    group = settings["kv_group_size"] if kv_dtype in GROUP_OVERHEAD_BYTES else None
    sizes = (settings["seq_len"], settings["concurrency"], kv_dtype, settings["block_size"], settings["tp"])
    return kv_report(spec, *sizes, group, settings["pp"])


def _precision(kv_dtype: str, report: Mapping[str, Any], capacity_bytes: int) -> KvPrecision:
    bits = element_format(kv_dtype).bits
    a_sequence = report["kv_bytes_per_sequence"] + report["state_bytes_per_sequence"]
    return KvPrecision(
        kv_dtype=kv_dtype,
        payload_bits=bits,
        bits=report["overhead"]["bits_per_element"] or bits,
        sequence_bytes=report["kv_bytes_per_sequence"],
        total_bytes=a_sequence * report["concurrency"],
        at_most=capacity_bytes // a_sequence if a_sequence else 0,
    )


def kv_rows(view: KvView) -> list[dict[str, Any]]:
    """The view as rows of a CSV file."""
    return [
        {"kv_dtype": row.kv_dtype, "bits_per_element": row.bits, "bytes_per_sequence": row.sequence_bytes,
         "total_bytes": row.total_bytes, "sequences_if_nothing_else": row.at_most}
        for row in view.precisions
    ]  # fmt: skip
