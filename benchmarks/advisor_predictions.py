"""How good are the advisor's predictions here? Comparisons drawn by seed, each predicted before it runs.

    python benchmarks/advisor_predictions.py [--minutes 5] [--count N] [--comparisons 40] [--pilot 16] [--seed 11]
                                             [--set threads=1] [--out FILE.json] [--list]

The draw is uniform over the variables of the registry that change something on a CPU (OFFERED; what is left out, and
why, is in LEFT_OUT), their pairs of values in either order, the built-in workloads and a few loads; a draw that the
engine refuses is drawn again. Before any of the 40 there are the calibrations of the simulator that the arms need, and
a pilot of other comparisons (drawn with another seed, none of the 40), whose outcomes make the first bands. Every
prediction is stored with its run before the run begins, and every outcome serves the predictions after it.

It goes on where it stopped: what is done is in the run store of $TRILEMMA_HOME, found by the hash of its spec. So it
can be run in slices (--minutes; nothing is begun that would not end in that time by what comparisons took so far).
Writes the JSON (benchmarks/results/advisor-predictions.json unless --out says otherwise) and prints the table after
every slice; the exit code is 1 while it is not complete.

Needs a quiet machine: everything in it is a timing. About 10 minutes of calibrations, then 45 to 75 s a comparison.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from core_engine.config import EngineConfig
from core_engine.variables import VARIABLES, Value, parse_setting
from experiments.advisor.prediction import predict
from experiments.advisor.record import outcomes, with_prediction
from experiments.advisor.record_score import score_of
from experiments.advisor.record_table import print_score
from experiments.compare import run_comparison
from experiments.rig import Rig, machine
from experiments.simulator import calibration
from experiments.spec import CompareSpec
from experiments.store import Run, Store
from experiments.store.identity import spec_hash
from experiments.within import run_kept
from ledger.errors import CannotRunError, InputError

REPEATS = 5
FIRST_GUESS_S = 75.0  # of a comparison, before any has run
CALIBRATION_S = 25.0  # of a calibration's steps; loading and the engine's own run come on top
CALIBRATION_GUESS_S = 80.0
POOR_ERROR_PCT = 25.0  # a calibration that is off by more is made again once, and the better one kept
SMALL_POOL = {"kv_memory_mib": 24}

Pair = tuple[Value, Value]


@dataclass(frozen=True)
class Offer:
    """Pairs of values of a variable, and what has to be set beside them for it to act."""

    pairs: tuple[Pair, ...]
    settings: Mapping[str, Value] | None = None


OFFERED: dict[str, Offer] = {
    "batching": Offer((("static", "continuous"), ("dynamic", "continuous"), ("static", "dynamic"))),
    "max_num_seqs": Offer(((1, 4), (2, 8), (4, 8), (4, 16))),
    "max_wait_ms": Offer(((0.0, 200.0), (200.0, 1000.0)), {"batching": "dynamic"}),
    "max_num_batched_tokens": Offer(((32, 256), (64, 256), (128, 512))),
    "chunked_prefill": Offer((("off", "on"),)),
    "kv_layout": Offer((("contiguous", "paged"),), SMALL_POOL),
    "block_size": Offer(((16, 32),)),
    "kv_memory_mib": Offer(((16, 64), (24, 256))),
    "kv_dtype": Offer((("auto", "int8"), ("auto", "int4"))),
    "kv_watermark": Offer(((0.01, 0.2),), SMALL_POOL),
    "prefix_cache": Offer((("off", "on"),)),
    "dtype": Offer((("fp32", "bf16"),)),
    "weights": Offer((("none", "w8a16"), ("none", "w8a8"), ("none", "w4a16-rtn"))),
    "head_weights": Offer((("16bit", "int8"),)),
    "kernels": Offer((("torch", "auto"),)),
    "graph": Offer((("off", "auto"),)),
    "fused_ops": Offer((("off", "on"),)),
    "attention": Offer((("naive", "flash"),)),
    "speculation": Offer((("off", "ngram"),)),
}
LEFT_OUT = {
    "max_queue": "refuses requests, so that the arms serve different ones",
    "rate_limit_rps": "refuses requests, so that the arms serve different ones",
    "kv_key_axis": "acts on INT4 and INT2 alone",
    "kv_protect": "acts on INT4 and INT2 alone",
    "weight_group": "acts on W4A16 alone",
    "weight_symmetric": "acts on W4A16 alone",
    "kv_splits": "changes nothing on one thread",
    "threads": "the other core may be at work",
    "pin_threads": "needs every core for itself",
    "overlap": "changes nothing on a CPU",
    "device": "there is one device",
    "model": "another model is no setting of a server",
    "tensor_parallel": "ranks share the cores that one process has",
    "pipeline_parallel": "ranks share the cores that one process has",
    "micro_batches": "acts with pipeline parallelism alone",
    "disaggregation": "two processes need a core each",
    "draft_model": "acts with speculation alone",
    "num_draft_tokens": "acts with speculation alone",
    "draft_control": "acts with speculation alone",
    "seed": "changes nothing that is timed",
    "exact_cache": "stands in front of the engine; these workloads repeat no request",
    "semantic_cache": "stands in front of the engine; these workloads repeat no question",
    "semantic_threshold": "acts with the semantic cache alone",
    "prompt_compression": "stands in front of the engine, which is sent other prompts",
    "prompt_keep": "acts with prompt compression alone",
    "router": "a second model answers, which is no setting of a server with one",
    "router_small": "acts with the router alone",
    "router_threshold": "acts with the router alone",
}
NOT_CONSIDERED = "nobody has said yet which values of it to draw"
STOPPED = ("KeyboardInterrupt", "SystemExit")  # errors of runs that somebody stopped, which are made again
WORKLOADS = ("mixed", "equal", "chat", "long-doc", "long-prompts", "long-tail", "shared-prefix", "code", "copy", "zh")
LOADS: tuple[dict[str, Any], ...] = (
    {"concurrency": 1, "num_requests": 4},
    {"concurrency": 4, "num_requests": 8},
    {"concurrency": 8, "num_requests": 12},
    {"rate_rps": 1.5, "num_requests": 8},
    {"rate_rps": 8.0, "num_requests": 10},
)
SHORT = {"max_tokens_cap": 16, "max_prompt_tokens": 192}


def left_out() -> dict[str, str]:
    """Every variable of the registry that is never drawn, and why."""
    return {name: LEFT_OUT.get(name, NOT_CONSIDERED) for name in VARIABLES if name not in OFFERED}


def draw(seed: int, count: int, base: Mapping[str, Value], without: frozenset[str] = frozenset()) -> list[CompareSpec]:
    """So many different comparisons; none whose hash is in `without`."""
    chance, found, seen = random.Random(seed), list[CompareSpec](), set(without)
    while len(found) < count:
        spec = _drawn(chance, base)
        if spec is not None and spec_hash(spec.to_dict()) not in seen:
            seen.add(spec_hash(spec.to_dict()))
            found.append(spec)
    return found


def _drawn(chance: random.Random, base: Mapping[str, Value]) -> CompareSpec | None:
    """One draw; None where the engine or the workload refuses it."""
    name = chance.choice(list(OFFERED))
    offer = OFFERED[name]
    pair = list(chance.choice(offer.pairs))
    if chance.random() < 0.5:
        pair.reverse()
    fields = {"workload": chance.choice(WORKLOADS), **chance.choice(LOADS), **SHORT, "seed": chance.randrange(1000)}
    settings = {key: value for key, value in {**base, **(offer.settings or {})}.items() if key != name}
    try:
        spec = CompareSpec.from_dict(
            {**fields, "variable": name, "values": pair, "settings": settings, "repeats": REPEATS}
        )
        spec.configs()
    except InputError:
        return None
    return spec


# -- one slice ---------------------------------------------------------------------------------------------------


class Slice:
    """What is left of the time: asked before anything is begun."""

    def __init__(self, minutes: float | None, count: int | None) -> None:
        self._began, self._minutes, self._left = time.perf_counter(), minutes, count
        self._took: list[float] = []

    def has_time_for(self, guess_s: float) -> bool:
        """Whether something of so many seconds would end in time."""
        if self._minutes is None:
            return True
        return time.perf_counter() - self._began + guess_s <= 60 * self._minutes

    def has_time(self) -> bool:
        """Whether another comparison may begin."""
        guess_s = max(self._took, default=FIRST_GUESS_S)
        return self._left != 0 and self.has_time_for(guess_s)

    def took(self, seconds: float) -> None:
        """Count a comparison."""
        self._took.append(seconds)
        self._left = None if self._left is None else self._left - 1


def main(argv: list[str] | None = None) -> int:
    """Run a slice; 0 when everything has an outcome."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, help="begin nothing that would not end in so many minutes")
    parser.add_argument("--count", type=int, help="comparisons of this slice at most")
    parser.add_argument("--comparisons", type=int, default=40, help="that are scored")
    parser.add_argument("--pilot", type=int, default=16, help="comparisons before them, which are not")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="in all arms; threads=1")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/advisor-predictions.json"))
    parser.add_argument("--list", action="store_true", help="print what is drawn and end")
    options = parser.parse_args(argv)
    base = dict(parse_setting(text) for text in options.set or ["threads=1"])
    scored = draw(options.seed, options.comparisons, base)
    taken = frozenset(spec_hash(spec.to_dict()) for spec in scored)
    pilot = draw(options.seed + 1_000_003, options.pilot, base, taken)
    if options.list:
        for kind, specs in (("pilot", pilot), ("scored", scored)):
            for number, spec in enumerate(specs, 1):
                print(f"{kind} {number:2} {told(spec)}")
        return 0
    store, rig, left = Store(), Rig(_say), Slice(options.minutes, options.count)
    plain = EngineConfig.from_settings(base)
    is_calibrated = _calibrate([*pilot, *scored], rig, left, plain)
    for kind, specs in (("pilot", pilot), ("scored", scored)):
        for number, spec in enumerate(specs, 1):
            if is_calibrated and _outcome_of(spec, store) is None and left.has_time():
                left.took(_run(f"{kind} {number}/{len(specs)}", spec, store, rig, plain))
    result = gathered(pilot, scored, store, options.seed, base)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print_score(result["score"])
    print(f"pilot {result['done']['pilot']} of {len(pilot)}, scored {result['done']['scored']} of {len(scored)}")
    return 0 if result["complete"] else 1


