"""Whether a process is still the one that was meant: by its id and when it began, since ids are used again."""

from __future__ import annotations

from datetime import UTC, datetime

from experiments.store import Run

# A run without a process for this long was never started: its starter died in between.
START_GRACE_S = 60.0
# Two readings of one process's start time agree within clock ticks; another process's differs by far more.
SAME_START_S = 2.0


def process_started(pid: int | None = None) -> float:
    """When a process began (this one by default), Unix s."""
    import psutil

    return psutil.Process(pid).create_time()


def is_alive(pid: int, started: float | None) -> bool:
    """Whether that process runs; one that waits to be collected, or another with the same id, does not count."""
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return started is None or abs(process.create_time() - started) < SAME_START_S
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def is_at_work(run: Run) -> bool:
    """Whether the process of a run that has not ended is alive, or may still come."""
    if run.pid is None:
        return age_s(run) < START_GRACE_S
    return is_alive(run.pid, run.pid_started)


def owner_is_gone(run: Run) -> bool:
    """Whether the command line that follows a run, if one does, has died."""
    return run.owner_pid is not None and not is_alive(run.owner_pid, run.owner_started)


def age_s(run: Run) -> float:
    """Seconds since the run was made."""
    return (datetime.now(UTC) - datetime.fromisoformat(run.created_at)).total_seconds()
