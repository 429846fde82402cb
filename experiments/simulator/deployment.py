"""From what is to be simulated to replicas: which device, which model in which formats, split how, how much KV memory.

Owns SimulateSpec and its validation. A card's KV memory is what the ledger leaves beside weights, activations and
buffers by the engine's rule; this machine's is kv_memory_mib, as the engine here takes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from core_engine.config import EngineConfig
from core_engine.executor.roofline_executor import Acceptance, SimulatedMemory
from core_engine.simulation.replica import OnEnd, Replica
from core_engine.simulation.routers import ROUTERS
from core_engine.variables import KV_DTYPES
from experiments.spec import BenchSpec, whole
from ledger.capacity import Deployment, kv_room_bytes
from ledger.device_profile import DeviceProfile, device_profile, named_link
from ledger.errors import InputError
from ledger.kv_blocks import BlockFormat
from ledger.model_spec import ModelSpec, load_model_spec
from ledger.step_time import Split, StepTimes
from ledger.weight_formats import rank_weights

MIB = 1024**2
THIS = "this"
TYPICAL_TOKENS = 4096  # of a sequence, by which a block's share of windowed layers is counted
# Where a card is simulated and nothing else is set: sizes that engines on such cards start with.
ON_A_CARD = {"max_num_seqs": 256, "max_num_batched_tokens": 8192, "max_queue": 1_000_000}
MOST_REPLICAS = 4096
MOST_KV_MIB = 1_048_576


@dataclass(frozen=True)
class SimulateSpec(BenchSpec):
    """A bench on hardware that is not here.

    model: a preset, config.json or directory; "embedded" as in settings. gpu: a card of the catalogue or "this".
    weights and kv_dtype: ledger formats; with gpu=this those of the settings. link: between devices, instead of the
    card's own.
    replicas behind `router`; prefill_replicas above 0: so many compute prompts and `replicas` the rest, KV going over
    `link`. acceptance: of drafts, as it was measured, with draft_ms of each draft token for a whole batch.
    """

    model: str = "embedded"
    gpu: str = THIS
    weights: str = "bf16"
    kv_dtype: str = "auto"
    tp: int = 1
    pp: int = 1
    cp: int = 1
    replicas: int = 1
    router: str = ROUTERS[0]
    prefill_replicas: int = 0
    link: str | None = None
    acceptance: float | None = None
    draft_ms: float = 0.0

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any]) -> SimulateSpec:
        """Validate a spec; InputError names the first field that is wrong. Missing fields take their defaults."""
        own = {item.name for item in fields(cls)} - {item.name for item in fields(BenchSpec)}
        common = BenchSpec.from_dict({name: value for name, value in spec.items() if name not in own})
        given = {name: value for name, value in spec.items() if name in own and value is not None}
        for name in ("tp", "pp", "cp"):
            given[name] = whole(name, given.get(name, 1), 1, 1024)
        given["replicas"] = whole("replicas", given.get("replicas", 1), 1, MOST_REPLICAS)
        given["prefill_replicas"] = whole("prefill_replicas", given.get("prefill_replicas", 0), 0, MOST_REPLICAS)
        for name in ("acceptance", "draft_ms"):
            if name in given:
                given[name] = _number(name, given[name])
        made = cls(**{**asdict(common), **given})
        made._check()
        return made

    def _check(self) -> None:
        for name, usual, option in (
            ("tensor_parallel", 1, "tp"), ("pipeline_parallel", 1, "pp"), ("disaggregation", "off", "prefill_replicas"),
        ):  # fmt: skip
            if (given := self.settings.get(name, usual)) != usual:
                raise InputError(name, given, f"{usual}: a simulated deployment is split by {option}")
        for name in ("exact_cache", "semantic_cache"):
            if (given := self.settings.get(name, "off")) != "off":
                raise InputError(name, given, "off: a simulated answer has no text that could be given again")
        for name in ("prompt_compression", "router"):
            if (given := self.settings.get(name, "off")) != "off":
                raise InputError(name, given, "off: simulated prompts and answers have no text to judge")
        if self.router not in ROUTERS:
            raise InputError("router", self.router, ", ".join(ROUTERS))
        if self.acceptance is not None:
            Acceptance(self.acceptance, self.draft_ms / 1000)
            if self.settings.get("speculation", "off") == "off":
                raise InputError("acceptance", self.acceptance, "speculation beside it (--set speculation=draft, say)")
        elif self.settings.get("speculation", "off") != "off":
            raise InputError("speculation", self.settings["speculation"], "a measured --acceptance beside it")
        if self.gpu.lower() == THIS and (self.tp, self.pp, self.cp) != (1, 1, 1):
            raise InputError("tp, pp or cp", "above 1", "1 with --gpu this: no link of this machine is calibrated")
        if self.on_this and self.weights != SimulateSpec.weights:
            raise InputError("weights", self.weights, "a card beside it; with --gpu this, --set weights=NAME")
        if self.link is not None:
            named_link(self.link)

    @property
    def on_this(self) -> bool:
        """Whether the device is the one that the engine runs on here."""
        return self.gpu.lower() == THIS

    @property
    def devices(self) -> int:
        """Devices in all."""
        return self.tp * self.pp * self.cp * (self.replicas + self.prefill_replicas)


@dataclass(frozen=True)
class Deployed:
    """What every replica is made of. block_bytes are the fullest rank's; kv_bytes_per_token all ranks' together."""

    spec: ModelSpec
    profile: DeviceProfile
    config: EngineConfig
    times: StepTimes
    memory: SimulatedMemory
    acceptance: Acceptance | None
    kv_bytes_per_token: float
    warnings: tuple[str, ...] = ()

    def replica(self, number: int, on_end: OnEnd, **options: Any) -> Replica:
        """A replica with an empty pool."""
        return Replica(
            self.config, self.times, self.memory, on_end, number=number, acceptance=self.acceptance, **options
        )


def deployed(spec: SimulateSpec) -> Deployed:
    """The parts of a spec's replicas; InputError where the model does not fit or can't be split so, CannotRunError
    where this machine is not calibrated."""
    return _on_this(spec) if spec.on_this else _on_card(spec)


def _on_this(spec: SimulateSpec) -> Deployed:
    from experiments.simulator.calibration import profile_here

    name = spec.model if spec.model != "embedded" else str(spec.settings.get("model", "embedded"))
    model = model_here(name)
    # A calibration holds for the model that it ran: another one has to have its own.
    settings = {**spec.settings, "model": name} | ({} if spec.kv_dtype == "auto" else {"kv_dtype": spec.kv_dtype})
    config = EngineConfig.from_settings(settings)
    profile, entry = profile_here(config)
    return on_this_machine(spec, model, config, profile, entry["formats"])


def model_here(name: str) -> ModelSpec:
    """The shape of a model setting; the enlarged model's is that of the embedded one. InputError as load_model_spec."""
    return load_model_spec("embedded" if name == "embedded-wide" else name)


