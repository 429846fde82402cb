"""The memory ledger: named accounts that add up to what a deployment holds. Readings are passed in."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import prod
from typing import Any, Literal

from ledger.activations import LOGIT_BYTES, activation_how, activation_peak_bytes
from ledger.errors import InputError
from ledger.formats import positive
from ledger.kv_blocks import BlockFormat
from ledger.kv_cache import kv_bytes_per_token_all_layers
from ledger.launched_steps import launched_phases
from ledger.model_spec import ModelSpec
from ledger.step_kernels import StepKernels, StepRow, held_weight_bytes, workspace_bytes, workspace_how
from ledger.weights import parameter_shapes, weight_bytes, weights_how

Provenance = Literal["computed", "measured", "simulated", "estimated"]


@dataclass(frozen=True)
class Account:
    """One line of the ledger: its bytes, how they come about, and where the figure is from."""

    name: str
    bytes: int
    how: str
    provenance: Provenance = "computed"

    def __post_init__(self) -> None:
        if self.bytes < 0:
            raise InputError(self.name, self.bytes, "bytes of 0 or more")


@dataclass(frozen=True)
class MemoryLedger:
    """All accounts, and the capacity they have to fit in (None: unknown). `usable_bytes` is less where an engine leaves
    part of the capacity alone.
    """

    accounts: tuple[Account, ...]
    capacity_bytes: int | None = None
    usable_bytes: int | None = None

    @property
    def total_bytes(self) -> int:
        """Sum of the accounts."""
        return sum(account.bytes for account in self.accounts)

    @property
    def fits(self) -> bool | None:
        """True when the accounts fit in what is usable of the capacity; None when the capacity is unknown."""
        limits = [limit for limit in (self.capacity_bytes, self.usable_bytes) if limit is not None]
        return self.total_bytes <= min(limits) if limits else None

    def account(self, name: str) -> Account:
        """The account of that name; KeyError when there is none."""
        for account in self.accounts:
            if account.name == name:
                return account
        raise KeyError(name)

    def unexplained_bytes(self, measured_total_bytes: int) -> int:
        """What was measured beyond the accounts; negative when the accounts say more than was measured."""
        return measured_total_bytes - self.total_bytes

    def to_json(self) -> dict[str, Any]:
        """{"accounts": [{"name", "bytes", "how", "provenance"}...], "total_bytes", "capacity_bytes", "fits"}."""
        return {
            "accounts": [asdict(account) for account in self.accounts],
            "total_bytes": self.total_bytes,
            "capacity_bytes": self.capacity_bytes,
            "fits": self.fits,
        }


def predict_ledger(
    spec: ModelSpec,
    *,
    dtype_bytes: int,
    kv_pool_bytes: int,
    kv: BlockFormat | None = None,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    block_size: int = 16,
    capacity_bytes: int | None = None,
    runtime_bytes: int | None = None,
    kernels: StepKernels = StepKernels(),
    most_drafts: int = 0,
) -> MemoryLedger:
    """What an engine with these settings will hold: weights, KV pool in whole blocks and its padding block, activation
    peak, the full-precision blocks of a quantized `kv` format (kv_tail), and the runtime where it is given: a reading
    of the process before the weights are read. kv None: elements of dtype_bytes.

    The peak is the larger of two steps: a prefill of `max_num_batched_tokens`, and a decode of `max_num_seqs` rows that
    read the whole pool (or the model's longest sequences, where those are less), each with `most_drafts` tokens to
    verify as far as `max_num_batched_tokens` allows.
    InputError for a number below 1, or a pool that does not hold one block.
    """
    positive("dtype_bytes", dtype_bytes)
    positive("max_num_batched_tokens", max_num_batched_tokens)
    positive("max_num_seqs", max_num_seqs)
    per_token = kv_bytes_per_token_all_layers(spec, dtype_bytes)
    block_bytes = per_token * positive("block_size", block_size)
    block_how, tails = f"{block_size} tokens x {per_token:,} B", []
    if kv is not None:
        block_bytes, block_how = kv.block_bytes(spec, block_size), kv.how(spec, block_size)
        tails = _tails(spec, kv, block_size, max_num_seqs)
    blocks = kv_pool_bytes // block_bytes if block_bytes else 0
    if block_bytes and blocks < 1:
        raise InputError("kv_pool_bytes", kv_pool_bytes, f"at least one block of {block_bytes:,} B")
    pool_tokens = max(1, blocks * block_size)
    sequence = min(pool_tokens, spec.max_position or pool_tokens)
    longest = min(max_num_batched_tokens, sequence)
    rows = min(max_num_seqs, max(1, blocks), max_num_batched_tokens)
    context = min(pool_tokens, rows * spec.max_position) if spec.max_position else pool_tokens
    room = block_size - 2 if tails else context // rows - 1
    drafts = min(rows * max(0, min(most_drafts, room)), max_num_batched_tokens - rows)
    peak = _activation_peak(spec, dtype_bytes, longest, sequence, rows, context, kernels, drafts, bool(tails))
    weights = held_weight_bytes(spec, dtype_bytes, kernels)
    runtime = []
    if runtime_bytes is not None:
        runtime = [Account("runtime", runtime_bytes, "a reading: resident before the weights are read", "measured")]
    return MemoryLedger(
        accounts=(
            *runtime,
            Account("weights", weights, _weights_how(spec, dtype_bytes, weights, kernels)),
            Account(
                "kv_pool",
                blocks * block_bytes,
                f"{blocks:,} blocks x {block_how} = {blocks * block_bytes:,} B",
            ),
            Account("padding_block", block_bytes, f"{block_how} = {block_bytes:,} B"),
            *tails,
            peak,
        ),
        capacity_bytes=capacity_bytes,
    )


def _tails(spec: ModelSpec, kv: BlockFormat, block_size: int, slots: int) -> list[Account]:
    """The account of the blocks that a quantized format keeps in full precision, on top of the pool."""
    size = kv.tail_bytes(spec, block_size, slots)
    kept = "open block and the sink block" if kv.sink_blocks else "open block"
    return (
        [Account("kv_tail", size, f"the {kept} of {slots:,} running requests in float32: {size:,} B")] if size else []
    )


def _weights_how(spec: ModelSpec, dtype_bytes: int, held: int, kernels: StepKernels) -> str:
    if not kernels.formats:
        padding = held - weight_bytes(spec, dtype_bytes)
        return weights_how(spec, dtype_bytes) + (f" + {padding:,} B to fill up panels" if padding else "")
    shapes = parameter_shapes(spec)
    counts: dict[int, int] = {}
    for name, shape in shapes.items():
        bits = kernels.formats[name].bits if name in kernels.formats else 8 * dtype_bytes
        counts[bits] = counts.get(bits, 0) + prod(shape)
    terms = " + ".join(f"{count:,} parameters of {bits} bits" for bits, count in sorted(counts.items()))
    payload = sum(count * bits for bits, count in counts.items()) // 8
    return f"{terms} = {payload:,} B + {held - payload:,} B of scales and panels filled up = {held:,} B"


def _activation_peak(
    spec: ModelSpec,
    dtype_bytes: int,
    longest: int,
    sequence: int,
    rows: int,
    context: int,
    kernels: StepKernels,
    drafts: int,
    quantized_kv: bool,
) -> Account:
    """The account of the larger of two steps: `longest` tokens of one prompt, and a decode of `rows` rows that read
    `context` tokens and have `drafts` to verify together. Of compiled code it is both: its workspace stays, and logits
    come on top.

    With naive attention the prompt's tokens are the last of a `sequence`: their scores are the most.
    """
    keys = max(1, context // rows)
    in_place = kernels.launched and kernels.flash  # keys and values are not gathered
    if in_place and kernels.fused:
        return _launched_peak(spec, dtype_bytes, longest, rows + drafts, quantized_kv)
    if not kernels.panel_columns:
        prefill = (longest, 1, dtype_bytes, 1 if in_place else longest if kernels.flash else sequence)
        context = 1 if in_place else context
        wide = rows + drafts
        steps = {"prefill": (prefill, sequence), "decode": ((wide, wide, dtype_bytes, context), keys)}
        stored = {name: None if kernels.flash else seen for name, (_, seen) in steps.items()}
        sizes = {name: activation_peak_bytes(spec, *steps[name][0], score_keys=stored[name]) for name in steps}
        busiest = max(sizes, key=lambda name: sizes[name])
        how = activation_how(spec, *steps[busiest][0], score_keys=stored[busiest])
        return Account("activation_peak", sizes[busiest], f"largest {busiest} step, {how}")
    prompt = [StepRow(0 if kernels.flash else sequence - longest, longest)]
    counts = [1 + drafts // rows + (row < drafts % rows) for row in range(rows)]
    decodes = [[StepRow(keys - 1, 1)] * rows, [StepRow(keys - count, count, count) for count in counts]]
    largest = max((prompt, *decodes), key=lambda step: workspace_bytes(spec, step, kernels))
    wanted = rows + drafts
    logits = wanted * spec.vocab_size * LOGIT_BYTES
    how = f"{workspace_how(spec, largest, kernels)} + {wanted:,} rows x {spec.vocab_size:,} logits x {LOGIT_BYTES} B"
    return Account("activation_peak", workspace_bytes(spec, largest, kernels) + logits, how)


def _launched_peak(spec: ModelSpec, dtype_bytes: int, longest: int, wide: int, quantized_kv: bool) -> Account:
    """Of a GPU's fused kernels: the larger of a prefill of `longest` tokens and a decode of `wide` of them."""
    steps = {"prefill": (longest, 1), "decode": (wide, wide)}
    phases = [
        (phase, name)
        for name, sizes in steps.items()
        for phase in launched_phases(spec, *sizes, dtype_bytes, quantized_kv=quantized_kv)
    ]
    busiest, name = max(phases, key=lambda found: found[0].bytes)
    how = f"largest {name} step, {busiest.name}: {busiest.how} = {busiest.bytes:,} B"
    return Account("activation_peak", busiest.bytes, how)
