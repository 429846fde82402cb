"""Jobs as a page starts and changes them: every run is its visitor's, and another's is left alone.

The pages' buttons are drawn by the same rule; it is asked here again, since a run may be another's by the time that a
button is pressed. Errors are those of `experiments.jobs`, and CannotRunError (one line) for a run of someone else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.state import store
from app.visitor import may_change, visitor
from experiments import jobs
from ledger.errors import CannotRunError

NOT_YOURS = "this run was started from another browser; only that one may change it"


def start(kind: str, spec: Mapping[str, Any]) -> str:
    """Start a job of this visitor; its id."""
    return jobs.start(kind, spec, store(), started_by=visitor())


def restart(run_id: str) -> str:
    """Start the spec of any run as a new job of this visitor; its id."""
    return jobs.restart(run_id, store(), started_by=visitor())


def cancel(run_id: str) -> None:
    """Ask a run to stop."""
    jobs.cancel(_own(run_id), store())


def resume(run_id: str) -> None:
    """Go on with a run as the same one."""
    jobs.resume(_own(run_id), store())


def delete(run_id: str) -> None:
    """Remove a run with its records."""
    jobs.delete(_own(run_id), store())


def _own(run_id: str) -> str:
    if not may_change(store().get_run(run_id)):
        raise CannotRunError(NOT_YOURS)
    return run_id
