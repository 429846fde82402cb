"""What a run over the claims is asked: which rows, whether time is short, and options for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from experiments.claims.budget import QUICK_S
from experiments.claims.catalogue import get_claim, load_claims
from experiments.kinds import kind_of
from ledger.errors import InputError


@dataclass(frozen=True)
class ClaimsSpec:
    """claims: ids in their order; all by default. quick: within QUICK_S. options: of a single claim, for all."""

    quick: bool = False
    claims: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any]) -> ClaimsSpec:
        """Validate a spec; InputError names the first field that is wrong."""
        for name in spec:
            if name not in cls.__dataclass_fields__:
                raise InputError("claims", name, ", ".join(cls.__dataclass_fields__))
        quick, asked = spec.get("quick", False), spec.get("claims") or ()
        if not isinstance(quick, bool):
            raise InputError("quick", quick, "true or false")
        if isinstance(asked, str) or not isinstance(asked, Sequence):
            raise InputError("claims", asked, "a list of ids, as C10")
        chosen = {get_claim(str(one)).id for one in asked}
        ids = tuple(claim.id for claim in load_claims() if not chosen or claim.id in chosen)
        options = kind_of("claim").check({"claim": ids[0], "options": spec.get("options") or {}})["options"]
        return cls(quick, ids, options)

    def to_dict(self) -> dict[str, Any]:
        """The spec as JSON."""
        return {**asdict(self), "claims": list(self.claims), "options": dict(self.options)}

    def of_row(self, claim_id: str) -> dict[str, Any]:
        """The spec of the run of kind "claim" that checks one row."""
        return kind_of("claim").check({"claim": claim_id, "options": dict(self.options)})

    @property
    def budget_s(self) -> float | None:
        """Seconds for all rows together; None without a limit."""
        return QUICK_S if self.quick else None
