"""Predicted beside measured, account by account, and what no account holds. Readings are passed in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ledger.memory import MemoryLedger, Provenance

UNEXPLAINED = "unexplained"


@dataclass(frozen=True)
class Reading:
    """Bytes that an account holds (None: no reading), where they come from, and "estimated" for a sample's size."""

    bytes: int | None
    source: str
    provenance: Provenance = "measured"


NO_READING = Reading(None, "")


def reconcile(predicted: MemoryLedger, measured: Mapping[str, Reading], total_bytes: int | None) -> dict[str, Any]:
    """{"accounts": {name: {"predicted_bytes", "measured_bytes", "how", "measured_how", "provenance",
    "measured_provenance"}}, and three sums}.

    An account that only one side knows has None on the other, bytes and provenance. "provenance" is the prediction's:
    "measured" where it is a reading itself. "predicted_bytes" is the sum of the predictions; "unexplained_bytes" is
    `total_bytes` less every measured account: negative where accounts say more than the whole holds, None without a
    total.
    """
    hows = {account.name: account for account in predicted.accounts}
    accounts: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys((*hows, *measured)):
        account, reading = hows.get(name), measured.get(name, NO_READING)
        accounts[name] = {
            "predicted_bytes": None if account is None else account.bytes,
            "measured_bytes": reading.bytes,
            "how": "" if account is None else account.how,
            "measured_how": reading.source,
            "provenance": None if account is None else account.provenance,
            "measured_provenance": None if reading.bytes is None else reading.provenance,
        }
    known = sum(reading.bytes for reading in measured.values() if reading.bytes is not None)
    return {
        "accounts": accounts,
        "predicted_bytes": predicted.total_bytes,
        "total_bytes": total_bytes,
        "unexplained_bytes": None if total_bytes is None else total_bytes - known,
    }
