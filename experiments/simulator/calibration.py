"""`trilemma calibrate --simulator`: fits the model of step times to the engine on this device, in under 2 minutes.

Two sources. Steps of the design, run by the engine's executor on dummy rows, in rounds whose order is turned each time,
so that what disturbs the machine for a while does not fall on one kind of step; each counts by its median times how far
means lie above medians here. Then the whole engine on short requests: executions as they are among a scheduler's work,
and the host's own time for a step and a row.

Kept in simulator.json beside the other calibration, one entry for each model, number formats, kernels and threads, with
environment, residuals and the cross-validated error.
"""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from core_engine.config import EngineConfig
from experiments.asked_to_stop import go_on
from experiments.simulator.design import Designed, design
from experiments.simulator.fit import Fit, Observation, fit
from experiments.store import data_home
from experiments.whole_file import write_whole
from ledger.device_profile import DeviceProfile, Efficiency
from ledger.errors import CannotRunError, InputError
from ledger.hardware import Accelerator
from ledger.model_spec import ModelSpec
from ledger.step_time import StepTimes

VERSION = 1
FILE_NAME = "simulator.json"
BUDGET_S = 75.0  # for the design's steps; loading, the ceilings and the engine's own run come on top
CEILINGS_S = 6.0
LONGEST_TOKENS = 1024  # of a sequence in the design; beyond, attention grows as its class says
MOST_ROUNDS, FEWEST_ROUNDS = 9, 3
RUN_PROMPT, RUN_ANSWER = 48, 24
RUN_WEIGHT = 0.2  # of a step of the engine's run beside a median of the design
LONGEST_DISTURBED = 5.0  # an execution that took longer counts as this many times its median
PROBES, PROBE_S = 8, 1.5  # kinds of step, and seconds, that tell whether the machine is as fast as it was
LONGEST_PROBED_S = 0.25  # a kind that takes longer is no probe: the others would be seen too seldom beside it
BAND = 2.0  # an error band is so many times the cross-validated error
# Settings that a calibration holds for; others change plans, not the time of a step.
OF_A_STEP = (
    "model", "device", "dtype", "weights", "weight_group", "weight_symmetric", "head_weights", "kv_dtype",
    "kv_key_axis", "kv_protect", "block_size", "kernels", "graph", "overlap", "fused_ops", "attention", "kv_splits",
    "pin_threads", "threads",
)  # fmt: skip

Report = Callable[[str], None]


def calibrate_simulator(
    settings: Mapping[str, Any] | None = None,
    *,
    budget_s: float = BUDGET_S,
    report: Report = lambda _: None,
    rig: Any = None,
) -> dict[str, Any]:
    """Measure and fit the engine of `settings` on this device; the entry that `store` keeps.

    rig: where engines and models come from, to share loaded weights with the caller. InputError and CannotRunError as
    the engine.
    """
    from experiments.rig import Rig, machine

    began = time.perf_counter()
    config = EngineConfig.from_settings(settings)
    _refuse_several_processes(config)
    rig = rig or Rig(report)
    report("loading the model")
    loaded = rig.loaded(config)
    card = _ceilings(config, loaded, report)
    engine = rig.engine(config)
    formats = formats_of(config, engine.environment["dtype"])
    times = StepTimes(loaded.spec, at_ceilings(card), weights=formats["weights"], kv_dtype=formats["kv_dtype"])
    steps = _design_of(engine)
    report(f"measuring {len(steps)} kinds of step")
    timings = _design_timings(engine, steps, budget_s)
    by_load, medians = disturbance(timings), [median(seconds) for seconds in timings]
    observations = [
        Observation(times.shape(step.rows), by_load * seconds, step.group)
        for step, seconds in zip(steps, medians, strict=True)
    ]
    in_run, (host_step_s, host_row_s) = _run_observations(engine, times, report)
    found = fit(times, [*observations, *in_run])
    profile = replace(
        found.profile,
        host_step_s=found.profile.host_step_s + host_step_s,
        host_row_s=found.profile.host_row_s + host_row_s,
    )
    host = (host_step_s, host_row_s)
    entry = _entry(config, loaded.spec, formats, profile, found, host, engine.environment | machine(), began)
    groups = [step.group for step in steps]
    alone = {group: seconds for group, seconds in zip(groups, medians, strict=True) if groups.count(group) == 1}
    return {**entry, "disturbance": by_load, "steps_s": alone}