def told(spec: CompareSpec) -> str:
    """A comparison in one line."""
    load = f"{spec.concurrency} clients" if spec.concurrency else f"{spec.rate_rps}/s"
    first, second = spec.values
    beside = " ".join(f"{name}={value}" for name, value in spec.settings.items())
    return f"{spec.variable} {first} -> {second}, {spec.workload}, {load}, {spec.num_requests} requests ({beside})"


def _calibrate(specs: list[CompareSpec], rig: Rig, left: Slice, plain: EngineConfig) -> bool:
    """Make what the arms need and this machine has not, the baseline of all first; whether all is there now."""
    for config in configurations(specs):
        if _is_calibrated(config):
            continue
        if not left.has_time_for(CALIBRATION_GUESS_S):
            return False
        wanted = {name: value for name, value in calibration.settings_of_a_step(config).items()
                  if value != VARIABLES[name].default}  # fmt: skip
        _say(f"calibrating {wanted}")
        best = _calibration(wanted, rig, plain)
        if _error_pct(best) > POOR_ERROR_PCT and left.has_time_for(CALIBRATION_GUESS_S):
            best = min(best, _calibration(wanted, rig, plain), key=_error_pct)
        calibration.store(best)
        rig.let_go(config, keep=plain)
    return True


def _is_calibrated(config: EngineConfig) -> bool:
    try:
        calibration.profile_here(config)
    except CannotRunError:
        return False
    return True


