"""What a job is asked to do: the bench and compare specs, validated once, as plain JSON that the store keeps.

Owns the validation of everything a user types for a run. Knows no engine beyond its registry of variables, so the
command line refuses bad input without loading torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from core_engine.config import EngineConfig
from core_engine.variables import VARIABLES, Value, parse_value, variable
from experiments.endpoint_fields import DEFAULT_TIMEOUT_S, checked_address, endpoint_fields
from experiments.statistics import AUTO_LOOKS, MAX_REPEATS
from experiments.summary import Curve
from experiments.workloads.options import Options
from experiments.workloads.source import check_options, full_name
from experiments.workloads.spec import MOST_REQUESTS
from ledger.errors import InputError

DEFAULT_REPEATS = 5
MOST_NAMED = 8  # values that a line names one by one
MOST_REPEATS = 100
MOST_TOKENS = 65_536
MOST_PROMPT_TOKENS = 1_048_576
MEASURES = ("load", "capacity")
ONE_AT_A_TIME = "one variable at a time: NAME=A,B"
HOW_TWO = "for two, and how they act on each other: trilemma factorial --vary A=A0,A1 --vary B=B0,B1"
# Objectives that do not rise with the rate, so that no highest rate can be searched by them.
UNSEARCHABLE = ("cost_per_request", "quality_drop")
WHY_UNSEARCHABLE = "the cost of a request falls as the rate rises, and no run knows its quality"
ENDPOINT = "endpoint"  # what is varied when two servers are compared


@dataclass(frozen=True)
class BenchSpec:
    """One arm, one run. None keeps the workload's own number of requests, rate (requests/s), lengths (tokens).

    workload is a built-in name, a workload file or a trace (experiments/workloads/source.py). max_tokens_cap shortens
    long outputs, max_prompt_tokens long prompts; concurrency makes a closed loop of so many clients; time_scale and
    length_scale multiply gaps and lengths. The price is assumed, per device and hour.

    endpoint is the address of an OpenAI-compatible server that is driven instead of the engine (endpoint_fields.py);
    endpoint_model is the model asked of it, key_env the environment variable with its key, timeout_s how long it may be
    silent. Of the settings only `model` counts then: its tokenizer cuts the prompts.
    """

    workload: str = "mixed"
    num_requests: int | None = None
    rate_rps: float | None = None
    max_tokens_cap: int | None = None
    max_prompt_tokens: int | None = None
    concurrency: int | None = None
    time_scale: float = 1.0
    length_scale: float = 1.0
    settings: dict[str, Value] = field(default_factory=dict)
    seed: int = 0
    slo: str | None = None
    price_per_device_hour: float = 1.0
    endpoint: str | None = None
    endpoint_model: str | None = None
    endpoint_api: str = "auto"
    key_env: str | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    retries: int = 0

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any]) -> BenchSpec:
        """Validate a spec; InputError names the first field that is wrong. Missing fields take their defaults."""
        refuse_unknown(cls, spec)
        return cls(**_common(spec))

    def to_dict(self) -> dict[str, Any]:
        """The spec as JSON."""
        return asdict(self)

    def config(self) -> EngineConfig:
        """The engine's configuration."""
        return EngineConfig.from_settings({**needed_values(self.settings.items()), **self.settings})

    def held_because(self) -> dict[str, dict[str, Value]]:
        """Settings that another value needs: name -> {"value", "because": "NAME=VALUE"}."""
        return held_because(self.settings.items())