def _refuse_several_processes(config: EngineConfig) -> None:
    """A calibration is of one engine on this device: simulated splits follow from it and a link."""
    for name, usual in (("tensor_parallel", 1), ("pipeline_parallel", 1), ("disaggregation", "off")):
        if (given := config.settings()[name]) != usual:
            raise InputError(name, given, f"{usual}: one process is calibrated, splits are simulated from it")


def formats_of(config: EngineConfig, dtype: str) -> dict[str, str]:
    """The ledger's names of the formats of weights and KV that a configuration runs in, `dtype` being its auto."""
    named = {"none": dtype, "as-stored": "q4_1", "w8a16": "w8a16", "w8a8": "w8a8"}
    weights = named.get(config.weights, f"w4a16-g{config.weight_group}")
    return {"weights": weights, "kv_dtype": dtype if config.kv_dtype == "auto" else config.kv_dtype}


def store(entry: Mapping[str, Any]) -> Path:
    """Keep an entry in place of an older one for the same settings; the file is replaced whole. Returns its path."""
    path = calibration_file()
    others = [item for item in stored() if item["for"] != entry["for"]]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = {"version": VERSION, "entries": [*others, entry]}
        write_whole(path, json.dumps(kept, indent=1, allow_nan=False).encode())
    except OSError as error:
        raise CannotRunError(f"calibration: {path} cannot be written ({error.strerror or error})") from error
    return path


def stored() -> list[dict[str, Any]]:
    """The entries of this machine; none when the file is missing, unreadable or of another version."""
    try:
        found = json.loads(calibration_file().read_text("utf-8"))
    except (OSError, ValueError):
        return []
    good = isinstance(found, dict) and found.get("version") == VERSION and isinstance(found.get("entries"), list)
    return found["entries"] if good else []


def calibration_file() -> Path:
    """Where calibrations of the simulator are kept: $TRILEMMA_HOME/simulator.json."""
    return data_home() / FILE_NAME


def profile_here(config: EngineConfig) -> tuple[DeviceProfile, dict[str, Any]]:
    """(profile, entry) of this machine for a configuration; CannotRunError when it is not calibrated for that."""
    wanted = settings_of_a_step(config)
    for entry in reversed(stored()):
        if entry["for"] == wanted:
            return profile_of(entry), entry
    differing = " ".join(f"--set {name}={value}" for name, value in _unusual(wanted).items())
    command = f"trilemma calibrate --simulator {differing}".strip()
    raise CannotRunError(f"simulator: it is not calibrated on this machine for these settings; run `{command}` (2 min)")


def settings_of_a_step(config: EngineConfig) -> dict[str, Any]:
    """What of a configuration the time of a step depends on."""
    return {name: config.settings()[name] for name in OF_A_STEP}


def _unusual(settings: Mapping[str, Any]) -> dict[str, Any]:
    usual = EngineConfig().settings()
    return {name: value for name, value in settings.items() if value != usual[name]}


def profile_of(entry: Mapping[str, Any]) -> DeviceProfile:
    """The profile that an entry holds."""
    card = dict(entry["accelerator"])
    for name in ("sources", "aliases"):
        card[name] = tuple(card[name])
    kept = {
        kind: Efficiency(value["compute"], value["memory"], tuple((rows, times) for rows, times in value["slowdown"]))
        for kind, value in entry["efficiencies"].items()
    }
    error = entry["fit"]["cross_validated_error_pct"]["mean"]
    return DeviceProfile(
        "this",
        Accelerator(**card),
        kept,
        host_step_s=entry["host_step_s"],
        host_row_s=entry["host_row_s"],
        calibration="measured",
        error_band_pct=BAND * error,
        sources=(f"trilemma calibrate --simulator, {entry['date']}, cross-validated error {error:.1f} %",),
    )


