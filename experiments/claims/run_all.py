"""Checks the claims one after another, each as a run of its own, and says what became of every row.

The result: {"kind":"claims","quick","budget_s","rows":[{"id","section","kind","statement","check","trap","verdict",
"reason","evidence",...,"how","ran_at","took_s","estimated_s","allowed_s","run_id","simulate"}],"counts":{VERDICT: how
many},"took_s","environment","code","warnings","cancelled","run_id"}. verdict is one of a claim's own (runner.py), or
NOT_IN_QUICK, CANT_RUN, FAILED, TAUGHT. how is "ran", "stored" (a run of the same spec, code, models and machine, of
`ran_at`) or null where nothing was run. simulate: {"command","provenance":"simulated"} where a row can't run here and
the simulator can be asked. Every figure has its label in its own evidence.

A finished row is a record of the run under the claim's number: a run that goes on takes those of the same code, models
and machine. A row that ended the process twice is passed over, so that the others get their turn.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from experiments.claims.budget import ALWAYS, allowed_s, estimates, running, shortest_first
from experiments.claims.catalogue import Claim, get_claim
from experiments.claims.runner import can_stop, run_claim
from experiments.claims.spec import ClaimsSpec
from experiments.kinds import kind_of
from experiments.loadgen import Cancelled
from experiments.store import DamagedRecord, Run, Store
from experiments.store.identity import code_hash, environment
from experiments.within import finished_run, run_kept
from ledger.errors import CannotRunError, InputError, is_out_of_memory

NOT_IN_QUICK, CANT_RUN, FAILED, TAUGHT = "not decided in quick mode", "cannot run here", "failed", "lab"
MOST_ENDED = 2  # so often a row may take the process with it

OnLive = Callable[[dict[str, Any]], None]
ShouldCancel = Callable[[], bool]
RunRow = Callable[[dict[str, Any], OnLive, ShouldCancel], Mapping[str, Any]]
"""Checks one row by its spec of kind "claim" and returns its result; Cancelled when it is told to stop."""
Row = dict[str, Any]


class ClaimsCancelled(Cancelled):
    """Cancelled by the user; `result` has the finished rows, None without one."""


def run_claims(
    spec: ClaimsSpec | Mapping[str, Any],
    store: Store,
    run_id: str,
    on_live: OnLive = lambda _: None,
    should_cancel: ShouldCancel = lambda: False,
    *,
    run_row: RunRow | None = None,
    now: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Check the rows of a spec and return the JSON above; ClaimsCancelled with what is there.

    In order of their ids; in quick mode shortest first, within the budget, taking a stored run where there is one.
    run_row: by default a run of kind "claim" in this process.
    """
    checked = spec if isinstance(spec, ClaimsSpec) else ClaimsSpec.from_dict(spec)
    return _All(checked, store, run_id, on_live, should_cancel, run_row or _as_run(store), now).run()


def _as_run(store: Store) -> RunRow:
    """A row as a run of its own in the store, so that its evidence can be opened and later runs find it."""

    def run_row(spec: dict[str, Any], on_live: OnLive, should_cancel: ShouldCancel) -> Mapping[str, Any]:
        return run_kept(
            store,
            "claim",
            spec,
            lambda run_id: kind_of("claim").run(store.get_run(run_id), store, on_live, should_cancel),
        )

    return run_row


