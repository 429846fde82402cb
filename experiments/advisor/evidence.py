"""What is known of a run or a server, as plain numbers: what every cause of the advisor looks at.

Owns the names, the units and the ranges, and how a document in the form of docs/advisor.md becomes evidence. Whatever
evidence is made of (a stored run, a /metrics page, a file) is made such a document first, so that the form which a user
types in is the only one. None is not known, and never 0. Knows no cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from core_engine.variables import VARIABLES, Value
from experiments.metrics.objectives import LATENCIES, Objective, parse_slo
from ledger.errors import InputError, unknown_name

ENGINES = ("trilemma", "vLLM", "SGLang", "TensorRT-LLM", "llama.cpp")
PROVENANCES = ("measured", "simulated", "computed", "given")
TYPED = "typed in"  # the source of numbers that somebody wrote down: what they were measured by is not known
SECONDS, BYTES, SHARE, RATE, COUNT, MONEY, RATIO, YES = "s", "B", "share", "/s", "", "money", "x", "yes or no"
SIGNED = "signed share"  # a loss below 0 is a gain
MOST_BYTES = 4 * 2**20  # of a file of numbers
LARGEST = 1e19  # of any number: no figure of a server is beyond it, and what is worked out of it stays finite


def _known(path: str, unit: str, how: str) -> Any:
    """A field that is None until known. path: where a document has it; how: how to get to know it."""
    return field(default=None, metadata={"path": path, "unit": unit, "how": how})


BENCH = "trilemma bench on the same traffic"
SERVER = "the server's /metrics, twice some seconds apart (--metrics, --metrics-later or --endpoint)"
PROFILE = "trilemma profile, or the device's profiler during decode steps"
DEVICE = "the utilisation that the device's driver reports (nvidia-smi dmon)"
CLIENT = "the report of whoever sends (trilemma bench --endpoint URL prints it)"
EVAL = "trilemma eval with your own items"
DRAFTS = "trilemma speculation, or the server's counters of drafts"


@dataclass(frozen=True)
class Evidence:
    """Numbers about one run or server. Times in s, sizes in bytes, shares from 0 to 1.

    sources: field -> where its number is from; `source` is where all others are from.
    """

    # What a request waits for
    ttft_mean_s: float | None = _known("ttft_s.mean", SECONDS, BENCH)
    ttft_p50_s: float | None = _known("ttft_s.p50", SECONDS, BENCH)
    ttft_p95_s: float | None = _known("ttft_s.p95", SECONDS, BENCH)
    ttft_p99_s: float | None = _known("ttft_s.p99", SECONDS, BENCH)
    tpot_mean_s: float | None = _known("tpot_s.mean", SECONDS, BENCH)
    tpot_p50_s: float | None = _known("tpot_s.p50", SECONDS, BENCH)
    tpot_p95_s: float | None = _known("tpot_s.p95", SECONDS, BENCH)
    tpot_p99_s: float | None = _known("tpot_s.p99", SECONDS, BENCH)
    itl_mean_s: float | None = _known("itl_s.mean", SECONDS, BENCH)
    itl_p50_s: float | None = _known("itl_s.p50", SECONDS, BENCH)
    itl_p95_s: float | None = _known("itl_s.p95", SECONDS, BENCH)
    itl_p99_s: float | None = _known("itl_s.p99", SECONDS, BENCH)
    e2e_mean_s: float | None = _known("e2e_s.mean", SECONDS, BENCH)
    e2e_p50_s: float | None = _known("e2e_s.p50", SECONDS, BENCH)
    e2e_p95_s: float | None = _known("e2e_s.p95", SECONDS, BENCH)
    e2e_p99_s: float | None = _known("e2e_s.p99", SECONDS, BENCH)
    queue_s: float | None = _known("latency_breakdown.queue_s", SECONDS, SERVER)
    prefill_s: float | None = _known("latency_breakdown.prefill_s", SECONDS, SERVER)
    decode_s: float | None = _known("latency_breakdown.decode_s", SECONDS, SERVER)
    overhead_s: float | None = _known("latency_breakdown.overhead_s", SECONDS, BENCH)
    stalled_s: float | None = _known("latency_breakdown.stalled_s", SECONDS, BENCH)
    unexplained_s: float | None = _known("latency_breakdown.unexplained_s", SECONDS, BENCH)
    transfer_s: float | None = _known("latency_breakdown.transfer_s", SECONDS, BENCH)
    # Load
    output_tokens_per_s: float | None = _known("output_tokens_per_s", RATE, BENCH)
    served_rps: float | None = _known("requests_per_s", RATE, SERVER)
    goodput_rps: float | None = _known("goodput_rps", RATE, BENCH)
    slo_attainment: float | None = _known("slo_attainment", SHARE, BENCH)
    duration_s: float | None = _known("duration_s", SECONDS, BENCH)
    completed: float | None = _known("completed", COUNT, BENCH)
    failed: float | None = _known("failed", COUNT, BENCH)
    offered_rps: float | None = _known("load.offered_rps", RATE, CLIENT)
    running: float | None = _known("load.running", COUNT, SERVER)
    running_peak: float | None = _known("load.running_peak", COUNT, SERVER)
    waiting: float | None = _known("load.waiting", COUNT, SERVER)
    growing: bool | None = _known("load.growing", YES, SERVER)
    prompt_tokens: float | None = _known("load.prompt_tokens", COUNT, SERVER)
    output_tokens: float | None = _known("load.output_tokens", COUNT, SERVER)
    # Steps and the device
    batch: float | None = _known("steps.batch", COUNT, BENCH)
    busy_share: float | None = _known("steps.busy_share", SHARE, BENCH)
    device_utilisation: float | None = _known("steps.device_utilisation", SHARE, DEVICE)
    idle_slot_share: float | None = _known("steps.idle_slot_share", SHARE, BENCH)
    host_share: float | None = _known("steps.host_share", SHARE, BENCH)
    launch_share: float | None = _known("steps.launch_share", SHARE, PROFILE)
    bandwidth_share: float | None = _known("steps.bandwidth_share", SHARE, PROFILE)
    flops_share: float | None = _known("steps.flops_share", SHARE, PROFILE)
    prefill_flops_share: float | None = _known("steps.prefill_flops_share", SHARE, PROFILE)
    kv_read_share: float | None = _known("steps.kv_read_share", SHARE, PROFILE)
    itl_with_prefill_s: float | None = _known("steps.itl_with_prefill_s", SECONDS, BENCH)
    itl_without_prefill_s: float | None = _known("steps.itl_without_prefill_s", SECONDS, BENCH)
    # Memory
    weights_bytes: float | None = _known("memory.weights_bytes", BYTES, "trilemma ledger CONFIG --gpu NAME")
    kv_pool_bytes: float | None = _known("memory.kv_pool_bytes", BYTES, "what the server prints of its KV cache")
    kv_reserved_bytes: float | None = _known("memory.kv_reserved_bytes", BYTES, BENCH)
    kv_peak_used_bytes: float | None = _known("memory.kv_peak_used_bytes", BYTES, BENCH)
    activation_peak_bytes: float | None = _known("memory.activation_peak_bytes", BYTES, BENCH)
    total_bytes: float | None = _known("memory.total_bytes", BYTES, BENCH)
    capacity_bytes: float | None = _known("memory.capacity_bytes", BYTES, "the memory of the device (nvidia-smi)")
    kv_used_share: float | None = _known("kv.used_share", SHARE, SERVER)
    kv_peak_share: float | None = _known("kv.peak_share", SHARE, SERVER)
    admission_waits: float | None = _known("kv.admission_waits", COUNT, BENCH)
    max_sequences: float | None = _known("kv.max_sequences", COUNT, "trilemma ledger CONFIG --gpu NAME")
    preemptions: float | None = _known("counters.preemptions", COUNT, SERVER)
    prefix_hit_rate: float | None = _known("counters.prefix_hit_rate", SHARE, SERVER)
    repeated_share: float | None = _known("prefix.repeated_share", SHARE, "the prompts: how much begins as another did")
    evicted_share: float | None = _known("prefix.evicted_share", SHARE, SERVER)
    # Speculation
    alpha: float | None = _known("counters.alpha", SHARE, DRAFTS)
    acceptance_rate: float | None = _known("counters.acceptance_rate", SHARE, DRAFTS)
    tokens_per_pass: float | None = _known("counters.tokens_per_pass", COUNT, DRAFTS)
    draft_k: float | None = _known("speculation.k", COUNT, DRAFTS)
    draft_c: float | None = _known("speculation.c", RATIO, DRAFTS)
    verify_v: float | None = _known("speculation.v", RATIO, DRAFTS)
    parallel_drafts: bool | None = _known("speculation.parallel", YES, DRAFTS)
    speculation_speedup: float | None = _known(
        "speculation.speedup", RATIO, "trilemma compare --vary speculation=off,FORM"
    )
    # Quality
    quality_drop: float | None = _known("quality.drop", SIGNED, EVAL)
    quality_evaluated: bool | None = _known("quality.evaluated", YES, EVAL)
    # Sender, way to the server, money
    lateness_p99_s: float | None = _known("client.lateness_p99_s", SECONDS, CLIENT)
    sent_rps: float | None = _known("client.sent_rps", RATE, CLIENT)
    connection_limit: float | None = _known("client.connection_limit", COUNT, CLIENT)
    in_flight_peak: float | None = _known("client.in_flight_peak", COUNT, CLIENT)
    client_cpu_share: float | None = _known("client.cpu_share", SHARE, CLIENT)
    round_trip_s: float | None = _known("network.round_trip_s", SECONDS, "ping, or an empty request to the server")
    outside_s: float | None = _known(
        "network.outside_s", SECONDS, "e2e at the client less e2e at the server (/metrics)"
    )
    cost_per_request: float | None = _known("cost_per_request", MONEY, BENCH)
    cost_per_million: float | None = _known("cost_per_million_output_tokens", MONEY, BENCH)
    price_per_device_hour: float | None = _known("price_per_device_hour", MONEY, "your bill")
    parameters: float | None = _known("model.parameters", COUNT, "the model's card")
    kv_bytes_per_token: float | None = _known("model.kv_bytes_per_token", BYTES, "trilemma kv CONFIG --seq-len N")
    # What is not a number
    quality_slices: Mapping[str, float] = field(default_factory=dict)
    config: Mapping[str, Value] = field(default_factory=dict)
    objectives: tuple[Objective, ...] = ()
    engine: str | None = None
    provenance: str = "measured"
    source: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)

    def known(self) -> Iterator[tuple[str, float | bool]]:
        """(field, value) of every number that is known."""
        for name in NUMBERS:
            if (value := getattr(self, name)) is not None:
                yield name, value

    def source_of(self, name: str) -> str:
        """Where the number of a field is from."""
        return self.sources.get(name, self.source)

    def setting(self, name: str) -> Value | None:
        """A variable's value; None where nobody said it, whatever its default here is."""
        return self.config.get(name)

    def limit(self, objective: str) -> float | None:
        """The limit of an objective (`ttft_p95`); None without one."""
        return next((one.limit for one in self.objectives if one.name == objective), None)

    def value_of(self, objective: Objective) -> float | None:
        """The number that an objective is about; None where it is not known."""
        value = self.error_rate if objective.name == "error_rate" else getattr(self, field_of(objective))
        return None if value is None else float(value)

    def missed(self, *latencies: str) -> bool | None:
        """Whether an objective on one of these latencies ("ttft", "itl") is missed; None: there is none, or unknown."""
        checks = [self._misses(one) for one in self.objectives if one.latency in latencies]
        if True in checks:
            return True
        return None if not checks or None in checks else False

    def missed_objectives(self, *latencies: str) -> list[Objective]:
        """The objectives on these latencies that are missed; on any without names."""
        wanted = latencies or LATENCIES
        return [one for one in self.objectives if one.latency in wanted and self._misses(one)]

    def _misses(self, objective: Objective) -> bool | None:
        value = self.value_of(objective)
        return None if value is None else value > objective.limit

    # -- numbers that follow from others -----------------------------------------------------------------------------

    @property
    def ttft_s(self) -> float | None:
        """A typical time to first token: the mean, else the median."""
        return _first(self.ttft_mean_s, self.ttft_p50_s)

    @property
    def gap_s(self) -> float | None:
        """A typical gap between tokens."""
        return _first(self.itl_mean_s, self.tpot_mean_s, self.itl_p50_s, self.tpot_p50_s)

    @property
    def e2e_s(self) -> float | None:
        """A typical time of a whole request: mean, median, or what its known parts add up to."""
        return _first(self.e2e_mean_s, self.e2e_p50_s, self.sum_of_parts_s)

    @property
    def sum_of_parts_s(self) -> float | None:
        """Queue, prefill and decode, and what else is known, added up; None unless those three are."""
        if self.queue_s is None or self.prefill_s is None or self.decode_s is None:
            return None
        rest = (self.overhead_s, self.stalled_s, self.unexplained_s, self.transfer_s)
        return self.queue_s + self.prefill_s + self.decode_s + sum(part for part in rest if part is not None)

    @property
    def queue_share(self) -> float | None:
        """Share of the time to first token that is waiting, at most 1."""
        return self._share_of_ttft(self.queue_s, self.prefill_s)

    @property
    def prefill_share(self) -> float | None:
        """Share of the time to first token that is the computing of the prompt, at most 1."""
        return self._share_of_ttft(self.prefill_s, self.queue_s)

    def _share_of_ttft(self, part: float | None, other: float | None) -> float | None:
        if part is None:
            return None
        whole = self.ttft_s
        if not whole:
            whole = part + other if other is not None else _first(self.ttft_p95_s, self.ttft_p99_s)
        return min(1.0, part / whole) if whole else None

    @property
    def decode_share(self) -> float | None:
        """Share of a request's time in decode steps, at most 1."""
        return None if self.decode_s is None or not self.e2e_s else min(1.0, self.decode_s / self.e2e_s)

    @property
    def seats(self) -> float | None:
        """Most requests that may run together; None when nobody said it."""
        value = self.config.get("max_num_seqs")
        return float(value) if isinstance(value, int | float) else None

    @property
    def seats_taken(self) -> float | None:
        """Share of the seats in use."""
        return None if self.running is None or not self.seats else self.running / self.seats

    @property
    def error_rate(self) -> float | None:
        """Requests that failed, of all."""
        if self.failed is None or self.completed is None or not self.failed + self.completed:
            return None
        return self.failed / (self.failed + self.completed)

    @property
    def preemptions_per_request(self) -> float | None:
        """Times that a request was preempted."""
        return None if self.preemptions is None or not self.completed else self.preemptions / self.completed

    @property
    def overloaded(self) -> bool | None:
        """Whether more arrives than is served, by the queue's growth or by the rates; None where neither is known."""
        if self.growing is not None:
            return self.growing
        if self.offered_rps is None or self.served_rps is None:
            return None
        return self.served_rps < 0.95 * self.offered_rps