def _calibration(settings: dict[str, Value], rig: Rig, plain: EngineConfig) -> dict[str, Any]:
    """A calibration, as it would have been when the plain one was made: the machine is not equally fast at all times,
    and what counts is how the two differ."""
    before = _drift(rig, plain)
    entry = calibration.calibrate_simulator(settings, budget_s=CALIBRATION_S, rig=rig)
    slower = (before * _drift(rig, plain)) ** 0.5
    _say(
        f"  cross-validated error {_error_pct(entry):.1f} % in {entry['duration_s']:.0f} s; the machine took "
        f"{slower:.2f} times as long as for the plain calibration"
    )
    return at_speed(entry, slower)


def _drift(rig: Rig, plain: EngineConfig) -> float:
    try:
        entry = calibration.profile_here(plain)[1]
    except CannotRunError:  # this is the plain calibration
        return 1.0
    if not entry.get("steps_s"):
        return 1.0
    return calibration.drift(entry, [calibration.probe(entry, rig.engine(plain))])


def at_speed(entry: Mapping[str, Any], slower: float) -> dict[str, Any]:
    """The entry of a machine that takes 1 / `slower` times as long."""
    classes = {
        kind: {**share, "compute": share["compute"] * slower, "memory": share["memory"] * slower}
        for kind, share in entry["efficiencies"].items()
    }
    host = {name: entry[name] / slower for name in ("host_step_s", "host_row_s")}
    return {**entry, "efficiencies": classes, **host, "slower": slower}


def _error_pct(entry: Mapping[str, Any]) -> float:
    return float(entry["fit"]["cross_validated_error_pct"]["mean"])


