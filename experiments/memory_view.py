"""The memory ledger of a finished comparison as figures to show: measured accounts, prediction and the arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from experiments.report.charts import ledger_accounts
from ledger.errors import InputError
from ledger.kv_blocks import BlockFormat
from ledger.kv_cache import formula
from ledger.memory import Account, Provenance, predict_ledger
from ledger.model_spec import ModelSpec, load_model_spec
from ledger.reconcile import UNEXPLAINED
from ledger.step_kernels import StepKernels

PEAK = "process_peak"
DTYPE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True)
class ArmMemory:
    """One arm: measured bytes by account, what the ledger predicts, and the KV arithmetic with the numbers put in.

    `not_predicted` says why there is no prediction; then the lists are empty.
    """

    value: Any
    accounts: dict[str, float | None]
    predicted: tuple[Account, ...] = ()
    boundaries: tuple[int, ...] = ()
    kv_formula: str = ""
    kv_tokens: int = 0
    kv_used_bytes: int = 0
    not_predicted: str = field(default="")


def arm_memory(result: Mapping[str, Any], arm: int) -> ArmMemory:
    """The memory of one arm (0 baseline, 1 candidate) of a compare JSON."""
    found = result["arms"][arm]
    value, metrics = found["value"], found["metrics"]
    accounts = ledger_accounts(metrics["memory"])
    settings = {**result["held_equal"], result["variable"]: value}
    element_bytes = DTYPE_BYTES.get(metrics["environment"].get("dtype", ""))
    try:
        spec = load_model_spec(str(settings["model"]))
        if element_bytes is None:
            raise InputError("dtype", metrics["environment"].get("dtype"), ", ".join(DTYPE_BYTES))
        kernels = StepKernels.of_run(settings, metrics["environment"])
        return _with_prediction(value, accounts, spec, settings, element_bytes, metrics["memory"], kernels)
    except InputError as error:
        return ArmMemory(value, accounts, not_predicted=str(error))


def _with_prediction(
    value: Any,
    accounts: dict[str, float | None],
    spec: ModelSpec,
    settings: Mapping[str, Any],
    element_bytes: int,
    memory: Mapping[str, Any],
    kernels: StepKernels,
) -> ArmMemory:
    # As core_engine.accounts.predicted_ledger: unchunked, a whole prompt stands beside the running decodes.
    beside = 0 if settings.get("chunked_prefill", "on") == "on" else int(settings["max_num_seqs"])
    asked = str(settings.get("kv_dtype", "auto"))
    own = next(name for name, size in DTYPE_BYTES.items() if size == element_bytes)
    kv = BlockFormat(
        own if asked == "auto" else asked,
        str(settings.get("kv_key_axis", "channel")),
        str(settings.get("kv_protect", "none")),
    )
    ledger = predict_ledger(
        spec,
        dtype_bytes=element_bytes,
        kv_pool_bytes=int(settings["kv_memory_mib"]) * 1024**2,
        max_num_batched_tokens=int(settings["max_num_batched_tokens"]) + beside,
        max_num_seqs=int(settings["max_num_seqs"]),
        block_size=int(settings["block_size"]),
        kv=kv,
        kernels=kernels,
    )
    used = int(memory.get("kv_peak_used_bytes") or 0)
    per_token = kv.block_bytes(spec, int(settings["block_size"])) / int(settings["block_size"])
    return ArmMemory(
        value=value,
        accounts=accounts,
        predicted=ledger.accounts,
        boundaries=tuple(accumulate(account.bytes for account in ledger.accounts)),
        kv_formula=kv.how(spec, int(settings["block_size"])) if kv.is_quantized else formula(spec, kv_dtype=kv.name),
        kv_tokens=int(used / per_token) if per_token else 0,
        kv_used_bytes=used,
    )


@dataclass(frozen=True)
class AccountRow:
    """One line of predicted against measured, bytes; None where a side has no figure.

    `provenance` labels the prediction ("measured": a reading stands for it), `measured_provenance` the measurement;
    None without a figure, or for a run that did not say.
    """

    name: str
    predicted_bytes: int | None
    measured_bytes: int | None
    how: str = ""
    measured_how: str = ""
    provenance: Provenance | None = None
    measured_provenance: Provenance | None = None

    @property
    def difference_bytes(self) -> int | None:
        """Measured less predicted."""
        if self.predicted_bytes is None or self.measured_bytes is None:
            return None
        return self.measured_bytes - self.predicted_bytes


def account_rows(memory: Mapping[str, Any]) -> list[AccountRow]:
    """Predicted against measured of a run's `memory` or a snapshot's `ledger`; empty for a run older than that.

    The accounts in the ledger's order, then "unexplained" (the whole less every measured account), then "total", then
    "process_peak", the largest the whole was, where the system says it.
    """
    accounts = memory.get("accounts")
    if not accounts:
        return []
    rows = [
        AccountRow(
            name,
            found["predicted_bytes"],
            found["measured_bytes"],
            found["how"],
            found["measured_how"],
            found.get("provenance"),
            found.get("measured_provenance"),
        )
        for name, found in accounts.items()
    ]
    rows.append(_whole(UNEXPLAINED, None, memory["unexplained_bytes"]))
    rows.append(_whole("total", memory["predicted_bytes"], memory["total_bytes"]))
    peak = memory.get("process_peak_bytes")
    return rows if peak is None else [*rows, _whole(PEAK, memory["predicted_bytes"], peak)]


def _whole(name: str, predicted: int | None, measured: int | None) -> AccountRow:
    label: Provenance | None = None if predicted is None else "computed"
    return AccountRow(name, predicted, measured, "", "", label, None if measured is None else "measured")


LIVE_KINDS = ("used", "held", "internal", "unused", "cached", "free")


def live_kv_bytes(snapshot: Mapping[str, Any]) -> dict[str, float]:
    """KV by kind in bytes while the latest step executed, from a live snapshot; kinds with nothing are left out.

    `unused` is reserved beyond what requests have begun: whether it will be filled is only known after the run.
    """
    kv = snapshot.get("kv")
    if not kv:
        return {}
    tokens = snapshot["blocks"]["total"] * snapshot["blocks"]["block_size"]
    each = snapshot["ledger"]["kv_pool_bytes"] / tokens
    return {kind: kv[f"{kind}_tokens"] * each for kind in LIVE_KINDS if kv[f"{kind}_tokens"]}