NUMBERS = {one.name: one.metadata for one in fields(Evidence) if "path" in one.metadata}
"""Field -> {"path", "unit", "how"}."""
_BY_PATH = {meta["path"]: name for name, meta in NUMBERS.items()}
_GROUPS = {path.partition(".")[0] for path in _BY_PATH if "." in path}
# Keys of the metrics JSON that say nothing here beyond what the document has already, or are made to (from_run.py).
NOT_USED = frozenset(
    (
        "peak_output_tokens_per_s", "failures", "error_rate", "offered_load", "unexplained_share", "host_work", "slots",
        "concurrency", "in_flight", "kv_waste", "energy", "parallel", "disaggregation", "requests_per_device_hour",
        "price_provenance", "workload", "target", "tokens_counted", "client_lag_s", "in_other_terms", "environment",
        "objectives", "run_id", "held_because", "warm_up", "warnings", "repeats", "simulated", "quality_drop",
    )
)  # fmt: skip
_TEXTS = ("engine", "slo", "provenance", "config")


def field_of(objective: Objective) -> str:
    """The field of Evidence that an objective is judged by; a rate of errors takes what failed, and what did not."""
    if objective.latency is not None:
        return f"{objective.name}_s"
    return "failed" if objective.name == "error_rate" else objective.name


