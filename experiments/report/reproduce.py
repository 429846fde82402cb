"""The command line that runs a stored spec again, for every kind of run."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.calibration_job import SIMULATOR

Spec = Mapping[str, Any]
Parts = list[str]
LOAD = {
    "workload": "--workload", "num_requests": "--requests", "rate_rps": "--rate", "concurrency": "--concurrency",
    "time_scale": "--time-scale", "length_scale": "--length-scale", "max_prompt_tokens": "--max-prompt",
    "max_tokens_cap": "--max-output", "seed": "--seed", "slo": "--slo",
    "price_per_device_hour": "--price-per-device-hour",
}  # fmt: skip
SERVER = {
    "endpoint": "--endpoint", "endpoint_model": "--endpoint-model", "endpoint_api": "--endpoint-api",
    "key_env": "--key-env", "timeout_s": "--timeout", "retries": "--retries",
}  # fmt: skip
# What a command has without being told.
DEFAULTS = {
    "measure": "load", "time_scale": 1.0, "length_scale": 1.0, "price_per_device_hour": 1.0,
    "endpoint_api": "auto", "timeout_s": 60.0, "retries": 0,
}  # fmt: skip
NOTHING = "none"


def command_of(kind: str, spec: Spec) -> str | None:
    """The command that asks for the same again; None for a kind that no command starts."""
    made = COMMANDS.get(kind)
    return None if made is None else shlex.join(["trilemma", *made(spec)])


def _options(spec: Spec, options: Mapping[str, str]) -> Parts:
    """An option for every field that has a value."""
    found: Parts = []
    for name, option in options.items():
        if spec.get(name) is not None and spec[name] != DEFAULTS.get(name):
            found += [option, str(spec[name])]
    return found


def _sets(settings: Mapping[str, Any] | None, option: str = "--set") -> Parts:
    return [part for name, value in (settings or {}).items() for part in (option, f"{name}={value}")]


def _listed(values: Sequence[Any] | None) -> str:
    return ",".join(map(str, values or ())) or NOTHING


def _vary(vary: Sequence[Any] | None) -> Parts:
    return [] if not vary else ["--vary", f"{vary[0]}={_listed(vary[1])}"]


def _bench(spec: Spec) -> Parts:
    return ["bench", *_options(spec, {**LOAD, **SERVER}), *_sets(spec.get("settings"))]


def _compare(spec: Spec) -> Parts:
    varied = ["--vary", f"{spec.get('variable')}={_listed(spec.get('values'))}"]
    if spec.get("endpoints"):
        varied = ["--endpoint", _listed([f"{label}={address}" for label, address in spec["endpoints"].items()])]
    named = {"workload": "--workload", "repeats": "--repeats", **LOAD, **SERVER, "measure": "--measure"}
    options = _options(spec, named)
    return ["compare", *varied, *options, *_sets(spec.get("settings"))]


def _factorial(spec: Spec) -> Parts:
    varied = [part for name, values in spec.get("factors") or () for part in ("--vary", f"{name}={_listed(values)}")]
    options = _options(spec, {"workload": "--workload", "repeats": "--repeats", **LOAD})
    return ["factorial", *varied, *options, *_sets(spec.get("settings"))]


def _jitter(spec: Spec) -> Parts:
    arms = [
        part
        for name, settings in spec.get("arms") or ()
        for part in ("--arm", f"{name}:{','.join(f'{key}={value}' for key, value in settings.items())}")
    ]
    options = _options(spec, {"workload": "--workload", "repeats": "--repeats", **LOAD})
    return ["jitter", *arms, *options, *_sets(spec.get("settings"))]


def _sweep(spec: Spec) -> Parts:
    values = spec.get("values")
    over = f"{spec.get('over')}={_listed(values)}" if values else str(spec.get("over"))
    options = _options(spec, {
        **LOAD, **SERVER, "repeats": "--repeats", "duration_s": "--duration",
        "arrivals": "--arrivals", "auto_points": "--points", "headroom": "--headroom",
        "scale_out_at": "--scale-out-at", "demand_rps": "--demand", "ray_address": "--ray-address",
        "per_node": "--per-node",
    })  # fmt: skip
    find = [] if spec.get("find", True) else ["--no-find"]
    return ["sweep", "--over", over, *options, *find, *_sets(spec.get("settings"))]


def _eval(spec: Spec) -> Parts:
    arms = [
        part
        for arm in spec.get("arms") or ()
        for part in ("--candidate", ",".join(f"{name}={value}" for name, value in arm.items()))
    ]
    files = [part for name in ("items", "texts") for path in spec.get(name) or () for part in (f"--{name}", str(path))]
    slices = ["--slices", _listed(spec["slices"])] if spec.get("slices") else []
    speed = ["--speed"] if spec.get("speed") else []
    return [
        "eval", *_vary(spec.get("vary")), *arms, *_sets(spec.get("settings")),
        *_sets(spec.get("baseline"), "--baseline"), *files, *slices,
        *_options(spec, {"limit": "--limit", "seed": "--seed"}), *speed,
    ]  # fmt: skip


def _speculation(spec: Spec) -> Parts:
    lists = [part for name in ("forms", "tasks", "batches") if name in spec
             for part in (f"--{name}", _listed(spec[name]))]  # fmt: skip
    options = {"num_draft_tokens": "--drafts", "prompts": "--prompts", "max_tokens": "--max-tokens",
               "repeats": "--repeats", "seed": "--seed"}  # fmt: skip
    constructed = [] if spec.get("constructed", True) else ["--no-constructed"]
    return ["speculation", *lists, *_options(spec, options), *constructed, *_sets(spec.get("settings"))]


def _profile(spec: Spec) -> Parts:
    steps = _options(spec, {"step": "--step"})
    return ["profile", *steps, *_vary(spec.get("vary")), *_options(spec, {"repeats": "--repeats"}),
            *_sets(spec.get("settings"))]  # fmt: skip


def _plan(spec: Spec) -> Parts:
    lists = {"gpus": "--gpu", "weights": "--weights", "kv_dtypes": "--kv-dtype", "tps": "--tp", "pps": "--pp",
             "seqs": "--max-num-seqs", "batched": "--max-num-batched-tokens"}  # fmt: skip
    listed = [part for name, option in lists.items() if spec.get(name) for part in (option, _listed(spec[name]))]
    prices = _sets(spec.get("prices"), "--price")
    load = {name: LOAD[name] for name in ("workload", "rate_rps", "length_scale", "max_prompt_tokens",
                                          "max_tokens_cap", "seed", "slo")}  # fmt: skip
    own = {"input_tokens": "--input-tokens", "output_tokens": "--output-tokens", "max_devices": "--max-devices",
           "headroom": "--headroom", "top": "--top"}  # fmt: skip
    apart = [] if spec.get("disaggregation", True) else ["--no-pd"]
    return ["plan", str(spec.get("model")), *listed, *_options(spec, {**load, **own}), *prices, *apart]


def _ladder(spec: Spec) -> Parts:
    own = [
        part
        for name, changes in spec.get("own") or ()
        for part in ("--step", f"{name}:{','.join(f'{key}={value}' for key, value in changes.items())}")
    ]
    options = _options(spec, {"recipe": "--recipe", "start": "--start", **LOAD, "repeats": "--repeats",
                              "quality_items": "--quality-items", "aim": "--aim"})  # fmt: skip
    return ["ladder", *options, "--steps", _listed(spec.get("steps")), *own, *_sets(spec.get("settings"))]


def _cache(spec: Spec) -> Parts:
    languages = [part for name in spec.get("languages") or () for part in ("--language", str(name))]
    options = _options(spec, {**LOAD, "half": "--half", "repeats": "--repeats"})
    traffic = [] if spec.get("traffic", True) else ["--no-traffic"]
    return ["cache", *options, *languages, *traffic, *_sets(spec.get("settings"))]


def _levers(spec: Spec) -> Parts:
    chosen = _listed([f"{name}={value}" for name, value in spec.get("levers") or ()])
    options = _options(spec, {"gpu": "--gpu", **LOAD, "repeats": "--repeats"})
    return ["levers", "--levers", chosen, *options, *_sets(spec.get("settings"))]


def _calibrate(spec: Spec) -> Parts:
    simulator = ["--simulator"] if spec.get("what") == SIMULATOR else []
    return ["calibrate", *simulator, *_options({"threads": spec.get("threads") or None}, {"threads": "--threads"}),
            *_sets(spec.get("settings"))]  # fmt: skip


def _claim(spec: Spec) -> Parts:
    options = spec.get("options") or {}
    asked = _options(options, {"repeats": "--repeats", "num_requests": "--requests"})
    return ["claims", "run", str(spec.get("claim")), *asked, *_sets(options.get("settings"))]


def _claims(spec: Spec) -> Parts:
    options = spec.get("options") or {}
    asked = _options(options, {"repeats": "--repeats", "num_requests": "--requests"})
    return ["claims", "--all", *(["--quick"] if spec.get("quick") else []), *asked, *_sets(options.get("settings"))]


COMMANDS: dict[str, Callable[[Spec], Parts]] = {
    "bench": _bench, "compare": _compare, "sweep": _sweep, "jitter": _jitter, "factorial": _factorial, "eval": _eval,
    "speculation": _speculation, "profile": _profile, "claim": _claim, "claims": _claims, "plan": _plan,
    "ladder": _ladder, "cache": _cache, "levers": _levers, "calibrate": _calibrate,
}  # fmt: skip
