"""How OpenMP's idle threads wait, which must be said before torch is loaded: in the environment of a new process."""

from __future__ import annotations

import os

# libgomp's threads spin long at every barrier before they sleep. When another program wants one of the
# cores (a browser that shows the page is enough), each of the few hundred barriers of a step then costs a time slice:
# decode steps of 1,758 ms against 307 ms with a short spin, 2 busy cores, batch 8.
SPIN_COUNT = "2000"


def worker_environment() -> dict[str, str]:
    """This process's environment with a short spin; what the user has set stays."""
    chosen = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & set(os.environ)
    return dict(os.environ) if chosen else {**os.environ, "GOMP_SPINCOUNT": SPIN_COUNT}


def spin_shortly() -> None:
    """The same for this process, which must not have loaded torch yet."""
    os.environ.update(worker_environment())