def configurations(specs: list[CompareSpec]) -> list[EngineConfig]:
    """One configuration for each calibration that the arms need, the most needed first; drafts are not simulated."""
    needed: dict[str, list[EngineConfig]] = {}
    for spec in specs:
        for config in spec.configs():
            if spec.variable not in ("speculation", "block_size"):
                key = json.dumps(calibration.settings_of_a_step(config), sort_keys=True)
                needed.setdefault(key, []).append(config)
    return [found[0] for found in sorted(needed.values(), key=len, reverse=True)]


def _run(name: str, spec: CompareSpec, store: Store, rig: Rig, plain: EngineConfig) -> float:
    """Predict, store, measure; seconds that it took. plain: the configuration whose model is kept loaded."""
    began = time.perf_counter()
    first, second = spec.configs()
    prediction = predict(spec, store, tokenizer=rig.tokenizer(first))
    asked = with_prediction(spec.to_dict(), prediction)
    try:
        result = run_kept(store, "compare", asked, lambda run_id: run_comparison(asked, None, run_id, rig=rig))
    except (InputError, CannotRunError) as error:
        _say(f"{name} {told(spec)}: {error}")
        return time.perf_counter() - began
    finally:  # the plain model stays for the next one
        for config in (first, second):
            rig.let_go(config, keep=plain)
    seconds = time.perf_counter() - began
    _say(f"{name} {told(spec)}, {seconds:.0f} s")
    for row in outcomes(store.get_run(result["run_id"])):
        band = "-" if row.band80_pct is None else "[{:+.0f}, {:+.0f}]".format(*row.band80_pct)
        said = "-" if row.predicted_pct is None else f"{row.predicted_pct:+.1f} % {band} {row.predicted}"
        found = "-" if row.measured_pct is None else f"{row.measured_pct:+.1f} %"
        _say(f"    {row.curve:22} said {said:38} found {found} {row.measured} ({row.source})")
    return seconds


# -- what is there -------------------------------------------------------------------------------------------------


def _outcome_of(spec: CompareSpec, store: Store) -> Run | None:
    """The run that predicted and measured it, or that the engine refused; None while there is neither."""
    for state in ("done", "failed"):
        found = store.find("compare", spec_hash(spec.to_dict()), state=state)
        predicted = [run for run in found if run.spec.get("predictions") and run.error not in STOPPED]
        if predicted:
            return predicted[-1]  # the first: what was said later knows the outcome
    return None


def gathered(
    pilot: list[CompareSpec], scored: list[CompareSpec], store: Store, seed: int, base: Mapping[str, Value]
) -> dict[str, Any]:
    """The score of the comparisons that count, and every one of them with what was said and found."""
    runs = {
        kind: [_outcome_of(spec, store) for spec in specs] for kind, specs in (("pilot", pilot), ("scored", scored))
    }
    counted = [run for run in runs["scored"] if run is not None and run.state == "done"]
    done = {kind: sum(run is not None for run in found) for kind, found in runs.items()}
    return {
        "score": score_of([row for run in counted for row in outcomes(run)]),
        "rows": [_row(run) for run in counted],
        "failed": [{"spec": run.spec, "error": run.error} for run in runs["scored"] if run and run.state == "failed"],
        "done": done,
        "complete": done == {"pilot": len(pilot), "scored": len(scored)},
        "drawn": {"seed": seed, "settings": dict(base), "repeats": REPEATS, "left_out": left_out()},
        "calibrations": [
            {"for": {n: v for n, v in entry["for"].items() if v != VARIABLES[n].default}, "date": entry["date"],
             "error_pct": _error_pct(entry)}
            for entry in calibration.stored()
        ],
        "seconds_median": median(_seconds(counted)) if counted else None,
        "environment": machine(),
        "provenance": "measured",
    }  # fmt: skip


def _seconds(runs: list[Run]) -> Iterator[float]:
    from datetime import datetime

    for run in runs:
        yield (datetime.fromisoformat(run.updated_at) - datetime.fromisoformat(run.created_at)).total_seconds()


def _row(run: Run) -> dict[str, Any]:
    keys = ("variable", "values", "workload", "concurrency", "rate_rps", "num_requests", "seed", "settings")
    said = run.spec["predictions"]
    return {
        "run_id": run.id,
        **{key: run.spec[key] for key in keys},
        "predicted_at": said["made_at"],
        "notes": said["notes"],
        "curves": [
            {**{k: v for k, v in asdict(row).items() if k in SHOWN}, "decided": row.is_decided, "right": row.is_right}
            for row in outcomes(run)
        ],
    }


SHOWN = ("curve", "source", "predicted_pct", "band80_pct", "predicted", "measured_pct", "measured", "covered")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