def how_to_know(name: str) -> str:
    """`path (unit): how to get to know it`, of a field."""
    if name == "objectives":
        return "slo: objectives, as --slo itl_p99=0.05, say what is too slow"
    meta = NUMBERS[name]
    unit = f", {meta['unit']}" if meta["unit"] in (SECONDS, BYTES) else ""
    return f"{meta['path']}{unit}: {meta['how']}"


def evidence_of(
    document: Mapping[str, Any],
    source: str,
    *,
    slo: str | None = None,
    sources: Mapping[str, str] | None = None,
    strict: bool = True,
) -> Evidence:
    """Evidence out of a document in the form of docs/advisor.md. slo goes before the document's own.

    sources: path -> where that number is from. strict: a key that is not listed is an InputError, as it may be a
    misspelt one; else it is passed over. InputError names the key, its value and what is accepted.
    """
    found: dict[str, Any] = {}
    for path, value in _leaves(document, strict):
        name = _BY_PATH[path]
        found[name] = _checked(path, NUMBERS[name]["unit"], value)
    told = document.get("slo")
    if told is not None and not isinstance(told, str):
        raise InputError("slo", told, "a text such as ttft_p95=0.5,itl_p99=0.05")
    usual = "given" if source == TYPED else "measured"
    return Evidence(
        **found,
        quality_slices=_slices(document.get("quality")),
        config=_config(document.get("config"), strict),
        objectives=parse_slo(slo if slo is not None else told),
        engine=_one_of("engine", document.get("engine"), ENGINES),
        provenance=_one_of("provenance", document.get("provenance"), PROVENANCES) or usual,
        source=source,
        sources={_BY_PATH[path]: where for path, where in (sources or {}).items() if path in _BY_PATH},
    )


