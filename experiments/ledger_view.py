"""One deployment as the figures of the Ledger page: accounts by KV precision, the surface, and what would make it fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ledger.capacity import Deployment, deployment_ledger, ledger_report, max_concurrency, max_seq_len, surface
from ledger.capacity import usable_bytes as usable_bytes_of
from ledger.errors import InputError
from ledger.formats import element_format
from ledger.kv_cache import kv_report
from ledger.memory import MemoryLedger
from ledger.model_spec import ModelSpec

COMPARED = ("bf16", "int8", "int4")
SHOWN_ACCOUNTS = ("weights", "kv_cache", "state", "activations")
LADDER = tuple(sorted(2**power * factor // 2 for power in range(1, 24) for factor in (2, 3)))
MOST_COLUMNS, MOST_ROWS = 15, 14
REMEDY_TP = (2, 4, 8, 16)
REMEDY_WEIGHTS = ("fp8", "w4a16")


@dataclass(frozen=True)
class Precision:
    """The deployment with its KV in one format. `without_scales`: sequences it would hold if scales took no room."""

    kv_dtype: str
    payload_bits: int
    bits: float
    bytes_per_sequence: int
    ledger: MemoryLedger
    left_bytes: int | None
    max_concurrency: int | None
    without_scales: int | None

    @property
    def segments(self) -> list[dict[str, Any]]:
        """[{account, bytes}] as the bar has it: what is none of SHOWN_ACCOUNTS is one account, other."""
        sizes: Counter[str] = Counter()
        for account in self.ledger.accounts:
            sizes[account.name if account.name in SHOWN_ACCOUNTS else "other"] += account.bytes
        return [{"account": name, "bytes": size} for name, size in sizes.items()]


@dataclass(frozen=True)
class Surface:
    """Cells of context x concurrency in the chosen precision, and how far each precision reaches."""

    lengths: tuple[int, ...]
    concurrencies: tuple[int, ...]
    cells: list[dict[str, Any]]
    frontiers: list[dict[str, Any]]


@dataclass(frozen=True)
class Remedy:
    """One change that alone makes the deployment fit: which field, to what."""

    field: str
    value: str | int


@dataclass(frozen=True)
class LedgerView:
    """All that the page draws of one deployment."""

    report: dict[str, Any]
    usable_bytes: int | None
    kv_room_bytes: int | None
    chosen: Precision
    precisions: tuple[Precision, ...]
    remedies: tuple[Remedy, ...]
    kv_terms: list[dict[str, Any]]
    layers: list[dict[str, Any]]
    warnings: tuple[str, ...]


def ledger_view(d: Deployment) -> LedgerView:
    """Everything but the surface, which is larger and drawn apart. InputError for a deployment that cannot be."""
    usable = usable_bytes_of(d)
    precisions = tuple(_precision(replace(d, kv_dtype=name), usable) for name in compared(d.kv_dtype))
    chosen = next(item for item in precisions if item.kv_dtype == d.kv_dtype)
    kv = kv_report(d.spec, d.seq_len, d.concurrency, d.kv_dtype, d.block_size, d.tp, d.kv_group_size)
    fixed = sum(account.bytes for account in chosen.ledger.accounts if account.name not in ("kv_cache", "state"))
    return LedgerView(
        report=ledger_report(d),
        usable_bytes=usable,
        kv_room_bytes=None if usable is None else max(0, usable - fixed),
        chosen=chosen,
        precisions=precisions,
        remedies=() if chosen.left_bytes is None or chosen.left_bytes >= 0 else tuple(_remedies(d)),
        kv_terms=kv_terms(d.spec, kv, d.tp),
        layers=kv["per_layer"],
        warnings=tuple(kv["warnings"]),
    )


def compared(kv_dtype: str) -> tuple[str, ...]:
    """The chosen KV format beside BF16, INT8 and INT4, most bits first; FP16 stands for BF16."""
    others = [name for name in COMPARED if name != kv_dtype and not (kv_dtype == "fp16" and name == "bf16")]
    return tuple(sorted((kv_dtype, *others), key=lambda name: -element_format(name).bits))


def _precision(d: Deployment, usable: int | None) -> Precision:
    ledger = deployment_ledger(d)
    stored = element_format(d.kv_dtype, d.kv_group_size)
    a_sequence = kv_report(d.spec, d.seq_len, 1, d.kv_dtype, d.block_size, d.tp, d.kv_group_size)
    return Precision(
        kv_dtype=d.kv_dtype,
        payload_bits=stored.bits,
        bits=stored.bits_per_element,
        bytes_per_sequence=a_sequence["kv_bytes_per_sequence"],
        ledger=ledger,
        left_bytes=None if usable is None else usable - ledger.total_bytes,
        max_concurrency=max_concurrency(d),
        without_scales=max_concurrency(replace(d, kv_group_size=0)),
    )


def _remedies(d: Deployment) -> list[Remedy]:
    """What alone would make it fit, the cheapest for quality first."""
    tried = [Remedy("kv_dtype", name) for name in ("int8", "int4")]
    tried += [Remedy("weights", name) for name in REMEDY_WEIGHTS]
    tried += [Remedy("tp", count) for count in REMEDY_TP]
    found = []
    for remedy in tried:
        if remedy.field == "tp" and any(item.field == "tp" for item in found):
            continue
        if getattr(d, remedy.field) != remedy.value and _fits(d, remedy):
            found.append(remedy)
    at_once, length = max_concurrency(d), max_seq_len(d)
    if at_once:
        found.append(Remedy("concurrency", at_once))
    if length:
        found.append(Remedy("seq_len", length))
    return found


def _fits(d: Deployment, remedy: Remedy) -> bool:
    try:
        changed = replace(d, **{remedy.field: remedy.value})  # type: ignore[arg-type]
        usable = usable_bytes_of(changed)
        return usable is not None and deployment_ledger(changed).total_bytes <= usable
    except InputError:
        return False  # this model cannot be cut or stored that way


def surface_of(d: Deployment, kv_room_bytes: int | None, most: int | None) -> Surface:
    """The surface around the chosen point; `most` is the largest concurrency that any compared precision reaches."""
    names = compared(d.kv_dtype)
    lengths = lengths_around(d.seq_len, d.spec.max_position)
    concurrencies = concurrencies_around(d.concurrency, most)
    points = surface(d, lengths, concurrencies, names)
    fits = {(point.seq_len, point.concurrency, point.kv_dtype): point.fits for point in points}
    cells = [
        {
            "seq_len": point.seq_len,
            "concurrency": point.concurrency,
            "kv_bytes": point.kv_bytes,
            "share": point.kv_bytes / kv_room_bytes if kv_room_bytes else None,
            "fits": point.fits,
            "with": next((name for name in names if fits[point.seq_len, point.concurrency, name]), None),
        }
        for point in points
        if point.kv_dtype == d.kv_dtype
    ]
    frontiers = [
        {
            "kv_dtype": name,
            "bits": element_format(name).bits,
            "is_chosen": name == d.kv_dtype,
            "rows": [sum(bool(fits[length, count, name]) for count in concurrencies) for length in lengths],
        }
        for name in names
    ]
    return Surface(lengths, concurrencies, cells, frontiers)


def lengths_around(seq_len: int, max_position: int) -> tuple[int, ...]:
    """Round lengths from a quarter of `seq_len` up to 32 times it, or to the model's maximum with more below it."""
    top = min(32 * seq_len, max(max_position, seq_len)) if max_position else 32 * seq_len
    below = [rung for rung in LADDER if 16 <= rung <= top]
    return _window(below, seq_len, MOST_COLUMNS, lead=4)


