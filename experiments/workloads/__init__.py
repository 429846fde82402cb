"""What the requests are: built-in workloads, workload files and traces, drawn or replayed with one seed before a run.

`build` gives a Workload for a name; workload.py says what a driver does with it, schedule.py does it for any driver.
"""

from experiments.workloads.arrivals import burst_arrivals_ns, poisson_arrivals_ns
from experiments.workloads.builtin import WORKLOADS
from experiments.workloads.schedule import Due, Schedule, whole_prompt
from experiments.workloads.source import build
from experiments.workloads.spec import WorkloadSpec
from experiments.workloads.text import TokenizerLike
from experiments.workloads.workload import Workload, WorkloadRequest

__all__ = [
    "WORKLOADS",
    "Due",
    "Schedule",
    "TokenizerLike",
    "Workload",
    "WorkloadRequest",
    "WorkloadSpec",
    "build",
    "builtin",
    "burst_arrivals_ns",
    "lengths",
    "options",
    "poisson_arrivals_ns",
    "repetitive",
    "schedule",
    "source",
    "spec",
    "text",
    "whole_prompt",
]
