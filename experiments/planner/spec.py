"""What a plan is asked for: model, traffic, objectives, cards with their prices, and what may be tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from core_engine.variables import KV_DTYPES
from experiments.metrics import Objective, parse_slo
from experiments.spec import BenchSpec, refuse_unknown, whole
from ledger.errors import InputError
from ledger.hardware import accelerator
from ledger.model_spec import load_model_spec
from ledger.serving import above_zero, share
from ledger.weight_formats import AS_STORED, weight_format

CARDS_IN_A_NODE = 8  # a replica stays within one: links between nodes are slower than those the profiles have
MOST_DEVICES = 4096
MOST_TOKENS = 1_048_576
MOST_GPUS = 6
HEADROOM = 0.2
TPS, PPS = (1, 2, 4, 8), (1, 2, 4)
SEQS, BATCHED = (16, 64, 256, 512), (2048, 8192)
RUN_LEVEL = ("error_rate",)  # of the objectives of a whole run, the ones that a simulation can tell


@dataclass(frozen=True)
class PlanSpec:
    """A plan's question, checked.

    gpus: cards of the catalogue; prices: of one for an hour, 1.0 (assumed) where none is given. Traffic is rate_rps
    requests/s of fixed lengths, or of a workload's (its lengths alone: each prompt is computed in full). slo: limits on
    latencies and the error rate; without one, what a replica keeps up with. max_devices: in all. weights and kv_dtypes:
    formats to try, None for those the card computes with. tps, pps: splits to try; seqs, batched: limits of a batch.
    disaggregation: try prefill and decode apart. headroom: share of a replica's limit kept free. top: plans to give.
    """

    model: str
    gpus: tuple[str, ...]
    rate_rps: float
    prices: Mapping[str, float] = field(default_factory=dict)
    input_tokens: int | None = None
    output_tokens: int | None = None
    workload: str | None = None
    length_scale: float = 1.0
    max_prompt_tokens: int | None = None
    max_tokens_cap: int | None = None
    slo: str | None = None
    max_devices: int | None = None
    weights: tuple[str, ...] | None = None
    kv_dtypes: tuple[str, ...] | None = None
    tps: tuple[int, ...] = TPS
    pps: tuple[int, ...] = PPS
    seqs: tuple[int, ...] = SEQS
    batched: tuple[int, ...] = BATCHED
    disaggregation: bool = True
    headroom: float = HEADROOM
    top: int = 5
    seed: int = 0
    target: str = "simulator"  # its runs need no device of this machine (experiments/lanes.py)

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any]) -> PlanSpec:
        """Validate a spec; InputError names the first field that is wrong. Missing fields take their defaults."""
        refuse_unknown(cls, spec)
        given = {name: value for name, value in spec.items() if value is not None}
        model = str(given.get("model", ""))
        load_model_spec(model)
        gpus = _gpus(given.get("gpus"))
        return cls(
            model=model,
            gpus=gpus,
            rate_rps=_number("rate", given.get("rate_rps")),
            prices=_prices(given.get("prices") or {}, gpus),
            **_traffic(given),
            slo=_slo(given.get("slo")),
            max_devices=_optional("max_devices", given, MOST_DEVICES),
            weights=_formats("weights", given.get("weights"), _weights),
            kv_dtypes=_formats("kv_dtype", given.get("kv_dtypes"), _kv_dtype),
            tps=_counts("tp", given.get("tps", TPS), CARDS_IN_A_NODE),
            pps=_counts("pp", given.get("pps", PPS), CARDS_IN_A_NODE),
            seqs=_counts("max_num_seqs", given.get("seqs", SEQS), 1024),
            batched=_counts("max_num_batched_tokens", given.get("batched", BATCHED), 65_536),
            disaggregation=bool(given.get("disaggregation", True)),
            headroom=share("headroom", _any_number("headroom", given.get("headroom", HEADROOM))),
            top=whole("top", given.get("top", 5), 1, 20),
            seed=whole("seed", given.get("seed", 0), 0, 2**63 - 1),
        )

    def to_dict(self) -> dict[str, Any]:
        """The spec as JSON."""
        return {
            name: list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
            for name, value in asdict(self).items()
        }

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The limits."""
        return parse_slo(self.slo)

    def price(self, gpu: str) -> float:
        """Of one card for one hour."""
        return self.prices.get(gpu, 1.0)


def parse_prices(texts: Iterable[str]) -> dict[str, float]:
    """`NAME=PER_HOUR` options as a dict; InputError for one of another form."""
    found = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise InputError("--price", text, "NAME=PER_HOUR, as h100-sxm=2.5")
        found[name.strip()] = _number("--price", value)
    return found


def _gpus(given: Any) -> tuple[str, ...]:
    names = [given] if isinstance(given, str) else list(given or ())
    if not 0 < len(names) <= MOST_GPUS:
        raise InputError("--gpu", ",".join(map(str, names)), f"1 to {MOST_GPUS} cards of the catalogue")
    return tuple(dict.fromkeys(accelerator(str(name)).name for name in names))


def _prices(given: Mapping[str, Any], gpus: tuple[str, ...]) -> dict[str, float]:
    found = {}
    for name, value in given.items():
        card = accelerator(str(name)).name
        if card not in gpus:
            raise InputError("--price", name, f"one of the cards asked about: {', '.join(gpus)}")
        found[card] = _number("--price", value)
    return found


def _traffic(given: Mapping[str, Any]) -> dict[str, Any]:
    """Either two lengths, or a workload with what is changed of it."""
    sizes = {name: _optional(name, given, MOST_TOKENS) for name in ("input_tokens", "output_tokens")}
    workload = given.get("workload")
    if workload is None:
        for name, value in sizes.items():
            if value is None:
                raise InputError(name, "", "a number of tokens, or --workload instead of both lengths")
        return sizes
    for name, value in sizes.items():
        if value is not None:
            raise InputError(name, value, "nothing beside --workload, which has lengths of its own")
    names = ("workload", "length_scale", "max_prompt_tokens", "max_tokens_cap")
    checked = BenchSpec.from_dict({name: given[name] for name in names if name in given})
    return {name: getattr(checked, name) for name in names}


def _slo(text: Any) -> str | None:
    for objective in parse_slo(text):
        if objective.latency is None and objective.name not in RUN_LEVEL:
            why = "quality is not simulated" if objective.name == "quality_drop" else "cost is what is searched for"
            raise InputError("slo", objective.name, f"limits on ttft, tpot, itl, e2e and error_rate: {why}")
    return str(text) if text else None


def _weights(name: str) -> str:
    return AS_STORED if name == AS_STORED else weight_format(name).name


def _kv_dtype(name: str) -> str:
    accepted = [dtype for dtype in KV_DTYPES if dtype != "auto"]
    if name not in accepted:
        raise InputError("kv_dtype", name, ", ".join(accepted))
    return name


def _formats(name: str, given: Any, checked: Any) -> tuple[str, ...] | None:
    if given is None:
        return None
    found = tuple(dict.fromkeys(checked(str(one)) for one in given))
    if not found:
        raise InputError(name, "", "at least one format")
    return found


def _counts(name: str, given: Any, most: int) -> tuple[int, ...]:
    found = tuple(sorted({whole(name, one, 1, most) for one in given}))
    if not found:
        raise InputError(name, "", "at least one number")
    return found


def _optional(name: str, given: Mapping[str, Any], most: int) -> int | None:
    return None if given.get(name) is None else whole(name, given[name], 1, most)


def _number(name: str, value: Any) -> float:
    return above_zero(name, _any_number(name, value))


def _any_number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(name, "" if value is None else value, "a number above 0") from None
