"""The memory ledger: named accounts that add up to what a deployment holds. Readings are passed in."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from ledger.activations import activation_how, activation_peak_bytes
from ledger.errors import InputError
from ledger.formats import positive
from ledger.kv_cache import kv_bytes_per_token_all_layers
from ledger.model_spec import ModelSpec
from ledger.weights import weight_bytes, weights_how

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
    max_num_batched_tokens: int,
    max_num_seqs: int,
    block_size: int = 16,
    capacity_bytes: int | None = None,
    runtime_bytes: int | None = None,
) -> MemoryLedger:
    """What an engine with these settings will hold: weights, KV pool in whole blocks and its padding block, activation
    peak, and the runtime where it is given: a reading of the process before the weights are read.

    The peak is the larger of two steps: a prefill of `max_num_batched_tokens`, and a decode of `max_num_seqs` rows that
    read the whole pool (or the model's longest sequences, where those are less).
    InputError for a number below 1, or a pool that does not hold one block.
    """
    positive("dtype_bytes", dtype_bytes)
    positive("max_num_batched_tokens", max_num_batched_tokens)
    positive("max_num_seqs", max_num_seqs)
    per_token = kv_bytes_per_token_all_layers(spec, dtype_bytes)
    block_bytes = per_token * positive("block_size", block_size)
    blocks = kv_pool_bytes // block_bytes if block_bytes else 0
    if block_bytes and blocks < 1:
        raise InputError("kv_pool_bytes", kv_pool_bytes, f"at least one block of {block_bytes:,} B")
    pool_tokens = max(1, blocks * block_size)
    longest = min(max_num_batched_tokens, pool_tokens, spec.max_position or pool_tokens)
    prefill = (longest, 1, dtype_bytes)
    rows = min(max_num_seqs, max(1, blocks), max_num_batched_tokens)
    context = min(pool_tokens, rows * spec.max_position) if spec.max_position else pool_tokens
    decode = (rows, rows, dtype_bytes, context)
    steps = {"prefill": prefill, "decode": decode}
    busiest = max(steps, key=lambda name: activation_peak_bytes(spec, *steps[name]))
    runtime = []
    if runtime_bytes is not None:
        runtime = [Account("runtime", runtime_bytes, "a reading: resident before the weights are read", "measured")]
    return MemoryLedger(
        accounts=(
            *runtime,
            Account("weights", weight_bytes(spec, dtype_bytes), weights_how(spec, dtype_bytes)),
            Account(
                "kv_pool",
                blocks * block_bytes,
                f"{blocks:,} blocks x {block_size} tokens x {per_token:,} B = {blocks * block_bytes:,} B",
            ),
            Account("padding_block", block_bytes, f"{block_size} tokens x {per_token:,} B = {block_bytes:,} B"),
            Account(
                "activation_peak",
                activation_peak_bytes(spec, *steps[busiest]),
                f"largest {busiest} step, {activation_how(spec, *steps[busiest])}",
            ),
        ),
        capacity_bytes=capacity_bytes,
    )