def _entry(
    config: EngineConfig,
    spec: ModelSpec,
    formats: Mapping[str, str],
    profile: DeviceProfile,
    found: Fit,
    host: tuple[float, float],
    environment: Mapping[str, Any],
    began: float,
) -> dict[str, Any]:
    return {
        "for": settings_of_a_step(config),
        "model": spec.name,
        "formats": dict(formats),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "duration_s": time.perf_counter() - began,
        "environment": dict(environment),
        "accelerator": {**asdict(profile.accelerator), "flops_per_s": dict(profile.accelerator.flops_per_s)},
        "efficiencies": {kind: asdict(kept) for kind, kept in profile.efficiencies.items()},
        "host_step_s": profile.host_step_s,
        "host_row_s": profile.host_row_s,
        "engine_host_s": {"step": host[0], "row": host[1]},
        "fit": found.to_json(),
        "provenance": "measured",
    }


def _ceilings(config: EngineConfig, loaded: Any, report: Report) -> Accelerator:
    """This machine's roof: the stored calibration, else a short one, which is not kept."""
    from experiments import calibrate as measuring

    device = loaded.weights.device.type
    known = measuring.this_machine(device)
    if known is not None:
        return known
    report("measuring this machine's ceilings")
    result = measuring.calibrate(config.threads, CEILINGS_S)
    return measuring.as_accelerator(next(item for item in result["devices"] if item["device"] == device), result)


def at_ceilings(card: Accelerator) -> DeviceProfile:
    """A device whose every step is as fast as its bandwidth and rates allow."""
    from ledger.device_profile import CLASSES

    return DeviceProfile("this", card, {kind: Efficiency() for kind in CLASSES})


# -- the design's steps ------------------------------------------------------------------------------------------


def _design_of(engine: Any) -> list[Designed]:
    config, size = engine.config, engine.config.block_size
    capacity = engine.pool.num_blocks * size
    return design(
        max_num_seqs=config.max_num_seqs,
        max_tokens=config.max_num_batched_tokens,
        longest=min(LONGEST_TOKENS, engine.max_position, capacity),
        capacity=capacity - size * config.max_num_seqs,
        block_size=size,
    )


def _design_timings(engine: Any, steps: Sequence[Designed], budget_s: float) -> list[list[float]]:
    """Seconds of every execution of each step, in rounds that turn their order."""
    plans = [_plan(step, engine.config.block_size) for step in steps]
    for plan in plans:
        _timed(engine, plan)
    seconds: list[list[float]] = [[] for _ in plans]
    began, rounds = time.perf_counter(), 0
    while rounds < MOST_ROUNDS and (rounds < FEWEST_ROUNDS or time.perf_counter() - began < budget_s):
        order = range(len(plans)) if rounds % 2 == 0 else reversed(range(len(plans)))
        for place in order:
            go_on()
            seconds[place].append(_timed(engine, plans[place]))
            if rounds >= FEWEST_ROUNDS and time.perf_counter() - began > budget_s:
                break
        rounds += 1
    return seconds


def disturbance(timings: Sequence[Sequence[float]]) -> float:
    """By what factor the mean of repeated steps lies above their median, over all kinds together.

    A run's latency is a sum of steps, so it has the mean of what the system does to them, while the median of a few
    repeats is the steadier figure for each kind. One execution counts as at most LONGEST_DISTURBED times its median.
    """
    shares = [min(LONGEST_DISTURBED, one / median(kind)) for kind in timings if kind for one in kind]
    return max(1.0, sum(shares) / len(shares)) if shares else 1.0


