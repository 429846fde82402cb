"""The arms of an experiment with levers on hardware that is not here, or on this machine's calibration.

A lever that needs texts to be judged is refused before (experiments.levers.spec). Prompts are cut by the embedded
model's tokenizer, so that their lengths in tokens are those of real ones. The simulator repeats itself exactly: an
interval has no width there, and how far off it may be is stated with the card's profile instead.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from core_engine.config import EngineConfig
from core_engine.variables import W4A16
from experiments.levers.spec import LeversSpec
from experiments.simulator.deployment import SimulateSpec, deployed
from experiments.spec import BenchSpec
from experiments.targets.simulator import SimulatorTarget

# What the engine calls formats, in the ledger's words; the others have one name in both.
ON_A_CARD = {"none": "bf16", **dict.fromkeys(W4A16, "w4a16")}
OF_THE_DEVICE = ("weights", "kv_dtype")


def simulated_targets(spec: LeversSpec) -> tuple[list[SimulatorTarget], list[str]]:
    """(one a spec of the experiment, what to warn of). InputError for what can't be simulated, CannotRunError without a
    calibration."""
    from core_engine.model.loader import open_model

    tokenizer = open_model(EngineConfig()).tokenizer()
    made = [deployed(simulate_spec(one, str(spec.gpu))) for one in spec.specs()]
    warnings = list(dict.fromkeys(warning for one in made for warning in one.warnings))
    return [SimulatorTarget(one, tokenizer) for one in made], warnings


def simulate_spec(one: BenchSpec, gpu: str) -> SimulateSpec:
    """An arm as the simulator takes it: on a card, model and formats are the deployment's own fields."""
    common: dict[str, Any] = {item.name: getattr(one, item.name) for item in fields(BenchSpec)}
    if gpu.lower() == "this":
        return SimulateSpec.from_dict({**common, "gpu": gpu})
    settings = dict(one.settings)
    given = {name: str(settings.pop(name)) for name in OF_THE_DEVICE if name in settings}
    model = str(settings.pop("model", SimulateSpec.model))
    if "weights" in given:
        given["weights"] = ON_A_CARD.get(given["weights"], given["weights"])
    return SimulateSpec.from_dict({**common, "settings": settings, "gpu": gpu, "model": model, **given})
