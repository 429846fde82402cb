"""Predicted beside measured, account by account, and what no account holds. Readings are passed in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.memory import MemoryLedger

UNEXPLAINED = "unexplained"


def reconcile(
    predicted: MemoryLedger, measured: Mapping[str, tuple[int | None, str]], total_bytes: int | None
) -> dict[str, Any]:
    """{"accounts": {name: {"predicted_bytes", "measured_bytes", "how", "measured_how"}}, and three sums}.

    `measured` gives bytes (None: no reading) and where they come from; an account that only one side knows has None on
    the other. "predicted_bytes" is the sum of the predictions; "unexplained_bytes" is `total_bytes` less every measured
    account: negative where accounts say more than the whole holds, None without a total.
    """
    hows = {account.name: account for account in predicted.accounts}
    accounts: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys((*hows, *measured)):
        account, (size, source) = hows.get(name), measured.get(name, (None, ""))
        accounts[name] = {
            "predicted_bytes": None if account is None else account.bytes,
            "measured_bytes": size,
            "how": "" if account is None else account.how,
            "measured_how": source,
        }
    known = sum(size for size, _ in measured.values() if size is not None)
    return {
        "accounts": accounts,
        "predicted_bytes": predicted.total_bytes,
        "total_bytes": total_bytes,
        "unexplained_bytes": None if total_bytes is None else total_bytes - known,
    }
