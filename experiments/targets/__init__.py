"""What a workload is driven at: the engine in this process or a server, behind one interface."""

from experiments.targets.choice import target_for
from experiments.targets.engine import EngineTarget
from experiments.targets.measure import Measured, measure
from experiments.targets.target import Target

__all__ = ["EngineTarget", "Measured", "Target", "measure", "target_for"]