def _leaves(document: Mapping[str, Any], strict: bool) -> Iterator[tuple[str, Any]]:
    """(path, value) of the numbers of a document; those that are null are left out."""
    for key, value in document.items():
        if key in _BY_PATH:
            if value is not None:
                yield key, value
        elif key in _GROUPS and isinstance(value, Mapping):
            for inner, number in value.items():
                path = f"{key}.{inner}"
                if path in _BY_PATH:
                    if number is not None:
                        yield path, number
                elif strict and not _passed_over(key, inner):
                    raise InputError("key", path, ", ".join(known for known in _BY_PATH if known.startswith(f"{key}.")))
        elif key in _GROUPS and value is not None and strict and key not in ("quality", "prefix"):
            raise InputError(key, value, "an object (a table) of numbers")
        elif strict and key not in _GROUPS and key not in NOT_USED and key not in _TEXTS:
            raise InputError("key", key, _accepted_for(key))


def _accepted_for(key: str) -> str:
    """What an unknown key may have been: an objective's name written as a number, or one of all."""
    latency, _, statistic = key.partition("_")
    path = f"{latency}_s.{statistic}"
    if path in _BY_PATH:
        return f"{path}: as {latency}_s = {{ {statistic} = 0.5 }} in TOML"
    return "those listed in docs/advisor.md: " + ", ".join(_top_level())


