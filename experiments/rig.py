"""The test rig: loads models once, gives every run a fresh engine, warms up, and measures one run.

Owns what makes runs comparable (same weights, empty pool, warm process, thread count); knows no statistics, no store.
Loading and engine making can be replaced, so that the machinery above is tested without a model.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from core_engine.config import EngineConfig
from experiments import loadgen
from experiments.estimate import Pace, pace_of
from experiments.spec import BenchSpec
from experiments.workloads import Workload, build
from ledger.errors import InputError

# A short piece of the workload is run until two successive runs last the same within 10 %; at least 2, at most 4 runs.
WARM_UP_REQUESTS = 4
WARM_UP_TOKENS = 8
WARM_UP_RUNS = (2, 4)
STABLE_WITHIN = 0.10
# Variables whose values are those of a loaded model, not of an engine.
OF_A_MODEL = (
    "model", "device", "dtype", "kernels", "weights", "weight_group", "weight_symmetric", "head_weights",
    "tensor_parallel", "pipeline_parallel", "disaggregation",
)  # fmt: skip


@dataclass(frozen=True)
class WarmUp:
    """How a process was warmed up; not stable after the last run means the machine was busy with something else.

    pace: the step times it saw, None where a target shows no steps.
    """

    runs: int
    stable: bool
    pace: Pace | None = None


class Rig:
    """Engines by configuration. A model is loaded once for each set of values of OF_A_MODEL."""

    def __init__(self, report: Callable[[str], None] = lambda _: None) -> None:
        self._report = report
        self._loaded: dict[tuple[str, ...], Any] = {}

    def loaded(self, config: EngineConfig) -> Any:
        """The model of `config`; InputError or CannotRunError when it can't be loaded."""
        from core_engine.model.loader import load_model

        key = _loaded_key(config)
        if key not in self._loaded:
            beside = self._weights_bytes()
            loaded = load_model(config, self._report)
            if beside and loaded.runtime_bytes is not None:  # the other model's weights are an account of their own
                loaded = replace(loaded, runtime_bytes=loaded.runtime_bytes - beside)
            self._loaded[key] = loaded
        return self._loaded[key]

    def let_go(self, config: EngineConfig, *, keep: EngineConfig) -> None:
        """Free the model of `config`, unless that of `keep` is the same one."""
        if _loaded_key(config) != _loaded_key(keep):
            loaded = self._loaded.pop(_loaded_key(config), None)
            if loaded is not None:
                loaded.close()

    def close(self) -> None:
        """Let go of all models, and end the ranks of those that have some."""
        for loaded in self._loaded.values():
            loaded.close()
        self._loaded.clear()

    def _weights_bytes(self) -> int:
        return sum(loaded.bytes_here for loaded in self._loaded.values())

    def engine(self, config: EngineConfig, proposer: Any = None, clock: Any = None) -> Any:
        """A new engine with an empty pool. The former one must be let go first, or both pools are in memory.

        proposer: of drafts, instead of the one that the configuration names; clock: instead of one of its own.
        """
        import torch

        from core_engine.clock import MonotonicClock
        from core_engine.disaggregation.engine import DisaggregatedEngine
        from core_engine.engine import Engine
        from core_engine.environment import resolve_threads
        from core_engine.routing import RoutedEngine, same_tokenizer, small_config

        loaded = self.loaded(config)
        small = small_config(config) if config.router == "small-first" else None
        if small is not None:
            same_tokenizer(self.loaded(small).tokenizer, loaded.tokenizer, config.router_small)
        gc.collect()
        torch.set_num_threads(resolve_threads(config.threads))
        engine: Engine | DisaggregatedEngine
        if config.disaggregation == "on":
            engine = DisaggregatedEngine(config, loaded, clock=clock)
        elif small is not None:
            clock = clock or MonotonicClock()
            in_front = Engine(small, self.loaded(small), clock=clock)
            engine = RoutedEngine(config, loaded, in_front, clock=clock)
        else:
            engine = Engine(config, loaded, proposer=proposer, clock=clock)
        engine.beside_bytes = self._weights_bytes() - loaded.bytes_here
        return engine

    def tokenizer(self, config: EngineConfig) -> Any:
        """The tokenizer of the model of `config`."""
        return self.loaded(config).tokenizer


