"""What a workload is driven at: the engine in this process or a server, behind one interface."""

from experiments.targets.choice import target_for
from experiments.targets.endpoint import EndpointTarget
from experiments.targets.engine import EngineTarget
from experiments.targets.measure import Measured, measure
from experiments.targets.target import Target
from experiments.targets.warnings import warnings_of

__all__ = [
    "EndpointTarget",
    "EngineTarget",
    "Measured",
    "Target",
    "client",
    "dialect",
    "engine",
    "measure",
    "simulator",
    "target",
    "target_for",
    "warnings_of",
]
