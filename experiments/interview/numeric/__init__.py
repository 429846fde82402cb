"""Numeric questions: kinds by subject, each with a key from the ledger and mistakes that are told by name."""

from experiments.interview.numeric import latency, memory, money, parallel, roofline, speculation
from experiments.interview.numeric.kind import Kind, NumericGrade, NumericQuestion, drawn

__all__ = ["KINDS", "Kind", "NumericGrade", "NumericQuestion", "drawn"]

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        *memory.KINDS,
        *roofline.KINDS,
        *speculation.KINDS,
        *parallel.KINDS,
        *latency.KINDS,
        *money.KINDS,
    )
}
