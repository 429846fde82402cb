"""How fast a sweep's engine is before anything like it was measured: from step times that are calibrated or computed.

The simulator's calibration of these settings gives the times of steps; without one, the model's size and this machine's
ceilings give what no step is faster than. Loads no weights. Batches are taken as full of requests of mean lengths:
neither prompts in chunks nor shared prefixes are known here.
"""

from __future__ import annotations

from dataclasses import dataclass

from core_engine.config import EngineConfig
from experiments.calibrate import this_machine
from experiments.simulator.calibration import at_ceilings, formats_of, profile_here
from experiments.simulator.deployment import model_here
from ledger.errors import CannotRunError, InputError
from ledger.step_time import StepTimes

CALIBRATED = "step times that the simulator was calibrated with on this machine"
CEILINGS = "the model's size and this machine's ceilings, which no step is faster than"
ROWS = tuple(2**power for power in range(9))


@dataclass(frozen=True)
class Computed:
    """speeds: (requests running at once, output tokens/s), ascending. is_bound: none is faster, all may be slower."""

    speeds: list[tuple[float, float]]
    how: str
    is_bound: bool


def computed_speeds(config: EngineConfig, prompt_tokens: float, output_tokens: float) -> Computed | None:
    """The speeds at 1, 2, 4, ... requests at once, of so many tokens each, whatever number `config` has seats for.

    None where this machine has neither a calibration nor ceilings, or nothing models these settings.
    """
    try:
        calibrated = _calibrated(config)
        times = calibrated or _of_ceilings(config)
        if times is None:
            return None
        speeds = [(float(rows), _speed(times, rows, prompt_tokens, output_tokens)) for rows in ROWS]
    except (CannotRunError, InputError):
        return None
    return Computed(speeds, CEILINGS if calibrated is None else CALIBRATED, calibrated is None)


def _calibrated(config: EngineConfig) -> StepTimes | None:
    try:
        profile, entry = profile_here(config)
    except CannotRunError:
        return None
    formats = entry["formats"]
    return StepTimes(model_here(config.model), profile, weights=formats["weights"], kv_dtype=formats["kv_dtype"])


def _of_ceilings(config: EngineConfig) -> StepTimes | None:
    if this_machine() is None:
        return None
    from core_engine.environment import dtype_name, resolve_device, resolve_dtype

    device = resolve_device(config.device)
    card = this_machine(device.type)
    if card is None:
        return None
    formats = formats_of(config, dtype_name(resolve_dtype(config.dtype, device)))
    return StepTimes(
        model_here(config.model), at_ceilings(card), weights=formats["weights"], kv_dtype=formats["kv_dtype"]
    )


def _speed(times: StepTimes, rows: int, prompt_tokens: float, output_tokens: float) -> float:
    """Output tokens/s of so many requests that are answered together: each prompt is a step, each further token one of
    all rows, halfway through their answers."""
    prompt, answer = max(1, round(prompt_tokens)), max(1, round(output_tokens))
    prefill_s = times.step_s(times.shape([(0, prompt, 1, True)]))
    decode_s = times.step_s(times.shape([(prompt + answer // 2, 1, 1, False)] * rows))
    return rows * answer / (rows * prefill_s + (answer - 1) * decode_s)
