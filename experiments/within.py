"""A run within another job, kept as a run of its own so that its evidence can be opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from experiments.loadgen import Cancelled
from experiments.processes import process_started
from experiments.store import Run, Store
from experiments.store.identity import code_hash, environment, identity, spec_hash


def run_kept(
    store: Store, kind: str, spec: Mapping[str, Any], compute: Callable[[str], dict[str, Any]]
) -> dict[str, Any]:
    """Store a run of this process, compute its result from its id, and keep how it ended; raises as compute does."""
    started: dict[str, Any] = {"state": "running", "pid": os.getpid(), "pid_started": process_started()}
    run_id = store.create_run(kind, spec, **started, **identity(spec))
    try:
        result = compute(run_id)
    except Cancelled as cancelled:
        store.update_run(run_id, state="cancelled", result=cancelled.result)
        raise
    except BaseException as error:
        store.update_run(run_id, state="failed", error=str(error) or type(error).__name__)
        raise
    store.update_run(run_id, state="done", result=result)
    return result


def finished_run(
    store: Store, kind: str, spec: Mapping[str, Any], where: Mapping[str, Any] | None = None
) -> Run | None:
    """The newest finished run of a kind with the same spec, code, models and machine. where: those, if they are known
    (identity.environment of the spec)."""
    found = store.find(kind, spec_hash(spec), code_hash(), where or environment(spec), limit=1)
    return found[0] if found and found[0].result is not None else None