def concurrencies_around(concurrency: int, most: int | None) -> tuple[int, ...]:
    """Round concurrencies from 1 to past what fits, thinned out to the rows there are."""
    top = max(8 * concurrency, 2 * (most or 0), 64)
    rungs = [rung for rung in (1, *LADDER) if rung <= top]
    if len(rungs) > MOST_ROWS:
        rungs = [rung for rung in rungs if rung & (rung - 1) == 0]
    return _window(rungs, concurrency, MOST_ROWS, lead=MOST_ROWS)


def _window(rungs: Sequence[int], chosen: int, most: int, lead: int) -> tuple[int, ...]:
    """At most `most` rungs with the chosen value among them, `lead` below it where the ladder goes on above."""
    found = sorted({*rungs, chosen})
    place = found.index(chosen)
    first = max(0, min(place - lead, len(found) - most))
    return tuple(found[first : first + most])


def kv_terms(spec: ModelSpec, kv: dict[str, Any], tp: int) -> list[dict[str, Any]]:
    """One term a kind of layer that keeps KV: {"kind","layers","heads","k_dim","v_dim","latent","window","kept",
    "bytes_per_token"} as the largest of `tp` ranks has it."""
    keys = ("kind", "kv_heads", "k_head_dim", "v_head_dim", "latent_dim", "window", "tokens_kept", "bytes_per_token")
    rows = [row for row in kv["per_layer"] if row["bytes_per_token"]]
    counted = Counter(tuple(row[key] for key in keys) for row in rows)
    names = ("kind", "heads", "k_dim", "v_dim", "latent", "window", "kept", "bytes_per_token")
    return [
        {**dict(zip(names, values, strict=True)), "layers": count, "rank_heads": max(1, -(-values[1] // tp))}
        for values, count in counted.items()
    ]
