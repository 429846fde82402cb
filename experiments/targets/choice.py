"""Which target a spec asks for."""

from __future__ import annotations

from experiments.rig import Rig
from experiments.spec import BenchSpec
from experiments.targets.endpoint import EndpointTarget
from experiments.targets.engine import EngineTarget
from experiments.targets.target import Target


def target_for(spec: BenchSpec, rig: Rig) -> Target:
    """The target of one arm, nothing of it started yet. `rig` keeps the loaded models for all its targets.

    InputError when the settings don't go together.
    """
    if spec.endpoint is not None:
        return EndpointTarget(spec, spec.config())
    return EngineTarget(spec.config(), rig)
