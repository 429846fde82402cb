"""Whether a process is still the one that was meant: by its id and when it began, since ids are used again."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from experiments.store import Run

# A run without a process for this long was never started: its starter died in between.
START_GRACE_S = 60.0
# Two readings of one process's start time agree within clock ticks; another process's differs by far more.
SAME_START_S = 2.0


def process_started(pid: int | None = None) -> float:
    """When a process began (this one by default), s on a clock that nobody sets: since the machine's start on Linux.

    Elsewhere Unix s. NoSuchProcess of psutil where there is none.
    """
    import psutil

    process = psutil.Process(pid)
    since_boot = _started_since_boot(process.pid)
    return process.create_time() if since_boot is None else since_boot


def _started_since_boot(pid: int) -> float | None:
    """Linux's own figure. psutil adds when the machine started, which moves whenever the wall clock is set."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", errors="replace").rpartition(")")[2].split()
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def is_alive(pid: int, started: float | None) -> bool:
    """Whether that process runs; one that waits to be collected, or another with the same id, does not count."""
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        # Runs of earlier versions have Unix s.
        known = (process_started(pid), process.create_time())
        return started is None or any(abs(each - started) < SAME_START_S for each in known)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def oom_kills() -> int | None:
    """How many processes the system has killed because memory ran out; None where it doesn't tell (not Linux)."""
    try:
        lines = Path("/proc/vmstat").read_text("ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def is_at_work(run: Run) -> bool:
    """Whether the process of a run that has not ended is alive, or may still come."""
    if run.pid is None:
        return abs(age_s(run)) < START_GRACE_S  # below zero where the clock was set back
    return is_alive(run.pid, run.pid_started)


def owner_is_gone(run: Run) -> bool:
    """Whether the command line that follows a run, if one does, has died."""
    return run.owner_pid is not None and not is_alive(run.owner_pid, run.owner_started)


def age_s(run: Run) -> float:
    """Seconds since the run was made."""
    return (datetime.now(UTC) - datetime.fromisoformat(run.created_at)).total_seconds()
