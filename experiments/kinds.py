"""The kinds of run: how each one's spec is checked, what runs it, and what the lists say of it.

One entry a kind; whoever starts, resumes, lists or shows runs reads it from here. A kind's modules are imported when it
is used, so that checking a spec loads no engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from experiments.spec import BenchSpec, CompareSpec, parse_repeats
from experiments.store import Run, Store
from experiments.workloads.source import short_name
from ledger.errors import InputError

OnLive = Callable[[dict[str, Any]], None]
ShouldCancel = Callable[[], bool]
Spec = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """`check` makes a complete, valid spec (InputError names the first field that is wrong), `run` computes the result.

    `says` is one line of what a spec asks for. `resumable` names the kind ("an evaluation") where a run that was cut
    short can go on; what it kept is taken. `has_events`: its runs keep the events of every request.
    """

    check: Callable[[Spec], dict[str, Any]]
    run: Callable[[Run, Store, OnLive, ShouldCancel], dict[str, Any]]
    says: Callable[[Spec], str]
    resumable: str | None = None
    has_events: bool = False


def kind_of(name: str) -> Kind:
    """The entry of a kind; InputError when there is none."""
    if name not in KINDS:
        raise InputError("kind", name, ", ".join(KINDS))
    return KINDS[name]


def resumable() -> dict[str, str]:
    """Name -> words of every kind whose runs can go on."""
    return {name: kind.resumable for name, kind in KINDS.items() if kind.resumable}


def _settings(spec: Spec) -> str:
    return " ".join(f"{name}={value}" for name, value in (spec.get("settings") or {}).items())


def _varied(spec: Spec) -> str:
    return f"{spec['vary'][0]}={','.join(map(str, spec['vary'][1]))}" if spec.get("vary") else ""


def _joined(*parts: str) -> str:
    return " ".join(filter(None, parts))


# -- bench ---------------------------------------------------------------------------------------------------------


def _run_bench(run: Run, store: Store, on_live: OnLive, should_cancel: ShouldCancel) -> dict[str, Any]:
    from experiments.bench import run_bench

    return run_bench(run.spec, store, run.id, on_live, should_cancel)


# -- compare -------------------------------------------------------------------------------------------------------


def _run_compare(run: Run, store: Store, on_live: OnLive, should_cancel: ShouldCancel) -> dict[str, Any]:
    from experiments.compare import OTHER_CODE, kept_pairs, run_comparison

    kept = kept_pairs(store, run.id)
    result = run_comparison(run.spec, store, run.id, on_live, should_cancel, kept=kept)
    if kept and "+" in (run.code or ""):  # both hashes of a run that was resumed with other code
        result["warnings"].append(OTHER_CODE)
    return result


def _says_compare(spec: Spec) -> str:
    return f"{spec['variable']}={','.join(str(value) for value in spec['values'])} on {short_name(spec['workload'])}"


# -- factorial -----------------------------------------------------------------------------------------------------


def _check_factorial(spec: Spec) -> dict[str, Any]:
    from experiments.factorial import FactorialSpec

    return FactorialSpec.from_dict(spec).to_dict()


def _run_factorial(run: Run, store: Store, on_live: OnLive, should_cancel: ShouldCancel) -> dict[str, Any]:
    from experiments.factorial import run_factorial

    return run_factorial(run.spec, store, run.id, on_live, should_cancel)


def _says_factorial(spec: Spec) -> str:
    varied = (f"{name}={','.join(map(str, values))}" for name, values in spec["factors"])
    return f"{' x '.join(varied)} on {spec['workload']}"


# -- eval ----------------------------------------------------------------------------------------------------------


def _check_eval(spec: Spec) -> dict[str, Any]:
    from experiments.quality.spec import EvalSpec, items_hash

    evaluation = EvalSpec.from_dict(spec)
    return {**evaluation.to_dict(), "items_hash": items_hash(evaluation.read_items())}


def _run_eval(run: Run, store: Store, on_live: OnLive, should_cancel: ShouldCancel) -> dict[str, Any]:
    from experiments.quality.evaluation import run_evaluation

    return run_evaluation(run.spec, store, run.id, on_live, should_cancel)


def _says_eval(spec: Spec) -> str:
    arms = (",".join(f"{name}={value}" for name, value in arm.items()) for arm in spec.get("arms") or ())
    return _joined(_settings(spec), _varied(spec), *arms) or "defaults"


# -- speculation ---------------------------------------------------------------------------------------------------


def _check_speculation(spec: Spec) -> dict[str, Any]:
    from experiments.speculation.spec import SpeculationSpec

    return SpeculationSpec.from_dict(spec).to_dict()


def _run_speculation(run: Run, store: Store, on_live: OnLive, should_cancel: ShouldCancel) -> dict[str, Any]:
    from experiments.speculation.run import run_speculation

    return run_speculation(run.spec, store, run.id, on_live, should_cancel)


# -- profile -------------------------------------------------------------------------------------------------------


def _check_profile(spec: Spec) -> dict[str, Any]:
    from experiments.operators.spec import ProfileSpec

    return ProfileSpec.from_dict(spec).to_dict()


def _run_profile(run: Run, store: Store, on_live: OnLive, should_cancel: ShouldCancel) -> dict[str, Any]:
    from experiments.operators.run import run_profile

    return run_profile(run.spec, store, run.id, on_live, should_cancel)


# -- sweep ---------------------------------------------------------------------------------------------------------


def _check_sweep(spec: Spec) -> dict[str, Any]:
    from experiments.sweep.spec import SweepSpec

    return SweepSpec.from_dict(spec).to_dict()


def _run_sweep(run: Run, store: Store, on_live: OnLive, should_cancel: ShouldCancel) -> dict[str, Any]:
    from experiments.sweep.run import run_sweep

    return run_sweep(run.spec, store, run.id, on_live, should_cancel)


def _says_sweep(spec: Spec) -> str:
    values = f"={','.join(str(value) for value in spec['values'])}" if spec["values"] else ""
    return _joined(f"{spec['over']}{values} on {spec['workload']}", _settings(spec))


# -- plan ----------------------------------------------------------------------------------------------------------


def _check_plan(spec: Spec) -> dict[str, Any]:
    from experiments.planner.spec import PlanSpec

    return PlanSpec.from_dict(spec).to_dict()


def _run_plan(run: Run, store: Store, on_live: OnLive, should_cancel: ShouldCancel) -> dict[str, Any]:
    from experiments.planner.run import run_plan

    return run_plan(run.spec, on_live, should_cancel) | {"run_id": run.id}


def _says_plan(spec: Spec) -> str:
    return _joined(spec["model"], f"{spec['rate_rps']:g}/s on {','.join(spec['gpus'])}", spec.get("slo") or "")


# -- calibrate -----------------------------------------------------------------------------------------------------


def _check_calibrate(spec: Spec) -> dict[str, Any]:
    from experiments.calibration_job import CalibrationSpec

    return CalibrationSpec.from_dict(spec).to_dict()


def _run_calibrate(run: Run, store: Store, on_live: OnLive, should_cancel: ShouldCancel) -> dict[str, Any]:
    from experiments.calibration_job import run_calibration

    return run_calibration(run.spec, run.id, on_live, should_cancel)


# -- jitter --------------------------------------------------------------------------------------------------------


def _check_jitter(spec: Spec) -> dict[str, Any]:
    from experiments.jitter.spec import JitterSpec

    return JitterSpec.from_dict(spec).to_dict()


def _run_jitter(run: Run, store: Store, on_live: OnLive, should_cancel: ShouldCancel) -> dict[str, Any]:
    from experiments.jitter.run import run_jitter

    return run_jitter(run.spec, store, run.id, on_live, should_cancel)


def _says_jitter(spec: Spec) -> str:
    return _joined(f"{', '.join(name for name, _ in spec['arms'])} on {short_name(spec['workload'])}", _settings(spec))


# -- cache ---------------------------------------------------------------------------------------------------------


def _check_cache(spec: Spec) -> dict[str, Any]:
    from experiments.caching.spec import CacheSpec

    return CacheSpec.from_dict(spec).to_dict()


def _run_cache(run: Run, store: Store, on_live: OnLive, should_cancel: ShouldCancel) -> dict[str, Any]:
    from experiments.caching.run import run_cache

    return run_cache(run.spec, store, run.id, on_live, should_cancel)


def _says_cache(spec: Spec) -> str:
    traffic = f"and {short_name(spec['workload'])}" if spec["traffic"] else ""
    return _joined(f"pairs {','.join(spec['languages'])}", traffic, _settings(spec))


# -- ladder --------------------------------------------------------------------------------------------------------


def _check_ladder(spec: Spec) -> dict[str, Any]:
    from experiments.playbook.spec import LadderSpec

    return LadderSpec.from_dict(spec).to_dict()


def _run_ladder(run: Run, store: Store, on_live: OnLive, should_cancel: ShouldCancel) -> dict[str, Any]:
    from experiments.playbook.run import run_ladder

    return run_ladder(run.spec, store, run.id, on_live, should_cancel)


def _says_ladder(spec: Spec) -> str:
    return _joined(f"{spec['recipe']} on {short_name(spec['workload'])}", _settings(spec), spec.get("slo") or "")


# -- levers --------------------------------------------------------------------------------------------------------


def _check_levers(spec: Spec) -> dict[str, Any]:
    from experiments.levers.spec import LeversSpec

    return LeversSpec.from_dict(spec).to_dict()


def _run_levers(run: Run, store: Store, on_live: OnLive, should_cancel: ShouldCancel) -> dict[str, Any]:
    from experiments.levers.run import run_levers

    return run_levers(run.spec, store, run.id, on_live, should_cancel)


def _says_levers(spec: Spec) -> str:
    where = f"simulated on {spec['gpu']}" if spec.get("gpu") else ""
    return _joined(f"{', '.join(name for name, _ in spec['levers'])} on {short_name(spec['workload'])}", where)


# -- claim ---------------------------------------------------------------------------------------------------------


def _check_claim(spec: Spec) -> dict[str, Any]:
    from experiments.claims import get_claim
    from experiments.claims.runner import OPTIONS

    given = {name: value for name, value in (spec.get("options") or {}).items() if value not in (None, "", {})}
    for name in given:
        if name not in OPTIONS:
            raise InputError("option", name, ", ".join(OPTIONS))
    # As numbers, so that the same claim asked by a page and by the command line is one spec.
    checked = BenchSpec.from_dict({name: value for name, value in given.items() if name != "repeats"}).to_dict()
    options = {name: checked[name] for name in given if name != "repeats"}
    if "repeats" in given:
        options["repeats"] = parse_repeats(given["repeats"]) or "auto"
    return {"claim": get_claim(str(spec.get("claim"))).id, "options": options}


def _run_claim(run: Run, store: Store, on_live: OnLive, should_cancel: ShouldCancel) -> dict[str, Any]:
    from experiments.claims import run_claim

    options, began = run.spec.get("options"), time.monotonic()
    found = run_claim(run.spec["claim"], store=store, options=options, on_live=on_live, should_cancel=should_cancel)
    return {**found, "took_s": time.monotonic() - began, "run_id": run.id}


# -- claims --------------------------------------------------------------------------------------------------------


def _check_claims(spec: Spec) -> dict[str, Any]:
    from experiments.claims.spec import ClaimsSpec

    return ClaimsSpec.from_dict(spec).to_dict()


def _run_claims(run: Run, store: Store, on_live: OnLive, should_cancel: ShouldCancel) -> dict[str, Any]:
    from experiments.claims.run_all import run_claims

    return run_claims(run.spec, store, run.id, on_live, should_cancel)


def _says_claims(spec: Spec) -> str:
    settings = _settings(spec.get("options") or {})
    return _joined(f"{len(spec['claims'])} claims", "quick" if spec["quick"] else "", settings)


KINDS: dict[str, Kind] = {
    "bench": Kind(
        check=lambda spec: BenchSpec.from_dict(spec).to_dict(),
        run=_run_bench,
        says=lambda spec: short_name(str(spec["workload"])),
        has_events=True,
    ),
    "compare": Kind(
        check=lambda spec: CompareSpec.from_dict(spec).to_dict(),
        run=_run_compare,
        says=_says_compare,
        resumable="a comparison",
        has_events=True,
    ),
    "factorial": Kind(check=_check_factorial, run=_run_factorial, says=_says_factorial, has_events=True),
    "eval": Kind(
        check=_check_eval,
        run=_run_eval,
        says=_says_eval,
        resumable="an evaluation",
    ),
    "speculation": Kind(
        check=_check_speculation,
        run=_run_speculation,
        says=lambda spec: _joined(",".join(spec["forms"]), _settings(spec)),
        resumable="a run of drafts",
    ),
    "profile": Kind(
        check=_check_profile,
        run=_run_profile,
        says=lambda spec: _joined(spec["step"], _varied(spec), _settings(spec)),
        resumable="a profile",
    ),
    "sweep": Kind(
        check=_check_sweep,
        run=_run_sweep,
        says=_says_sweep,
        resumable="a sweep",
        has_events=True,
    ),
    "plan": Kind(check=_check_plan, run=_run_plan, says=_says_plan),
    "calibrate": Kind(
        check=_check_calibrate,
        run=_run_calibrate,
        says=lambda spec: _joined(spec["what"], _settings(spec)),
    ),
    "jitter": Kind(check=_check_jitter, run=_run_jitter, says=_says_jitter, has_events=True),
    "cache": Kind(check=_check_cache, run=_run_cache, says=_says_cache, has_events=True),
    "ladder": Kind(check=_check_ladder, run=_run_ladder, says=_says_ladder, resumable="a ladder", has_events=True),
    "levers": Kind(check=_check_levers, run=_run_levers, says=_says_levers, has_events=True),
    "claim": Kind(check=_check_claim, run=_run_claim, says=lambda spec: str(spec.get("claim")), has_events=True),
    "claims": Kind(check=_check_claims, run=_run_claims, says=_says_claims, resumable="a run of claims"),
}
