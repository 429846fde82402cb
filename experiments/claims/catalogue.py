"""The claims as data: claims.yaml, its texts in Chinese in claims_zh.yaml. Knows nothing about how a check runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ledger.errors import unknown_name

KINDS = ("arithmetic", "measured", "simulated", "knowledge")


@dataclass(frozen=True)
class Claim:
    """A statement people make, how the workbench checks it, and where the popular form is loose.

    `kind` says what settles it: arithmetic (formulas), measured (the engine here), simulated (other hardware) or
    knowledge (a lab teaches it). `needs` names the part of the workbench the check waits for; None = it runs now.
    `lab` is the id of the lab that teaches and asks it, in place of a check.
    """

    id: str
    section: str
    kind: str
    statement: str
    check: str
    trap: str | None = None
    needs: str | None = None
    lab: str | None = None

    @property
    def state(self) -> str:
        """ "lab", "checkable" or "open"."""
        if self.lab:
            return "lab"
        return "open" if self.needs else "checkable"

    def to_json(self) -> dict[str, Any]:
        """The fields and the state as one JSON object."""
        return asdict(self) | {"state": self.state}


@lru_cache(maxsize=1)
def load_claims() -> tuple[Claim, ...]:
    """All claims in the order of their ids."""
    return tuple(Claim(**row) for row in _read("claims.yaml"))


@dataclass(frozen=True)
class ClaimTexts:
    """What a reader sees of a claim, in one language."""

    statement: str
    check: str
    trap: str | None = None


@lru_cache(maxsize=2)
def claim_texts(lang: str) -> dict[str, ClaimTexts]:
    """The texts of all claims by id, in "en" or "zh"."""
    if lang == "en":
        return {claim.id: ClaimTexts(claim.statement, claim.check, claim.trap) for claim in load_claims()}
    rows = _read(f"claims_{lang}.yaml")
    return {row["id"]: ClaimTexts(row["statement"], row["check"], row.get("trap")) for row in rows}


def _read(name: str) -> list[dict[str, Any]]:
    import yaml

    found: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name(name).read_text(encoding="utf-8"))["claims"]
    return found


def get_claim(claim_id: str) -> Claim:
    """The claim with this id (upper or lower case); InputError when there is none."""
    for claim in load_claims():
        if claim.id == claim_id.upper():
            return claim
    ids = [claim.id for claim in load_claims()]
    raise unknown_name("claim", claim_id, ids, f"{ids[0]} to {ids[-1]}")
