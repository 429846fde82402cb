"""A deployment: one model on so many cards under one engine, and what its ranks hold whatever runs on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ledger.buffers import Buffer, LayerWidth, Step, activations, default_logit_rows, layer_width, other_buffers
from ledger.engines import EngineRule, engine_rule
from ledger.errors import InputError
from ledger.formats import ElementFormat, element_format, positive
from ledger.kv_blocks import KEY_AXES, PROTECTIONS, QUANTIZED, BlockFormat, blocks_of_sequence, one_shape
from ledger.kv_cache import LayerGroups, layer_groups, layer_state_bytes, sequence_bytes
from ledger.model_spec import ModelSpec
from ledger.partition import MAX_RANKS, stages
from ledger.vision import vision_parameter_count
from ledger.weight_formats import AS_STORED, FormattedGroups, formatted_groups, rank_weights, weight_format

DEVICES = ("cuda", "cpu")
OWN_ENGINE = "trilemma"
VISION_ELEMENT_BYTES = 2  # towers stay 16-bit, in quantized checkpoints too


@dataclass(frozen=True)
class Stage:
    """What the fullest rank of one pipeline stage holds whatever runs on it, and what a sequence adds."""

    index: int
    weight_bytes: int
    vision_bytes: int
    groups: LayerGroups
    state_bytes: int


@dataclass(frozen=True)
class Deployment:
    """One model on `tp` x `pp` cards of `capacity_bytes` each, under an engine, with `concurrency` sequences at once.

    weights         a format of ledger.weight_formats, or "as-stored"
    kv_group_size   elements that share a scale in integer KV formats; None: 64; 0: payload only
    kv_key_axis     what int4 and int2 keys share a scale over in our own engine: "channel" or "token"
    kv_protect      what our own engine keeps apart of them: "none", "sinks" or "outliers"
    block_size      tokens of a KV page; None: no rounding
    memory_fraction None: the engine's default
    max_num_seqs    rows of logits the engine prepares for; None: the engine's default
    card            its name in the catalogue, on which an engine's defaults may depend
    device          "cuda" or "cpu" (no context, graphs or communicator)

    InputError for a value that cannot be.
    """

    spec: ModelSpec
    weights: str = "bf16"
    kv_dtype: str = "bf16"
    kv_group_size: int | None = None
    kv_key_axis: str = KEY_AXES[0]
    kv_protect: str = PROTECTIONS[0]
    seq_len: int = 4096
    concurrency: int = 1
    tp: int = 1
    pp: int = 1
    block_size: int | None = 16
    max_num_batched_tokens: int = 8192
    engine: str = "vllm"
    memory_fraction: float | None = None
    capacity_bytes: int | None = None
    max_num_seqs: int | None = None
    device: str = "cuda"
    card: str = ""

    def __post_init__(self) -> None:
        if self.weights != AS_STORED:
            weight_format(self.weights)
        element_format(self.kv_dtype, self.kv_group_size)
        positive("seq_len", self.seq_len)
        positive("concurrency", self.concurrency)
        positive("tp", self.tp, MAX_RANKS)
        stages(self.spec.num_layers, self.pp)
        positive("max_num_batched_tokens", self.max_num_batched_tokens)
        for name, limit in (("block_size", 10**9), ("max_num_seqs", 10**6), ("capacity_bytes", 10**18)):
            value = getattr(self, name)
            if value is not None:
                positive(name, value, limit)
        engine_rule(self.engine)
        fraction = self.memory_fraction
        if fraction is not None and (isinstance(fraction, bool) or not 0 < fraction <= 1):
            raise InputError("memory_fraction", fraction, "a number above 0, at most 1")
        if self.device not in DEVICES:
            raise InputError("device", self.device, " or ".join(DEVICES))
        self._check_kv_blocks()

    def _check_kv_blocks(self) -> None:
        for name, choices in (("kv_key_axis", KEY_AXES), ("kv_protect", PROTECTIONS)):
            value = getattr(self, name)
            if value not in choices:
                raise InputError(name, value, ", ".join(choices))
            has_zero = BlockFormat(self.kv_dtype).has_zero
            if value != choices[0] and not (self.rule.name == OWN_ENGINE and has_zero):
                raise InputError(name, value, f"{choices[0]}: others are of --engine {OWN_ENGINE} with int4 or int2")

    @cached_property
    def own_blocks(self) -> BlockFormat | None:
        """The blocks that our own engine keeps quantized KV in; None for other engines and formats, for a group size
        that it has not, and for a model whose layers it has no blocks for."""
        own = self.rule.name == OWN_ENGINE and self.kv_dtype in QUANTIZED and self.kv_group_size is None
        if not own or self.block_size is None or one_shape(self.spec.layers) is None:
            return None
        return BlockFormat(self.kv_dtype, self.kv_key_axis, self.kv_protect)

    def kv_sequence_bytes(self, stage: Stage, seq_len: int) -> int:
        """KV bytes that one sequence adds on the fullest rank of a stage, in whole blocks."""
        form, layer = self.own_blocks, one_shape(self.spec.layers)
        if form is None or layer is None or self.block_size is None:
            return sequence_bytes(stage.groups, seq_len, self.stored, self.block_size, self.tp)
        layers = sum(count for _, count in stage.groups)
        return sum(blocks_of_sequence(form, layer, layers, seq_len, self.block_size, self.tp))

    @property
    def rule(self) -> EngineRule:
        """How the engine divides the memory."""
        return engine_rule(self.engine)

    @property
    def logit_rows(self) -> int:
        """Rows of logits the engine prepares for: max_num_seqs, or the engine's default on a card of this size."""
        return self.max_num_seqs or default_logit_rows(self.rule.name, self.capacity_bytes, self.card)

    @property
    def fraction(self) -> float:
        """The memory fraction in force."""
        return self.rule.memory_fraction if self.memory_fraction is None else self.memory_fraction

    @cached_property
    def stored(self) -> ElementFormat:
        """The format of KV elements."""
        return element_format(self.kv_dtype, self.kv_group_size)

    @cached_property
    def groups(self) -> FormattedGroups:
        """The parameters, those of like layers together, each group with its format."""
        return formatted_groups(self.spec, self.weights)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Every pipeline stage as its fullest rank holds it."""
        held = rank_weights(self.spec, self.weights, self.tp, self.pp, groups=self.groups)
        found = []
        for index, place in enumerate(stages(self.spec.num_layers, self.pp)):
            layers = self.spec.layers[place.start : place.stop]
            state = sum(layer_state_bytes(layer, self.tp) for layer in layers)
            vision = VISION_ELEMENT_BYTES * (vision_parameter_count(self.spec) or 0) if index == 0 else 0
            found.append(Stage(index, held[index].total_bytes, vision, layer_groups(layers), state))
        return tuple(found)

    @cached_property
    def width(self) -> LayerWidth:
        """The widest moment of the model's layers on one rank."""
        return layer_width(self.spec, self.tp, [group for group, _ in self.groups])

    @cached_property
    def others(self) -> tuple[Buffer, ...]:
        """Context, workspace, graphs, communicator."""
        return other_buffers(self.rule.name, self.tp * self.pp, self.device)

    @cached_property
    def steady_activations(self) -> Buffer | None:
        """The activation peak when it does not depend on what runs; None for our own engine, where it does."""
        return None if self.rule.name == OWN_ENGINE else self.activations(1, 1)

    def activations(self, seq_len: int, concurrency: int) -> Buffer:
        """The activation peak of the largest step with so many sequences of that length."""
        tokens, rows = self.max_num_batched_tokens, self.logit_rows
        if self.rule.name == OWN_ENGINE:
            tokens, rows = min(tokens, max(1, seq_len * concurrency)), max(1, min(rows, concurrency))
        return activations(self.spec, self.rule.name, Step(tokens, rows, seq_len * concurrency), self.width)
