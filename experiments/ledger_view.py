"""One deployment as the figures of the Ledger page: accounts by KV precision, the surface, what would make it fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from experiments.ladders import concurrencies_around, lengths_around
from ledger.capacity import Deployment, deployment_ledger, fits, in_kv_format, ledger_report, surface
from ledger.errors import InputError
from ledger.formats import GROUP_OVERHEAD_BYTES, element_format
from ledger.kv_cache import kv_report
from ledger.memory import MemoryLedger
from ledger.weight_formats import format_name, weight_format

COMPARED = ("bf16", "int8", "int4")
# account -> its part of the bar; every other account is part of "other"
BAR_OF = {"vision_weights": "weights"} | {name: name for name in ("weights", "kv_cache", "state", "activations")}
REMEDY_TP = (2, 4, 8, 16)
REMEDY_WEIGHTS = ("fp8", "w4a16")


@dataclass(frozen=True)
class KvTerm:
    """The layers that keep KV alike, on the rank that the figures are of.

    form says which product `layer_bytes` (a token, one layer) is: heads (2 x heads x k_dim), uneven (heads x (k_dim +
    v_dim)), latent, or bytes (more than that); element_bytes is what an element costs, scales included.
    """

    kind: str
    form: str
    layers: int
    heads: int
    k_dim: int
    v_dim: int
    latent: int
    window: int | None
    kept: int
    layer_bytes: int
    element_bytes: float

    @property
    def token_bytes(self) -> int:
        """Bytes of one token in all of these layers."""
        return self.layers * self.layer_bytes


@dataclass(frozen=True)
class Precision:
    """The deployment with its KV in one format. `without_scales`: sequences it would hold if scales took no room."""

    kv_dtype: str
    payload_bits: int
    bits: float
    sequence_bytes: int
    state_bytes: int
    ledger: MemoryLedger
    left_bytes: int | None
    fits: bool | None
    max_concurrency: int | None
    without_scales: int | None

    @property
    def segments(self) -> list[dict[str, Any]]:
        """[{account, bytes}] as the bar has it: what is not in BAR_OF is one account, other."""
        sizes: Counter[str] = Counter()
        for account in self.ledger.accounts:
            sizes[BAR_OF.get(account.name, "other")] += account.bytes
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
    """All that the page draws of one deployment, but for the surface."""

    report: dict[str, Any]
    usable_bytes: int | None
    kv_room_bytes: int | None
    chosen: Precision
    precisions: tuple[Precision, ...]
    remedies: tuple[Remedy, ...]
    kv_terms: tuple[KvTerm, ...]
    layers: list[dict[str, Any]]
    weights: dict[str, Any]
    warnings: tuple[str, ...]


def ledger_view(d: Deployment) -> LedgerView:
    """Everything but the surface, which is larger and drawn apart. InputError for a deployment that cannot be."""
    report = ledger_report(d)
    most = {row["kv_dtype"]: row for row in report["precisions"]}
    precisions = tuple(_precision(_in_format(d, name), most[name]) for name in compared(d.kv_dtype))
    chosen = next(item for item in precisions if item.kv_dtype == d.kv_dtype)
    kv = kv_of(d)
    return LedgerView(
        report=report,
        usable_bytes=report["usable_bytes"],
        kv_room_bytes=report["kv_room_bytes"],
        chosen=chosen,
        precisions=precisions,
        remedies=tuple(_remedies(d, report)) if report["fits"] is False else (),
        kv_terms=kv_terms(kv, d.tp),
        layers=kv["per_layer"],
        weights=report["weights"],
        warnings=tuple(report["warnings"]),
    )


def compared(kv_dtype: str) -> tuple[str, ...]:
    """The chosen KV format beside BF16, INT8 and INT4, most bits first; FP16 stands for BF16."""
    others = [name for name in COMPARED if name != kv_dtype and not (kv_dtype == "fp16" and name == "bf16")]
    return tuple(sorted((kv_dtype, *others), key=lambda name: -element_format(name).bits))


def kv_of(d: Deployment) -> dict[str, Any]:
    """The kv report of one sequence of the deployment."""
    return kv_report(d.spec, d.seq_len, 1, d.kv_dtype, d.block_size, d.tp, d.kv_group_size, d.pp)


def _in_format(d: Deployment, kv_dtype: str) -> Deployment:
    """The deployment with its KV in another format; the group size goes along only where there are groups."""
    return in_kv_format(d, kv_dtype, d.kv_group_size if kv_dtype in GROUP_OVERHEAD_BYTES else None)


def _precision(d: Deployment, most: Mapping[str, Any]) -> Precision:
    ledger, kv = deployment_ledger(d), kv_of(d)
    return Precision(
        kv_dtype=d.kv_dtype,
        payload_bits=d.stored.bits,
        bits=kv["overhead"]["bits_per_element"] or d.stored.bits,
        sequence_bytes=kv["kv_bytes_per_sequence"],
        state_bytes=kv["state_bytes_per_sequence"],
        ledger=ledger,
        left_bytes=None if ledger.usable_bytes is None else ledger.usable_bytes - ledger.total_bytes,
        fits=fits(d),
        max_concurrency=most["max_concurrency"],
        without_scales=most["max_concurrency_payload_only"],
    )


def _remedies(d: Deployment, report: Mapping[str, Any]) -> list[Remedy]:
    """What alone would make it fit, the cheapest for quality first."""
    tried = [Remedy("kv_dtype", name) for name in COMPARED[1:]]
    tried += [Remedy("weights", name) for name in REMEDY_WEIGHTS]
    tried += [Remedy("tp", count) for count in REMEDY_TP]
    found: list[Remedy] = []
    for remedy in tried:
        if any(item.field == remedy.field for item in found):
            continue  # the mildest of a kind is enough
        if _fewer(d, remedy) and _fits_with(d, remedy):
            found.append(remedy)
    if report["max_concurrency"]:
        found.append(Remedy("concurrency", report["max_concurrency"]))
    if report["max_seq_len"]:
        found.append(Remedy("seq_len", report["max_seq_len"]))
    return found


def _fewer(d: Deployment, remedy: Remedy) -> bool:
    """Whether the change asks for fewer bytes on a card than the deployment takes now."""
    if remedy.field == "kv_dtype":
        return element_format(str(remedy.value)).bits < d.stored.bits
    if remedy.field == "weights":
        return weight_format(str(remedy.value)).bits < weight_format(format_name(d.spec, d.weights)).bits
    return int(remedy.value) > d.tp


def _fits_with(d: Deployment, remedy: Remedy) -> bool:
    try:
        if remedy.field == "kv_dtype":
            return bool(fits(_in_format(d, str(remedy.value))))
        return bool(fits(replace(d, **{remedy.field: remedy.value})))  # type: ignore[arg-type]
    except InputError:
        return False  # this model cannot be cut or stored that way


def surface_of(d: Deployment, kv_room_bytes: int | None, most: int | None) -> Surface:
    """The surface around the chosen point; `most` is the largest concurrency that any compared precision reaches."""
    names = compared(d.kv_dtype)
    lengths = lengths_around(d.seq_len, d.spec.max_position)
    concurrencies = concurrencies_around(d.concurrency, most)
    points = surface(d, lengths, concurrencies, names)
    fitting = {(point.seq_len, point.concurrency, point.kv_dtype): point.fits for point in points}
    cells = [
        {
            "seq_len": point.seq_len,
            "concurrency": point.concurrency,
            "kv_bytes": point.kv_bytes,
            "share": point.kv_bytes / kv_room_bytes if kv_room_bytes else None,
            "fits": point.fits,
            "with": next((name for name in names if fitting[point.seq_len, point.concurrency, name]), None),
        }
        for point in points
        if point.kv_dtype == d.kv_dtype
    ]
    frontiers = [
        {
            "kv_dtype": name,
            "bits": element_format(name).bits,
            "is_chosen": name == d.kv_dtype,
            "rows": [sum(bool(fitting[length, count, name]) for count in concurrencies) for length in lengths],
        }
        for name in names
    ]
    return Surface(lengths, concurrencies, cells, frontiers)


def kv_terms(kv: Mapping[str, Any], tp: int) -> tuple[KvTerm, ...]:
    """One term a kind of layer that keeps KV, as a kv report has them, on its largest stage."""
    keys = ("kind", "kv_heads", "k_head_dim", "v_head_dim", "latent_dim", "window", "tokens_kept", "bytes_per_token")
    rows = [row for row in kv["per_layer"] if row["bytes_per_token"] and row["stage"] == kv["stage"]]
    counted = Counter(tuple(row[key] for key in keys) for row in rows)
    bits = kv["overhead"]["bits_per_element"] or 0.0
    return tuple(_kv_term(dict(zip(keys, values, strict=True)), count, tp, bits) for values, count in counted.items())


def _kv_term(row: Mapping[str, Any], layers: int, tp: int, bits: float) -> KvTerm:
    heads = max(1, -(-row["kv_heads"] // tp)) if row["kv_heads"] else 0
    k_dim, v_dim, latent = row["k_head_dim"], row["v_head_dim"], row["latent_dim"]
    sizes = {"heads": 2 * heads * k_dim if k_dim == v_dim else 0, "uneven": heads * (k_dim + v_dim), "latent": latent}
    exact = [form for form, elements in sizes.items() if elements and elements * bits == 8 * row["bytes_per_token"]]
    return KvTerm(
        kind=row["kind"],
        form=exact[0] if exact else "bytes",
        layers=layers,
        heads=heads,
        k_dim=k_dim,
        v_dim=v_dim,
        latent=latent,
        window=row["window"],
        kept=row["tokens_kept"],
        layer_bytes=row["bytes_per_token"],
        element_bytes=bits / 8,
    )


def ledger_rows(view: LedgerView) -> list[dict[str, Any]]:
    """The whole view as rows of a CSV file: precision, account, bytes; then what each precision holds at most."""
    rows: list[dict[str, Any]] = []
    for item in view.precisions:
        rows += [
            {"kv_dtype": item.kv_dtype, "what": a.name, "value": a.bytes, "unit": "B"} for a in item.ledger.accounts
        ]
        rows.append({"kv_dtype": item.kv_dtype, "what": "total", "value": item.ledger.total_bytes, "unit": "B"})
        rows.append({"kv_dtype": item.kv_dtype, "what": "left", "value": item.left_bytes, "unit": "B"})
        rows.append(
            {"kv_dtype": item.kv_dtype, "what": "max_concurrency", "value": item.max_concurrency, "unit": "sequences"}
        )
    return rows
