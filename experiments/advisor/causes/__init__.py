"""The tree of causes: what a slow, unsteady or dear server may suffer from, one small class each.

    the sender is late ........................... client-bound
    the time is outside of the steps ............. network-framework-bound
    the first token is late
        it waits ................................. queue-bound <- under-batching
            for memory ........................... kv-memory-bound <- weights-memory-bound
        it is computed ........................... prefill-bound <- cache-miss
    tokens are slow
        the device waits for the host ............ launch-bound
        the device reads ......................... decode-bandwidth-bound
        the device computes ...................... decode-compute-bound, over-admission <- speculation-backfire
    tokens are unsteady .......................... interference-jitter
    answers are worse ............................ quality-risk
    all is fast, and dear ........................ cost-bound

`a <- b` reads: a follows from b (b `explains` a). Both are shown when both match, b first.
"""

from experiments.advisor.causes.base import Cause
from experiments.advisor.causes.computing import (
    DecodeBandwidthBound,
    DecodeComputeBound,
    InterferenceJitter,
    LaunchBound,
    PrefillBound,
)
from experiments.advisor.causes.memory import CacheMiss, KVMemoryBound, WeightsMemoryBound
from experiments.advisor.causes.outside import NetworkFrameworkBound
from experiments.advisor.causes.waiting import ClientBound, OverAdmission, QueueBound, UnderBatching
from experiments.advisor.causes.worth import CostBound, QualityRisk, SpeculationBackfire

CAUSES: tuple[Cause, ...] = (
    ClientBound(),
    WeightsMemoryBound(),
    KVMemoryBound(),
    UnderBatching(),
    QueueBound(),
    CacheMiss(),
    PrefillBound(),
    SpeculationBackfire(),
    LaunchBound(),
    DecodeBandwidthBound(),
    DecodeComputeBound(),
    OverAdmission(),
    InterferenceJitter(),
    NetworkFrameworkBound(),
    QualityRisk(),
    CostBound(),
)

__all__ = ["CAUSES", "Cause", "base"]