def on_this_machine(
    spec: SimulateSpec, model: ModelSpec, config: EngineConfig, profile: DeviceProfile, formats: Mapping[str, str]
) -> Deployed:
    """The engine of `config` here with the efficiencies of `profile`, its weights and KV in these ledger formats."""
    link = None if spec.link is None else named_link(spec.link)
    times = StepTimes(model, profile, weights=formats["weights"], kv_dtype=formats["kv_dtype"], link=link)
    form = BlockFormat(formats["kv_dtype"], config.kv_key_axis, config.kv_protect)
    block_bytes = form.block_bytes(model, config.block_size)
    memory = SimulatedMemory(
        max(1, config.kv_memory_mib * MIB // block_bytes),
        block_bytes,
        weights_bytes=_weights_bytes(model, formats["weights"], 1, 1),
        tail_bytes=form.tail_bytes(model, config.block_size, config.max_num_seqs),
    )
    per_token = block_bytes / config.block_size
    return Deployed(model, profile, config, times, memory, _acceptance(spec), per_token)


def _on_card(spec: SimulateSpec) -> Deployed:
    model = load_model_spec(spec.model)
    profile = device_profile(spec.gpu)
    kv_dtype = "bf16" if spec.kv_dtype == "auto" else spec.kv_dtype
    if kv_dtype not in KV_DTYPES:
        raise InputError("kv_dtype", spec.kv_dtype, ", ".join(KV_DTYPES))
    settings = {**ON_A_CARD, **spec.settings, "kv_dtype": kv_dtype}
    config = EngineConfig.from_settings(settings)
    link = None if spec.link is None else named_link(spec.link)
    times = StepTimes(
        model,
        profile,
        weights=spec.weights,
        kv_dtype=kv_dtype,
        split=Split(spec.tp, spec.pp, spec.cp),
        graph=config.graph != "off",
        splits=0 if config.kv_splits == "auto" else int(config.kv_splits),
        link=link,
    )
    deployment = Deployment(
        model,
        weights=spec.weights,
        kv_dtype=kv_dtype,
        tp=spec.tp,
        pp=spec.pp,
        block_size=config.block_size,
        max_num_batched_tokens=config.max_num_batched_tokens,
        capacity_bytes=profile.accelerator.memory_bytes,
        max_num_seqs=config.max_num_seqs,
        card=profile.accelerator.name,
    )
    state = max(stage.state_bytes for stage in deployment.stages) * config.max_num_seqs
    blocks_in = TYPICAL_TOKENS // config.block_size or 1
    tokens = blocks_in * config.block_size
    sequence = max(deployment.kv_sequence_bytes(stage, tokens) for stage in deployment.stages)
    block_bytes = max(1, -(-sequence // blocks_in))
    given = "kv_memory_mib" in spec.settings
    room = config.kv_memory_mib * MIB if given else (kv_room_bytes(deployment) or 0) - state
    blocks = spec.cp * max(0, room) // block_bytes
    if blocks < 1:
        need = f"a card, split or format that leaves memory for KV: {spec.weights} weights on {spec.tp} x {spec.pp} x "
        raise InputError("gpu", spec.gpu, f"{need}{profile.accelerator.label} leave none")
    if not given:
        held = min(MOST_KV_MIB, max(1, blocks * block_bytes // MIB))
        config = EngineConfig.from_settings({**settings, "kv_memory_mib": held})
    weights = _weights_bytes(model, spec.weights, spec.tp, spec.pp)
    memory = SimulatedMemory(blocks, block_bytes, weights_bytes=weights)
    per_token = sum(deployment.kv_sequence_bytes(stage, tokens) for stage in deployment.stages) * spec.tp / tokens
    warnings = [f"{profile.accelerator.label} is not calibrated: its efficiencies are typical of its class, a guess"]
    return Deployed(
        model, profile, config, times, memory, _acceptance(spec), per_token,
        tuple(warnings if profile.calibration == "uncalibrated" else []),
    )  # fmt: skip


def _acceptance(spec: SimulateSpec) -> Acceptance | None:
    return None if spec.acceptance is None else Acceptance(spec.acceptance, spec.draft_ms / 1000)


def _weights_bytes(model: ModelSpec, weights: str, tp: int, pp: int) -> int:
    """Of the fullest rank."""
    return max(rank.total_bytes for rank in rank_weights(model, weights, tp, pp))


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(name, value, "a number") from None