@contextmanager
def rig_or_own(rig: Rig | None) -> Iterator[Rig]:
    """The rig that is given; else one of its own, whose models are let go however the block ends."""
    if rig is not None:
        yield rig
        return
    own = Rig()
    try:
        yield own
    finally:
        own.close()


def _loaded_key(config: EngineConfig) -> tuple[str, ...]:
    """What a loaded model depends on. Ranks and sides are started with their share of the threads."""
    split = config.ranks > 1 or config.disaggregation == "on"
    names = (*OF_A_MODEL, "threads") if split else OF_A_MODEL
    return tuple(str(config.settings()[name]) for name in names)


def draw_workload(spec: BenchSpec, tokenizer: Any) -> Workload:
    """The workload of a spec, the same for the same tokenizer; InputError for what the workload does not accept."""
    return build(
        spec.workload,
        seed=spec.seed,
        tokenizer=tokenizer,
        num_requests=spec.num_requests,
        rate_rps=spec.rate_rps,
        max_tokens_cap=spec.max_tokens_cap,
        max_prompt_tokens=spec.max_prompt_tokens,
        concurrency=spec.concurrency,
        time_scale=spec.time_scale,
        length_scale=spec.length_scale,
    )


def warm_up(
    rig: Rig, config: EngineConfig, workload: Workload, should_cancel: Callable[[], bool] | None = None
) -> WarmUp:
    """Run a short piece of the workload until its duration is stable. Nothing of it is counted.

    InputError when the engine refuses every request of the workload.
    """
    least, most = WARM_UP_RUNS
    # The piece comes at once: a limit of rate or a short queue would refuse it. It comes several times: a stored answer
    # would warm nothing. A router sends all of it on, so that both models get warm.
    queue = max(config.max_queue, WARM_UP_REQUESTS)
    off: dict[str, Any] = {"rate_limit_rps": 0.0, "exact_cache": "off", "semantic_cache": "off"}
    if config.router != "off":
        off["router_threshold"] = 0.0
    engine = rig.engine(replace(config, max_queue=queue, **off))
    durations: list[float] = []
    while len(durations) < most:
        start_ns = engine.clock.now_ns()
        _run_piece(engine, workload, should_cancel)
        durations.append(engine.clock.now_ns() - start_ns)
        if len(durations) >= least and abs(durations[-1] - durations[-2]) <= STABLE_WITHIN * durations[-2]:
            return WarmUp(len(durations), True, pace_of(engine.trace.steps))
    return WarmUp(len(durations), False, pace_of(engine.trace.steps))


def _run_piece(engine: Any, workload: Workload, should_cancel: Callable[[], bool] | None) -> None:
    """The first requests that the engine takes: one that can never fit is a failed request of the run, no end of it."""
    taken, refused = 0, None
    for request in workload.requests:
        short = replace(request, output_tokens=min(request.output_tokens, WARM_UP_TOKENS), arrival_ns=0)
        try:
            engine.add(list(short.prompt_token_ids), loadgen.sampling_params(short, ignore_eos=True))
        except InputError as error:
            refused = refused or error
            continue
        taken += 1
        if taken == WARM_UP_REQUESTS:
            break
    if not taken and refused is not None:
        raise refused
    engine.expect_more_arrivals(False)
    while engine.has_unfinished():
        if should_cancel is not None and should_cancel():
            raise loadgen.Cancelled
        engine.step()


def machine() -> dict[str, Any]:
    """What a run's environment adds to the engine's own description: product version, cores, memory, load before it."""
    import psutil

    from experiments.version import version

    return {
        "trilemma": version(),
        "cores": psutil.cpu_count(logical=True),
        "memory_bytes": psutil.virtual_memory().total,
        "load_before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def busy_warning(environment: dict[str, Any]) -> str | None:
    """A warning when other work takes more than half of a core already: times are longer, and differ more."""
    load, cores = environment.get("load_before"), environment.get("cores")
    if load is None or not cores or load < 0.5 * cores:
        return None
    told = f"the machine was busy before the run (load {load:.2f} on {cores} cores)"
    return f"{told}: times may be longer, and vary more, for it"
