"""What the choices of the Load page mean, as the spec of a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from experiments.sweep.spec import parse_over
from ledger.errors import InputError

# key -> --over; the last one is typed by the reader.
RANGES = {
    "clients_8": "concurrency=1,2,4,8",
    "clients_32": "concurrency=1,2,4,8,16,32",
    "auto": "auto",
    "slots": "max_num_seqs=1,2,4,8,16",
}
OWN = "own"
WORKLOADS = ("equal", "mixed", "chat", "long-doc", "shared-prefix")
REPEATS = (1, 3, 5)
ANSWERS = (16, 32, 64, 256)
# Of a sweep over slots: twice as many clients as the most slots, so that there is always one more to admit.
CLIENTS_OF_SLOTS = 24


@dataclass(frozen=True)
class Choice:
    """What was chosen. over: a key of RANGES, or OWN with `typed` as --over has it; demand_rps 0 asks nothing."""

    workload: str = "equal"
    over: str = "clients_8"
    typed: str = ""
    slo: str = ""
    repeats: int = 1
    max_tokens: int = 32
    price: float = 1.0
    demand_rps: float = 0.0

    def spec(self) -> dict[str, Any]:
        """The spec of the sweep; InputError for a range that is not one."""
        text = self.typed if self.over == OWN else RANGES[self.over]
        if not text:
            raise InputError("--over", text, "a range, as rate=0.5,1,2")
        name, values = parse_over(text)
        slots = max((int(value) for value in values), default=8) if name == "concurrency" else 8
        return {
            "workload": self.workload,
            "over": name,
            "values": list(values),
            "slo": self.slo or None,
            "repeats": self.repeats,
            "max_tokens_cap": self.max_tokens,
            "price_per_device_hour": self.price,
            "demand_rps": self.demand_rps or None,
            # Room in the batch for all clients: a knee of latency, not the wait for a slot.
            "settings": {"max_num_seqs": slots} if slots > 8 else {},
            "concurrency": CLIENTS_OF_SLOTS if self.over == "slots" else None,
        }
