"""Which cores this process may compute on: affinity, physical cores, and what a container's control groups leave.

Reads the operating system only; every folder it reads can be given, so that other machines can be described in a test.
One thread a physical core: a decode step waits for memory and a prefill keeps both multipliers of a core busy, so a
second hardware thread adds nothing to either and costs a thread at every barrier.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ledger.counted import counted

PROCESS = Path("/proc/self")
CPUS = Path("/sys/devices/system/cpu")


def allowed_cpus() -> tuple[int, ...]:
    """The logical CPUs that this process may run on; where the system knows no affinity, one a physical core."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    import psutil

    return tuple(range(psutil.cpu_count(logical=False) or os.cpu_count() or 1))


def physical_cores(allowed: Sequence[int], system: Path = CPUS) -> tuple[int, ...]:
    """One logical CPU, the lowest allowed, of each physical core. CPUs of which the system says nothing stand alone."""
    first: dict[str, int] = {}
    for cpu in sorted(allowed):
        first.setdefault(_siblings(cpu, system), cpu)
    return tuple(first.values())


def _siblings(cpu: int, system: Path) -> str:
    for name in ("core_cpus_list", "thread_siblings_list"):  # the older kernels' name
        text = _read(system / f"cpu{cpu}" / "topology" / name)
        if text:
            return text
    return str(cpu)


def cpu_quota(process: Path = PROCESS) -> float | None:
    """CPUs' worth of time a second that the control groups (v1 and v2) of a process allow; None without a limit.

    A limit of any group on the way to the root counts, so the lowest is the answer.
    """
    quotas = [quota for folder in _group_folders(process) if (quota := _quota(folder)) is not None]
    return min(quotas, default=None)


def threads_found() -> int:
    """How many threads `threads=0` is: one a physical core, and no more than whole CPUs of the quota, at least one.

    Rounded down: with 1.5 CPUs two threads would use up each 100 ms after 75 and then both stand still until the next,
    in the middle of a step.
    """
    quota, cores = cpu_quota(), len(physical_cores(allowed_cpus()))
    return cores if quota is None else max(1, min(cores, int(quota)))


def describe_cores() -> str:
    """How the number of threads came about, in one line."""
    allowed, quota = allowed_cpus(), cpu_quota()
    cores = len(physical_cores(allowed))
    limit = "" if quota is None else f", limited to {quota:g} CPUs by a control group"
    cpus = f"{len(allowed)} of {counted(os.cpu_count() or 1, 'CPU')}"
    return f"{counted(threads_found(), 'thread')} for {counted(cores, 'physical core')} ({cpus}){limit}"


def _group_folders(process: Path) -> Iterator[Path]:
    """The folders that may hold a CPU limit: the process's groups and their parents, as far as they are mounted."""
    for line in _read(process / "mountinfo").splitlines():
        mount, _, kind = line.partition(" - ")
        kind_fields, fields = kind.split(), mount.split()
        if len(fields) < 5 or len(kind_fields) < 3 or kind_fields[0] not in ("cgroup", "cgroup2"):
            continue
        controller = "" if kind_fields[0] == "cgroup2" else "cpu"
        if controller and controller not in kind_fields[2].split(","):
            continue
        root, mounted_at = Path(fields[3]), Path(fields[4])
        group = _group(process, controller)
        yield mounted_at
        if group is not None and group.is_relative_to(root):  # else it lies outside of what this container sees
            inner = group.relative_to(root)
            yield from (mounted_at / part for part in (inner, *inner.parents) if part != Path("."))


def _group(process: Path, controller: str) -> Path | None:
    for line in _read(process / "cgroup").splitlines():
        fields = line.split(":", 2)
        if len(fields) == 3 and controller in fields[1].split(","):
            return Path(fields[2])
    return None


def _quota(folder: Path) -> float | None:
    quota, _, period = _read(folder / "cpu.max").partition(" ")  # v2: "150000 100000" or "max 100000"
    if not quota:
        quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")  # v1: -1 is no limit
    try:
        limit = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return None
    return limit if limit > 0 else None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
