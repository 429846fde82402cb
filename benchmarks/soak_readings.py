"""What a long run leaves on a machine, read from /proc over time, and whether any of it grows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

MIB = 2**20
SHARED_MEMORY = Path("/dev/shm")
# Most growth a minute that is no leak: allocators and caches of a process settle for long, descriptors don't.
LIMITS = {
    "driver_rss_mib": 1.0,
    "driver_threads": 0.1,
    "driver_descriptors": 0.1,
    "server_rss_mib": 1.0,
    "server_threads": 0.1,
    "server_descriptors": 0.1,
    "children": 0.1,
    "zombies": 0.05,
    "segments": 0.1,
}
# Below so many minutes behind the warm-up a slope is noise, and none is judged.
LEAST_MINUTES = 5.0
WARM_UP_SHARE, MOST_WARM_UP_S = 0.25, 300.0


def segments() -> set[str]:
    """Names of the machine's shared memory."""
    with suppress(OSError):
        return {path.name for path in SHARED_MEMORY.iterdir()}
    return set()


def processes_of(home: Path) -> list[psutil.Process]:
    """Living processes whose run store is `home`, whoever started them; not this one."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            alive = process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
            if alive and process.environ().get("TRILEMMA_HOME") == str(home):
                found.append(process)
    return found


def bytes_under(folder: Path) -> int:
    """Size of all files of a folder; one that goes meanwhile counts nothing."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total


@dataclass
class Watch:
    """Readings of this process (`driver`), the server and all their children, by seconds since the start."""

    server: psutil.Process
    home: Path
    segments_before: set[str]

    def read(self, t_s: float, active: int) -> dict[str, float]:
        """One reading; what a process that has just ended can't tell is left out."""
        driver = psutil.Process()
        children = driver.children(recursive=True)
        zombies, workers = 0, 0.0
        for child in children:
            with suppress(psutil.Error):
                zombies += child.status() == psutil.STATUS_ZOMBIE
                workers += child.memory_info().rss if child.pid != self.server.pid else 0
        return {
            "t_s": round(t_s, 2),
            **_of("driver", driver),
            **_of("server", self.server),
            "children": len(children),
            "zombies": zombies,
            "children_rss_mib": round(workers / MIB, 1),
            "segments": len(segments() - self.segments_before),
            "store_mib": round(bytes_under(self.home) / MIB, 2),
            "active": active,
        }


def _of(name: str, process: psutil.Process) -> dict[str, float]:
    with suppress(psutil.Error):
        return {
            f"{name}_rss_mib": round(process.memory_info().rss / MIB, 2),
            f"{name}_threads": process.num_threads(),
            f"{name}_descriptors": process.num_fds(),
        }
    return {}


def slope_per_minute(points: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes between all pairs of (s, value): a few spikes don't move it. 0 for fewer than two."""
    if len(points) < 2:
        return 0.0
    times, values = np.array(points, dtype=float).T
    first, second = np.triu_indices(len(points), 1)
    spans = times[second] - times[first]
    apart = spans > 0
    if not apart.any():
        return 0.0
    return float(60 * np.median((values[second] - values[first])[apart] / spans[apart]))


def growth(readings: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Growth a minute of everything in LIMITS behind the warm-up, its limit, and whether it may be judged and holds."""
    length_s = readings[-1]["t_s"] if readings else 0.0
    warm_s = min(MOST_WARM_UP_S, WARM_UP_SHARE * length_s)
    later = [one for one in readings if one["t_s"] >= warm_s]
    minutes = (length_s - warm_s) / 60
    judged = minutes >= LEAST_MINUTES
    rows = {}
    for name, limit in LIMITS.items():
        points = [(one["t_s"], one[name]) for one in later if name in one]
        per_minute = slope_per_minute(points)
        values = [value for _, value in points]
        rows[name] = {
            "per_minute": round(per_minute, 4),
            "limit": limit,
            "first": values[0] if values else None,
            "last": values[-1] if values else None,
            "most": max(values, default=None),
            "holds": bool(per_minute <= limit) if judged else None,
        }
    return {"warm_up_s": round(warm_s, 1), "minutes": round(minutes, 2), "judged": judged, "rows": rows}
