"""C24's run as the Parallel page draws it: measured splits, what each rank holds by the ledger, what links add."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiments.store import Run
from ledger.formats import BITS
from ledger.model_spec import load_model_spec
from ledger.parallel import imbalance, part_weight_bytes, rank_parts

CLAIM = "C24"
REPEATS = (1, 2, 4, 8)
Result = Mapping[str, Any]


@dataclass(frozen=True)
class RanksChoice:
    """So many runs of every split, by turns."""

    repeats: int = 4

    def spec(self) -> dict[str, Any]:
        """The spec of the run."""
        return {"claim": CLAIM, "options": {"repeats": self.repeats}}


def is_of_ranks(run: Run) -> bool:
    """Whether a run checks the claim about ranks."""
    return run.spec.get("claim") == CLAIM


def measured(result: Result) -> list[Mapping[str, Any]]:
    """A row a split that ran here, one process first."""
    return [row for row in result["evidence"] if row["provenance"] == "measured"]


def elsewhere(result: Result, provenance: str) -> list[Mapping[str, Any]]:
    """Rows about hardware that is not here: "computed" all-reduces of a step, or "simulated" whole steps."""
    return [row for row in result["evidence"] if row["provenance"] == provenance]


def times_the_step(row: Mapping[str, Any], result: Result) -> float:
    """How many times as long as one process a split's decode step takes."""
    return float(row["decode_step_s"] / measured(result)[0]["decode_step_s"])


@dataclass(frozen=True)
class RankTable:
    """What the ranks of a split hold, and the largest over the mean of their heads and bytes; computed."""

    tp: int
    pp: int
    rows: list[dict[str, Any]]
    heads_imbalance: float
    bytes_imbalance: float


def rank_table(tp: int, pp: int, model: str = "embedded", dtype: str = "fp32") -> RankTable:
    """By the split that the engine makes. InputError for one that the model can't have."""
    spec, element_bytes = load_model_spec(model), BITS[dtype] // 8
    parts = rank_parts(spec, tp, pp)
    rows = [
        {"rank": number, **part.to_json(), "weights_bytes": part_weight_bytes(spec, part, element_bytes)}
        for number, part in enumerate(parts)
    ]
    heads = [row["query_heads"] * (row["layers"][1] - row["layers"][0]) for row in rows]
    return RankTable(tp, pp, rows, imbalance(heads), imbalance(row["weights_bytes"] for row in rows))


def ranks_command(run: Run) -> str:
    """The command line of the run."""
    return f"trilemma claims run {CLAIM} --repeats {run.spec['options'].get('repeats', 'auto')}"
