"""What a sweep is asked to do, validated once, as plain JSON that the store keeps.

Knows no engine beyond its registry of variables, so the command line refuses bad input without loading torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from core_engine.config import EngineConfig
from core_engine.variables import VARIABLES, Value, parse_value, variable
from experiments.spec import BenchSpec, held_because, needed_values, refuse_unknown, refuse_without_effect, whole
from ledger.errors import InputError, unknown_name

CONCURRENCY, RATE, AUTO = "concurrency", "rate", "auto"
LOADS = (CONCURRENCY, RATE)
ARRIVALS = ("poisson", "constant", "own")  # own: the workload's pattern or the trace's, stretched
DEFAULT_VALUES: tuple[int, ...] = (1, 2, 4, 8)
MOST_VALUES, MOST_CONCURRENCY, MOST_RATE_RPS = 64, 4096, 100_000.0
# Variables that a rig, not a point, would have to change: a model of its own for each.
OVER_ACCEPTED = "concurrency=1,2,4, rate=0.5,1,2, auto, or VARIABLE=A,B,... such as max_num_seqs=1,2,4"


@dataclass(frozen=True)
class SweepSpec(BenchSpec):
    """One workload at many loads (or, at one load, under many values of a variable).

    over: "concurrency" (that many clients, each sending its next request when the last is answered), "rate" (requests/s
    that come whether or not the last is answered), "auto" (one at a time, then all at once, then `auto_points` rates
    between), or the name of a variable. `concurrency` or `rate_rps` is the load of a variable's sweep. arrivals: of
    rates; "own" stretches the workload's pattern, or a trace's. num_requests: at least so many a point, and four a
    client; None: enough for the percentiles. duration_s: a rate lasts at least so long. find: whether the highest load
    that meets the objectives is searched between the points, to `precision`. headroom: share of that load kept free;
    scale_out_at: share of the instance limit at which another one is added. demand_rps: requests/s to be served, for
    the number of instances. With `endpoint` a server is swept, over loads alone. ray_address: where points fan out to
    ("local", or a cluster's address), with `per_node` engines at a time on a node.
    """

    over: str = CONCURRENCY
    values: tuple[Value, ...] = DEFAULT_VALUES
    repeats: int = 1
    arrivals: str = "poisson"
    duration_s: float = 20.0
    auto_points: int = 5
    find: bool = True
    precision: float = 0.1
    headroom: float = 0.1
    scale_out_at: float = 0.75
    demand_rps: float | None = None
    ray_address: str | None = None
    per_node: int = 1

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any]) -> SweepSpec:
        """Validate a spec; InputError names the first field that is wrong. Missing fields take their defaults."""
        refuse_unknown(cls, spec)
        of_run = {field.name for field in fields(BenchSpec)} - {"rate_rps", "concurrency"}
        bench = BenchSpec.from_dict({name: value for name, value in spec.items() if name in of_run})
        over = str(spec.get("over", CONCURRENCY))
        made = cls(
            **{name: getattr(bench, name) for name in of_run},
            rate_rps=_optional("--rate", spec.get("rate_rps"), 0.0, MOST_RATE_RPS),
            over=over,
            values=_values(over, spec.get("values", DEFAULT_VALUES if over == CONCURRENCY else ())),
            repeats=whole("--repeats", spec.get("repeats", 1), 1, 20),
            concurrency=_optional_whole("--concurrency", spec.get("concurrency"), MOST_CONCURRENCY),
            arrivals=_one_of("--arrivals", spec.get("arrivals", "poisson"), ARRIVALS),
            duration_s=_between("--duration", spec.get("duration_s", 20.0), 0.0, 3600.0),
            auto_points=whole("--points", spec.get("auto_points", 5), 1, MOST_VALUES),
            find=bool(spec.get("find", True)),
            precision=_between("precision", spec.get("precision", 0.1), 0.005, 1.0),
            headroom=_between("--headroom", spec.get("headroom", 0.1), -1e-12, 0.9),
            scale_out_at=_between("--scale-out-at", spec.get("scale_out_at", 0.75), 0.0, 1.0),
            demand_rps=_optional("--demand", spec.get("demand_rps"), 0.0, 1e9),
            ray_address=spec.get("ray_address") or None,
            per_node=whole("--per-node", spec.get("per_node", 1), 1, 64),
        )
        made._check_load()
        made._check_endpoint()
        made._check_variable()
        return made

    def to_dict(self) -> dict[str, Any]:
        """The spec as JSON."""
        return {**asdict(self), "values": list(self.values)}

    @property
    def of_variable(self) -> bool:
        """Whether a variable is swept, at one load."""
        return self.over not in (*LOADS, AUTO)

    def config_at(self, value: Value | None = None) -> EngineConfig:
        """The engine's configuration at a value of the variable that is swept (None: no variable is)."""
        chosen = dict(self.settings) if value is None else {**self.settings, self.over: value}
        return EngineConfig.from_settings({**needed_values(chosen.items()), **chosen})

    def _check_load(self) -> None:
        if self.over == CONCURRENCY and self.concurrency is not None:
            raise InputError("--concurrency", self.concurrency, "no value beside --over concurrency=..., which sets it")
        if self.over in (RATE, AUTO) and self.concurrency is not None:
            raise InputError("--concurrency", self.concurrency, f"no value beside --over {self.over}")
        if not self.of_variable and self.rate_rps is not None:
            raise InputError("--rate", self.rate_rps, "no value unless a variable is swept: --over rate=... varies it")
        if self.concurrency is not None and self.rate_rps is not None:
            raise InputError("--concurrency", self.concurrency, "either --concurrency or --rate, as there is one load")

    def _check_endpoint(self) -> None:
        if self.endpoint is None:
            return
        if self.of_variable:
            accepted = "concurrency, rate or auto beside --endpoint: a server has settings of its own"
            raise InputError("--over", self.over, accepted)
        if self.ray_address is not None:
            accepted = "none beside --endpoint: points sent by several nodes at once would load one server together"
            raise InputError("--ray-address", self.ray_address, accepted)

    def _check_variable(self) -> None:
        if not self.of_variable:
            self.config()
            return
        if self.over in self.settings:
            raise InputError("--set", self.over, f"any variable but {self.over}, which is the one that is swept")
        chosen = [*self.settings.items(), *((self.over, value) for value in self.values)]
        held_because(chosen, set_by_user={**self.settings, self.over: self.values})
        refuse_without_effect(self.over, [self.config_at(value) for value in self.values])


def parse_over(text: str) -> tuple[str, tuple[str, ...]]:
    """("rate", ("0.5", "1")) of "rate=0.5,1", ("auto", ()) of "auto"; InputError for anything else."""
    name, separator, values = text.partition("=")
    name, parts = name.strip(), tuple(part.strip() for part in values.split(",") if part.strip())
    if name == AUTO and not separator:
        return AUTO, ()
    if not separator or not parts or "=" in values:
        raise InputError("--over", text, OVER_ACCEPTED)
    if name == AUTO:
        raise InputError("--over", text, "auto alone: it finds its rates itself; --points N says how many")
    if name not in LOADS and name not in VARIABLES:
        accepted = f"{OVER_ACCEPTED}; the variables are {', '.join(VARIABLES)}"
        raise unknown_name("--over", name, (*LOADS, AUTO, *VARIABLES), accepted)
    return name, parts


def _values(over: str, given: Any) -> tuple[Value, ...]:
    """The values swept over, in the order given for a variable and ascending for a load."""
    if over == AUTO:
        if given:
            raise InputError("--over", over, "auto without values: it finds its rates itself")
        return ()
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InputError("--over", given, OVER_ACCEPTED)
    values: list[Value]
    if over == CONCURRENCY:
        values = sorted(whole("--over concurrency", value, 1, MOST_CONCURRENCY) for value in given)
    elif over == RATE:
        values = sorted(_between("--over rate", value, 0.0, MOST_RATE_RPS) for value in given)
    else:
        name = variable(over).name
        values = [parse_value(name, value) for value in given]
    least = 1 if over in LOADS else 2
    if not least <= len(values) <= MOST_VALUES or len(set(values)) < len(values):
        raise InputError(f"--over {over}", ",".join(map(str, given)), f"{least} to {MOST_VALUES} different values")
    return tuple(values)


def _optional(name: str, value: Any, low: float, high: float) -> float | None:
    return None if value is None else _between(name, value, low, high)


def _optional_whole(name: str, value: Any, high: int) -> int | None:
    return None if value is None else whole(name, value, 1, high)


def _between(name: str, value: Any, low: float, high: float) -> float:
    """A number above `low`, at most `high`."""
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    if not low < number <= high:
        floor = f"above {low:g}" if low >= 0 else "of 0 or more"
        raise InputError(name, value, f"a number {floor}, at most {high:g}")
    return number


def _one_of(name: str, value: Any, accepted: Sequence[str]) -> str:
    if value not in accepted:
        raise InputError(name, value, ", ".join(accepted))
    return str(value)