def probe(entry: Mapping[str, Any], engine: Any, budget_s: float = PROBE_S) -> dict[str, list[float]]:
    """Seconds of executions made now, by kind: PROBES of the entry's kinds of step, spread over the short ones."""
    known = entry["steps_s"]
    every = [step for step in _design_of(engine) if step.group in known]
    steps = [step for step in every if known[step.group] < LONGEST_PROBED_S] or every
    chosen = [steps[place * (len(steps) - 1) // (PROBES - 1)] for place in range(PROBES)]
    timings = _design_timings(engine, chosen, budget_s)
    return {step.group: seconds for step, seconds in zip(chosen, timings, strict=True)}


def drift(entry: Mapping[str, Any], probes: Sequence[Mapping[str, Sequence[float]]]) -> float:
    """How many times as long steps took in these probes as the entry reckons with: the geometric mean over kinds of the
    ratio of means, as an entry counts them. 1 = the machine is as fast, and as much disturbed, as it was.
    """
    pooled: dict[str, list[float]] = defaultdict(list)
    for one in probes:
        for kind, seconds in one.items():
            pooled[kind] += seconds
    logs = [
        math.log(median(seconds) * disturbance([seconds]) / entry["steps_s"][kind]) for kind, seconds in pooled.items()
    ]
    return math.exp(sum(logs) / len(logs)) / entry["disturbance"]


def _plan(step: Designed, block_size: int) -> Any:
    from core_engine.plan import GREEDY, Row, StepPlan

    rows, first = [], 0
    for slot, (start, count, wanted, is_prefill) in enumerate(step.rows):
        blocks = -(-(start + count) // block_size)
        table = tuple(range(first, first + blocks))
        sampling = GREEDY if wanted else None
        rows.append(Row(f"probe{slot}", start, (1,) * count, table, is_prefill, sampling, slot=slot))
        first += blocks
    return StepPlan(0, tuple(rows), ())


def _timed(engine: Any, plan: Any) -> float:
    """Seconds of an execution, finished on the device."""
    began = time.perf_counter()
    engine.executor.execute(plan)
    if engine.loaded.weights.device.type == "cuda":
        import torch

        torch.cuda.synchronize()
    return time.perf_counter() - began


# -- the engine's own run ----------------------------------------------------------------------------------------


def _run_observations(engine: Any, times: StepTimes, report: Report) -> tuple[list[Observation], tuple[float, float]]:
    """Executions of a run of short requests, and (seconds of host work a step, a row) between them."""
    from core_engine.sampling_params import SamplingParams

    report("running the engine")
    many = engine.config.max_num_seqs
    prompt = min(RUN_PROMPT, engine.config.max_num_batched_tokens, engine.max_position // 2)
    for number in range(2 * many):
        answer = RUN_ANSWER * (1 + number % 4) // 2
        params = SamplingParams(max_tokens=answer, ignore_eos=True)
        engine.add([2 + (number + place) % 5 for place in range(prompt - number % 3)], params)
    engine.expect_more_arrivals(False)
    while engine.has_unfinished():
        go_on()
        engine.step()
    steps = engine.record()["steps"]
    found = []
    for step in steps[2:]:
        rows = [(start, count, int(sample), kind == "prefill") for _, start, count, kind, sample in step["rows"]]
        shape = times.shape(rows)
        seconds = (step["execute_end_ns"] - step["execute_start_ns"]) / 1e9
        found.append(Observation(shape, seconds, f"run {shape.tokens}", RUN_WEIGHT))
    return found, host_of(steps)


def host_of(steps: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """(seconds a step, seconds a row) between one execution's end and the next one's beginning, by the medians at each
    number of rows and the median slope between them."""
    at: dict[int, list[float]] = defaultdict(list)
    for before, after in pairwise(steps):
        at[after["num_seqs"]].append((after["execute_start_ns"] - before["execute_end_ns"]) / 1e9)
    points = sorted((rows, median(seconds)) for rows, seconds in at.items() if rows)
    if len(points) < 2:
        return (points[0][1], 0.0) if points else (0.0, 0.0)
    slopes = [
        (high[1] - low[1]) / (high[0] - low[0]) for place, low in enumerate(points) for high in points[place + 1 :]
    ]
    slope = max(0.0, median(slopes))
    return max(0.0, median([seconds - slope * rows for rows, seconds in points])), slope