class _All:
    def __init__(
        self,
        spec: ClaimsSpec,
        store: Store,
        run_id: str,
        on_live: OnLive,
        should_cancel: ShouldCancel,
        run_row: RunRow,
        now: Callable[[], float],
    ) -> None:
        self.spec, self.store, self.run_id = spec, store, run_id
        self.on_live, self.should_cancel, self.run_row, self.now = on_live, should_cancel, run_row, now
        self.claims = [get_claim(name) for name in spec.claims]
        checkable = [claim for claim in self.claims if claim.state == "checkable"]
        self.specs = {claim.id: spec.of_row(claim.id) for claim in checkable}
        # The rows have their models from the same options, so one look at the machine is that of all.
        self.environment = environment(spec.to_dict())
        self.seconds = estimates(self.specs, store, self.environment)
        self.todo = shortest_first(checkable, self.seconds) if spec.quick else checkable
        self.rows: dict[str, Row] = {}
        self.began = self.now()
        self.spent_before_s = 0.0
        self.ended: Counter[str] = Counter()
        self._take_kept()

    def run(self) -> dict[str, Any]:
        for claim in self.claims:
            if claim.id not in self.specs:
                self.rows[claim.id] = _row(claim, run_claim(claim.id))
        for claim in [one for one in self.todo if one.id not in self.rows]:
            if self.should_cancel():
                raise self._cancelled()
            self.rows[claim.id] = self._checked(claim)
        self._tell(None, {"fraction": 1.0})
        return self._result()

    # -- one row -------------------------------------------------------------------------------------------------

    def _checked(self, claim: Claim) -> Row:
        always = claim.kind in ALWAYS
        if self.spec.quick and not always and (found := self._stored(claim)):
            return self._row(claim, found.result or {}, how="stored", ran_at=found.updated_at)
        if self.ended[claim.id] >= MOST_ENDED:
            return self._row(claim, _no_verdict(FAILED, f"the engine process ended {MOST_ENDED} times while it ran"))
        if not self.spec.quick or always:
            return self._ran(claim, None)
        left = self._left_s()
        allowed = allowed_s(self.seconds[claim.id], left, can_stop=can_stop(claim.id))
        if allowed is None:
            return self._row(claim, _no_verdict(NOT_IN_QUICK, self._needs_longer(claim, left)))
        return self._ran(claim, allowed)

    def _stored(self, claim: Claim) -> Run | None:
        return finished_run(self.store, "claim", self.specs[claim.id], self.environment)

    def _ran(self, claim: Claim, allowed: float | None) -> Row:
        """Run it, for `allowed` seconds at most; what went wrong in it is the row's, not the others'."""
        began = self.now()
        self._keep(claim, None)
        self._tell(claim, {})  # a check of single steps tells nothing itself

        def stop() -> bool:
            return self.should_cancel() or (allowed is not None and self.now() - began > allowed)

        def row(found: Mapping[str, Any], how: str | None = None) -> Row:
            took = self.now() - began
            ran_at = datetime.now(UTC).isoformat(timespec="seconds") if how else None
            return self._row(claim, {"took_s": took, **found}, how=how, ran_at=ran_at, allowed_s=allowed)

        try:
            done = row(self.run_row(self.specs[claim.id], lambda live: self._tell(claim, live), stop), "ran")
        except Cancelled:
            if self.should_cancel():
                self._keep(claim, None, ended=-1)
                raise self._cancelled() from None
            said = f"ended after {self.now() - began:,.0f} s where {self.seconds[claim.id]:,.0f} s were expected"
            done = row(_no_verdict(NOT_IN_QUICK, f"{said}; trilemma claims run {claim.id} decides it"))
        except (InputError, CannotRunError) as error:
            done = row(_no_verdict(CANT_RUN, str(error)) | {"simulate": offer(claim.id)})
        except Exception as error:  # a fault of one check: the others still get their turn
            if is_out_of_memory(error):
                line = "memory: the machine has too little for this check"
                done = row(_no_verdict(CANT_RUN, line) | {"simulate": offer(claim.id)})
            else:
                done = row(_no_verdict(FAILED, f"a fault of ours: {type(error).__name__}: {error}"))
        self._keep(claim, done)
        return done

    def _row(self, claim: Claim, found: Mapping[str, Any], **own: Any) -> Row:
        return _row(claim, found, estimated_s=self.seconds[claim.id], **own)

    def _needs_longer(self, claim: Claim, left: float) -> str:
        return (
            f"it is expected to take {self.seconds[claim.id]:,.0f} s, and {max(0.0, left):,.0f} of"
            f" {self.spec.budget_s or 0:,.0f} s were left; trilemma claims run {claim.id} decides it"
        )

    def _left_s(self) -> float:
        return (self.spec.budget_s or 0.0) - self.spent_before_s - (self.now() - self.began)

    # -- what is kept ----------------------------------------------------------------------------------------------

    def _keep(self, claim: Claim, row: Row | None, ended: int = 0) -> None:
        """The row under its number; before it runs, that it has begun, which stays there if the process ends in it."""
        decided = row if row is not None and row["how"] else None
        record = {
            "row": decided,
            "begun": self.ended[claim.id] + 1 + ended if row is None else 0,
            "took_s": None if row is None else row["took_s"],
            "code": code_hash(),
            "environment": self.environment,
        }
        self.store.add_record(self.run_id, int(claim.id[1:]), 1, record)

    def _take_kept(self) -> None:
        """Rows of an earlier start with the same code, models and machine, and the time that they took."""
        known = {number for number, _ in self.store.record_keys(self.run_id)}
        for name in self.specs:
            if int(name[1:]) not in known:
                continue
            try:
                record = self.store.record(self.run_id, int(name[1:]), 1)
            except DamagedRecord:  # checked anew
                continue
            self.spent_before_s += record["took_s"] or 0.0
            if (record["code"], record["environment"]) != (code_hash(), self.environment):
                continue
            self.ended[name] = record["begun"]
            if record["row"] is not None:
                self.rows[name] = record["row"]

    # -- what is told ------------------------------------------------------------------------------------------------

    def _tell(self, claim: Claim | None, inner: Mapping[str, Any]) -> None:
        """The live object: how far all rows are, by what each is expected to take, and what the row at work says."""
        doing = self.seconds[claim.id] if claim else 0.0
        done = sum(self.seconds[name] for name in self.rows if name in self.seconds)
        total = sum(self.seconds[one.id] for one in self.todo)
        if self.spec.quick:  # what is passed over takes no time
            total = min(total, max(self.spec.budget_s or 0.0, done + doing))
        so_far = done + doing * float(inner.get("fraction") or 0.0)
        fraction = 1.0 if claim is None else min(1.0, so_far / total)
        place = sum(one.id in self.rows for one in self.todo) + (claim is not None)
        self.on_live(
            {
                "phase": "running" if claim else "done", "arm": 0, "repeat": place, "repeats": len(self.todo),
                "fraction": fraction, "eta_s": None if claim is None else round(max(0.0, total - so_far), 1),
                "estimate": None, "snapshot": None, "series": None, "previous_series": None, "repeats_so_far": [],
                "claim": claim.id if claim else None, "experiment": inner.get("experiment"),
                "experiments": inner.get("experiments"),
            }
        )  # fmt: skip

    def _result(self, *, cancelled: bool = False) -> dict[str, Any]:
        rows = [self.rows[name] for name in self.spec.claims if name in self.rows]
        return {
            "kind": "claims",
            "quick": self.spec.quick,
            "budget_s": self.spec.budget_s,
            "rows": rows,
            "counts": dict(Counter(row["verdict"] for row in rows)),
            "took_s": self.spent_before_s + self.now() - self.began,
            "environment": self.environment,
            "code": code_hash(),
            "warnings": [],
            "cancelled": cancelled,
            "run_id": self.run_id,
        }

    def _cancelled(self) -> ClaimsCancelled:
        return ClaimsCancelled(self._result(cancelled=True) if any(self._decided()) else None)

    def _decided(self) -> Sequence[str]:
        return [name for name in self.specs if name in self.rows]


def offer(claim_id: str) -> dict[str, str] | None:
    """How to ask the simulator about a claim that can't be measured here; None where it has no answer to give."""
    row = running().get(claim_id)
    if row is None or row.simulate is None:
        return None
    return {"command": f"trilemma simulate {row.simulate}", "provenance": "simulated"}


def _no_verdict(verdict: str, reason: str) -> dict[str, Any]:
    return {"verdict": verdict, "reason": reason, "evidence": []}


def _row(claim: Claim, found: Mapping[str, Any], **own: Any) -> Row:
    """The claim, what was found of it, and how."""
    blank = {"how": None, "ran_at": None, "took_s": None, "estimated_s": None, "allowed_s": None, "run_id": None,
             "simulate": None}  # fmt: skip
    shown = {key: value for key, value in claim.to_json().items() if key not in ("state", "needs")}
    return {**blank, **shown, **found, **own}
