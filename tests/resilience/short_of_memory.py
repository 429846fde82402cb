"""Run jobs under a real limit of this process's memory: `python -m tests.resilience.short_of_memory MODEL STORE`.

Prints the state and error of a run that is refused memory while it loads, when it takes its KV cache and in a step, and
of one without the limit behind them, in the same process.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.store import Run, Store
from experiments.worker import execute, work

MIB = 2**20
# Less than a model's weights or a step's activations; and less than a cache, but more than all else.
LITTLE, SOME = MIB, 1500 * MIB


def _address_space() -> int:
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmSize:"))


def limit(spare: int | None) -> None:
    """Refuse this process more than `spare` B on top of what it has; None lifts the limit."""
    most = resource.RLIM_INFINITY if spare is None else _address_space() + spare
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


def limited_from(phase: str, spare: int) -> Callable[..., dict[str, Any]]:
    """A worker's `execute` whose process gets no more memory once a phase is reached."""

    def run(run: Run, store: Store, on_live: Callable[[dict[str, Any]], None], cancel: Any) -> dict[str, Any]:
        def told(live: dict[str, Any]) -> None:
            on_live(live)
            if live["phase"] == phase:
                limit(spare)

        return execute(run, store, told, cancel)

    return run


def main() -> None:
    """See the module."""
    model, store = sys.argv[1], Store(sys.argv[2])
    settings = {"model": model, "dtype": "fp32", "threads": 1, "kv_memory_mib": 4, "device": "cpu", "kernels": "torch"}
    spec = {
        "workload": "long-prompts",
        "num_requests": 2,
        "max_prompt_tokens": 300,
        "max_tokens_cap": 4,
        "settings": settings,
    }
    large = {**spec, "settings": {**settings, "kv_memory_mib": 4000}}
    found = {}
    # The first run loads libraries that later ones have, so that it is the model's memory which is refused.
    for name, asked, how in (
        ("before", spec, execute),
        ("load", spec, limited_from("loading", LITTLE)),
        ("kv", large, limited_from("loading", SOME)),
        ("step", spec, limited_from("running", LITTLE)),
        ("after", spec, execute),
    ):
        run_id = store.create_run("bench", asked)
        code = work(run_id, store, how)
        limit(None)
        run = store.get_run(run_id)
        found[name] = {"code": code, "state": run.state, "error": run.error}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
