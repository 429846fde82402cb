"""What the requests are: built-in workloads with seeded lengths, texts and arrival schedules."""

from experiments.workloads.arrivals import burst_arrivals_ns, poisson_arrivals_ns
from experiments.workloads.builtin import WORKLOADS, WorkloadSpec
from experiments.workloads.workload import TokenizerLike, Workload, WorkloadRequest, build

__all__ = [
    "WORKLOADS",
    "TokenizerLike",
    "Workload",
    "WorkloadRequest",
    "WorkloadSpec",
    "build",
    "burst_arrivals_ns",
    "poisson_arrivals_ns",
]