# Of the metrics JSON's own groups, what is not evidence.
_MORE = {
    "counters": ("alpha_by_position", "drafted_tokens", "accepted_tokens", "target_passes", "draft_time_share", "pace"),
    "memory": ("other_bytes", "process_rss_bytes", "process_peak_bytes", "runtime_bytes", "accounts", "predicted_bytes",
               "unexplained_bytes"),
    "prefix": ("hit_rate", "hit_tokens", "prefill_tokens"),
    "quality": ("slices",),
}  # fmt: skip


def _passed_over(group: str, key: str) -> bool:
    return key in _MORE.get(group, ()) or (key == "n" and group.endswith("_s"))


def _top_level() -> list[str]:
    return sorted({path.partition(".")[0] for path in _BY_PATH} | set(_TEXTS))


def _checked(path: str, unit: str, value: Any) -> float | bool:
    if unit == YES:
        if not isinstance(value, bool):
            raise InputError(path, value, "true or false")
        return value
    low, high = {SHARE: (0.0, 1.0), SIGNED: (-1.0, 1.0)}.get(unit, (0.0, LARGEST))
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        accepted = f"a number from {low:g} to {high:g}" if high < LARGEST else "a number of 0 or more"
        raise InputError(path, value, accepted)
    return float(value)


def _slices(quality: Any) -> dict[str, float]:
    """The losses by slice of the quality group; a run's one figure of quality has none."""
    listed = quality.get("slices") if isinstance(quality, Mapping) else None
    if listed is None:
        return {}
    if not isinstance(listed, Mapping):
        raise InputError("quality.slices", listed, "an object of slice and loss")
    return {str(name): float(_checked(f"quality.slices.{name}", SIGNED, loss)) for name, loss in listed.items()}


def _config(given: Any, strict: bool) -> dict[str, Value]:
    """Settings by variable. Values are as the server has them, which may be beyond what this engine accepts."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError("config", given, "an object of variables and their values")
    found: dict[str, Value] = {}
    for name, value in given.items():
        if name not in VARIABLES:
            if strict:
                raise unknown_name("config", name, VARIABLES, f"variables of the registry: {', '.join(VARIABLES)}")
            continue
        if value is None:
            continue
        number = VARIABLES[name].kind in ("int", "float")
        low = min(0, VARIABLES[name].minimum or 0)  # a log-probability is below 0
        if number and (isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= LARGEST):
            raise InputError(f"config.{name}", value, f"a number of {low:g} or more")
        if not number and not isinstance(value, str):
            raise InputError(f"config.{name}", value, "a text")
        found[name] = value
    return found


def _one_of(key: str, value: Any, accepted: tuple[str, ...]) -> str | None:
    if value is None:
        return None
    named = next((one for one in accepted if isinstance(value, str) and one.lower() == value.lower()), None)
    if named is None:
        raise InputError(key, value, ", ".join(accepted))
    return named


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