@dataclass(frozen=True)
class CompareSpec(BenchSpec):
    """Two values of one variable, everything else equal. values[0] is the baseline.

    Or two servers: endpoints is label -> address, the variable is then `endpoint` and the values are the labels.

    repeats None means "auto": on until every curve is decided, or 20. guess_pct is the learner's guess, kept beside
    the result (change of throughput in %). measure: at equal "load", or the "capacity" of each arm at equal objectives.
    predictions: what the advisor expects (experiments/advisor/prediction.py), kept before the run.
    """

    variable: str = "batching"
    values: tuple[Value, Value] = ("static", "continuous")
    repeats: int | None = DEFAULT_REPEATS
    guess_pct: float | None = None
    measure: str = "load"
    endpoints: dict[str, str] | None = None
    predictions: dict[str, Any] | None = None

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any]) -> CompareSpec:
        """Validate a spec; InputError names the first field that is wrong. Missing fields take their defaults."""
        refuse_unknown(cls, spec)
        if spec.get("endpoints"):
            return cls._of_endpoints(spec)
        name = variable(str(spec.get("variable", "batching"))).name
        values = spec.get("values", ("static", "continuous"))
        if isinstance(values, str) or not hasattr(values, "__len__") or len(values) != 2:
            raise InputError("--vary", values, f"two values of {name}: {name}=BASELINE,CANDIDATE")
        first, second = (parse_value(name, value) for value in values)
        common = _common(spec)
        if name in common["settings"]:
            raise InputError("--set", name, f"any variable but {name}, which is the one that is varied")
        if common[ENDPOINT] is not None:
            raise InputError("--vary", name, f"no {name} beside --endpoint: a server has settings of its own")
        made = cls(**common, **cls._how_often(spec, common), variable=name, values=(first, second))
        held_because(made.chosen(), set_by_user={**common["settings"], name: (first, second)})
        refuse_without_effect(name, made.configs())
        return made

    @classmethod
    def _of_endpoints(cls, spec: Mapping[str, Any]) -> CompareSpec:
        given = spec["endpoints"]
        if not isinstance(given, Mapping) or len(given) != 2:
            raise InputError("--endpoint", given, "two servers: A=URL,B=URL")
        endpoints = {str(label): checked_address("--endpoint", address) for label, address in given.items()}
        if spec.get("variable", ENDPOINT) != ENDPOINT:
            raise InputError("--vary", spec["variable"], "nothing beside two servers: the server is what is varied")
        first, second = endpoints
        # What is said of one server is checked with the first, and holds for both.
        common = _common({**spec, ENDPOINT: endpoints[first]})
        made = {**common, **cls._how_often(spec, common), ENDPOINT: None}
        return cls(**made, variable=ENDPOINT, values=(first, second), endpoints=endpoints)

    @staticmethod
    def _how_often(spec: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
        guess, expected = spec.get("guess_pct"), spec.get("predictions")
        if expected is not None and not isinstance(expected, Mapping):
            raise InputError("predictions", expected, "an object, as the advisor makes it")
        return {
            "predictions": None if expected is None else dict(expected),
            "repeats": parse_repeats(spec.get("repeats", DEFAULT_REPEATS)),
            "guess_pct": None if guess is None else _number("guess_pct", guess, "a number of %"),
            "measure": _measure(spec.get("measure", "load"), common),
        }

    def to_dict(self) -> dict[str, Any]:
        """The spec as JSON, with repeats "auto" in its written form."""
        return {**asdict(self), "values": list(self.values), "repeats": self.repeats if self.repeats else "auto"}

    def configs(self) -> tuple[EngineConfig, EngineConfig]:
        """The engine's configuration of the baseline and of the candidate."""
        first, second = (arm.config() for arm in self.arms())
        return first, second

    def arms(self) -> tuple[BenchSpec, BenchSpec]:
        """The baseline and the candidate, each as a spec of its own with every value that either of them needs."""
        common = {item.name: getattr(self, item.name) for item in fields(BenchSpec)}
        if self.endpoints is not None:
            first, second = (BenchSpec(**{**common, ENDPOINT: address}) for address in self.endpoints.values())
            return first, second
        needed = needed_values(self.chosen())
        settings = ({**needed, **self.settings, self.variable: value} for value in self.values)
        first, second = (BenchSpec(**{**common, "settings": arm}) for arm in settings)
        return first, second

    def chosen(self) -> list[tuple[str, Value]]:
        """Every value that somebody chose: the settings, and the variable's two."""
        varied = [] if self.endpoints is not None else [(self.variable, value) for value in self.values]
        return [*self.settings.items(), *varied]

    def derives(self) -> tuple[str, ...]:
        """What the variable changes besides itself, by name."""
        return () if self.endpoints is not None else tuple(variable(self.variable).derives)

    def held_equal(self) -> dict[str, Value]:
        """Settings of the engine that are the same in both arms; a server's own are not known."""
        if self.endpoints is not None:
            return {}
        return {name: value for name, value in self.configs()[0].settings().items() if name != self.variable}

    def held_because(self) -> dict[str, dict[str, Value]]:
        """Settings held in both arms because a value needs them: name -> {"value", "because": "NAME=VALUE"}."""
        return held_because(self.chosen())

    def more_curves(self) -> tuple[Curve, ...]:
        """Curves that are judged beside the five of every comparison."""
        return ()

    def looks(self) -> tuple[int, ...]:
        """After how many repeats the curves are judged; more than one look only with repeats "auto"."""
        return AUTO_LOOKS if self.repeats is None else (self.repeats,)


def _measure(measure: Any, common: Mapping[str, Any]) -> str:
    """What a comparison measures; capacity takes objectives and an open loop."""
    if measure not in MEASURES:
        raise InputError("--measure", measure, ", ".join(MEASURES))
    if measure == "capacity" and not common["slo"]:
        raise InputError("--slo", "", "objectives beside --measure capacity, as ttft_p95=0.5,itl_p99=0.05")
    if measure == "capacity" and (other := unsearchable(common["slo"])):
        raise InputError("--slo", other, f"latencies and error_rate beside --measure capacity: {WHY_UNSEARCHABLE}")
    if measure == "capacity" and common["concurrency"] is not None:
        raise InputError("--concurrency", common["concurrency"], "none: --measure capacity searches for a rate")
    return str(measure)


def unsearchable(slo: str | None) -> str | None:
    """The first objective by which no highest rate can be searched; None when all rise with the rate."""
    from experiments.metrics import parse_slo

    return next((one.name for one in parse_slo(slo) if one.name in UNSEARCHABLE), None)


def refuse_without_effect(name: str, configs: Iterable[EngineConfig]) -> None:
    """InputError when varying `name` can't change anything in any of these, with the setting that would show it."""
    settings = [config.settings() for config in configs]
    for other, values in VARIABLES[name].acts_with.items():
        if settings and all(one[other] not in values for one in settings):
            given = ", ".join(dict.fromkeys(f"{other}={one[other]}" for one in settings))
            needed = " or ".join(map(str, values)) if len(values) <= MOST_NAMED else f"{values[0]} to {values[-1]}"
            raise InputError("--vary", name, f"{other}={needed} beside it, since it acts on nothing else; here {given}")


def needed_values(chosen: Iterable[tuple[str, Value]]) -> dict[str, Value]:
    """Values of other variables that the chosen (name, value) pairs need."""
    return {name: found["value"] for name, found in held_because(chosen).items()}


def held_because(
    chosen: Iterable[tuple[str, Value]], set_by_user: Mapping[str, Any] | None = None
) -> dict[str, dict[str, Value]]:
    """name -> {"value", "because": "NAME=VALUE"} of what the chosen values need (see Variable.requires) or should have
    beside them (Variable.alike, unless it was chosen otherwise).

    InputError, naming both, when set_by_user holds another value; a tuple there stands for the two values of the
    variable that is varied.
    """
    found: dict[str, dict[str, Value]] = {}
    for name, value in chosen:
        for other, wanted in VARIABLES[name].alike.get(str(value), {}).items():
            if other not in (set_by_user or {}):
                found.setdefault(other, {"value": wanted, "because": f"{name}={value}"})
        for other, needed in VARIABLES[name].requires.get(str(value), {}).items():
            given = (set_by_user or {}).get(other, needed)
            for one in given if isinstance(given, tuple) else (given,):
                if one != needed:
                    raise InputError(other, one, f"{needed}, because {name}={value} needs {other}={needed}")
            found[other] = {"value": needed, "because": f"{name}={value}"}
    return found


def parse_vary(texts: list[str]) -> tuple[str, list[str]]:
    """Parse the `--vary NAME=A,B` options: (name, [A, B]). InputError for two variables at once, or not two values."""
    if not texts:
        raise InputError("--vary", "", "NAME=A,B, once")
    if len(texts) > 1:
        raise InputError("--vary", " ".join(texts), f"{ONE_AT_A_TIME}, once; {HOW_TWO}")
    name, separator, values = texts[0].partition("=")
    if "=" in values:
        raise InputError("--vary", texts[0], f"{ONE_AT_A_TIME}; {HOW_TWO}")
    parts = [part.strip() for part in values.split(",")]
    if not separator or not all(parts) or len(parts) != 2:
        raise InputError("--vary", texts[0], "NAME=A,B with exactly two values; the first is the baseline")
    return variable(name.strip()).name, parts


def parse_repeats(value: Any) -> int | None:
    """Number of repeats; None for "auto". InputError otherwise."""
    if value is None or value == "auto":
        return None
    accepted = f"auto (3 to {MAX_REPEATS}), or a whole number from 1 to {MOST_REPEATS}"
    return whole("repeats", value, 1, MOST_REPEATS, accepted)


def refuse_unknown(cls: type[Any], spec: Mapping[str, Any]) -> None:
    """InputError for a field that the spec's class hasn't."""
    known = [item.name for item in fields(cls)]
    for name in spec:
        if name not in known:
            raise InputError("spec", name, ", ".join(known))


def _common(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that bench and compare share."""
    slo = spec.get("slo") or None
    if slo is not None:
        from experiments.metrics import parse_slo

        parse_slo(slo)
    settings = checked_settings(spec.get("settings"))
    held_because(settings.items(), set_by_user=settings)
    of_server = endpoint_fields(spec)
    own = [name for name in settings if name != "model"]
    if of_server[ENDPOINT] is not None and own:
        raise InputError("--set", own[0], "only model beside --endpoint: its tokenizer cuts the prompts")
    return {
        **_load(spec),
        **of_server,
        "settings": settings,
        "seed": whole("seed", spec.get("seed", 0), 0, 2**63 - 1),
        "slo": slo,
        "price_per_device_hour": _number(
            "price_per_device_hour", spec.get("price_per_device_hour", 1.0), "a number above 0", above_zero=True
        ),
    }


def _load(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Which workload, and what is changed of it."""
    most = {
        "num_requests": MOST_REQUESTS,
        "max_tokens_cap": MOST_TOKENS,
        "max_prompt_tokens": MOST_PROMPT_TOKENS,
        "concurrency": MOST_REQUESTS,
    }
    counts = {name: None if spec.get(name) is None else whole(name, spec[name], 1, most[name]) for name in most}
    rate = spec.get("rate_rps")
    options: dict[str, Any] = {
        **counts,
        "rate_rps": None
        if rate is None
        else _number("rate_rps", rate, "a number above 0, in requests/s", above_zero=True),
        **{
            name: _number(name, spec.get(name, 1.0), "a number above 0", above_zero=True)
            for name in ("time_scale", "length_scale")
        },
    }
    workload = str(spec.get("workload", "mixed"))
    check_options(workload, Options(**options))
    return {"workload": full_name(workload), **options}


def checked_settings(given: Mapping[str, Any] | None) -> dict[str, Value]:
    """Variables with valid values; InputError names the first that is wrong."""
    return {variable(name).name: parse_value(name, value) for name, value in (given or {}).items()}


def whole(name: str, value: Any, minimum: int, maximum: int, accepted: str | None = None) -> int:
    """A whole number within its bounds; InputError otherwise."""
    accepted = accepted or f"a whole number from {minimum:,} to {maximum:,}"
    try:
        number = int(str(value))
    except ValueError:
        raise InputError(name, value, accepted) from None
    if not minimum <= number <= maximum:
        raise InputError(name, value, accepted)
    return number


def _number(name: str, value: Any, accepted: str, *, above_zero: bool = False) -> float:
    try:
        number = float(str(value))
    except ValueError:
        raise InputError(name, value, accepted) from None
    if not math.isfinite(number) or (above_zero and number <= 0):
        raise InputError(name, value, accepted)
    return number
