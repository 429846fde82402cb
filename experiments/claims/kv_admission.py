"""C05: how many sequences a fixed KV memory holds in every format: admitted by the scheduler, and as the ledger says.

Nothing is computed: blocks are allocated, requests queued, and the first plan says who may run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments.asked_to_stop import go_on
from experiments.claims.comparison import FAILS, HOLDS, LIMITED, UNDECIDED, Verdict
from experiments.claims.formats import kv_rows

SEQ_LEN = 256
KV_MEMORY_MIB = 45  # of 16-bit KV exactly eight sequences of the embedded model
BLOCK_SIZES = (64, 16)
MOST_SEQUENCES = 255  # so that their prompts fit one step
MIB = 2**20
BASE = {"kv_dtype": "bf16"}
FORMATS: tuple[Mapping[str, str], ...] = (
    BASE,
    {"kv_dtype": "int8"},
    {"kv_dtype": "int4"},
    {"kv_dtype": "int4", "kv_key_axis": "token"},
    {"kv_dtype": "int2"},
)
# What the claim says of each, against 16 bits.
CLAIMED = {"int8": 2, "int4": 4}
MOST_OF = 0.5  # of the gain that the claim promises

Admit = Callable[[Mapping[str, Any], Sequence[Mapping[str, Any]]], list[dict[str, Any]]]


def admit(settings: Mapping[str, Any], arms: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each arm over `settings`: sequences of SEQ_LEN tokens admitted at once, as many as the ledger predicts, and
    the bytes behind both. The model is loaded once; InputError and CannotRunError as the engine raises them."""
    from core_engine.config import EngineConfig
    from core_engine.model.loader import load_model

    loaded = load_model(EngineConfig.from_settings(settings))
    return [_admitted(loaded, {**settings, **arm}) for arm in arms]


def _admitted(loaded: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    from core_engine.config import EngineConfig
    from core_engine.engine import Engine
    from core_engine.executor.torch_executor import TorchExecutor
    from core_engine.kv.format import KVFormat
    from core_engine.request import SamplingParams
    from ledger.kv_blocks import admitted

    alone = {"prefix_cache": "off", "kv_watermark": 0, "max_num_batched_tokens": 65_536}
    go_on()
    config = EngineConfig.from_settings({**settings, **alone, "max_num_seqs": MOST_SEQUENCES})
    form, spec, room = KVFormat.from_config(config, loaded.weights.dtype), loaded.spec, config.kv_memory_mib * MIB
    predicted = admitted(spec, form.blocks, room, config.block_size, SEQ_LEN, MOST_SEQUENCES)
    slots = min(MOST_SEQUENCES, predicted + 1)
    executor = TorchExecutor(
        loaded.decoder, block_size=config.block_size, kv_memory_bytes=room, kv_format=form, num_slots=slots
    )
    engine = Engine(config, loaded, executor=executor)
    for number in range(slots if predicted else 0):  # what can never fit would be refused
        ids = [(number + place) % spec.vocab_size for place in range(SEQ_LEN)]
        engine.add(ids, SamplingParams(max_tokens=2))
    elements = config.block_size * sum(layer.kv_elements for layer in spec.layers)
    return {
        "kv_dtype": config.kv_dtype,
        "kv_key_axis": config.kv_key_axis if form.blocks.has_zero else None,
        "block_size": config.block_size,
        "kv_memory_mib": config.kv_memory_mib,
        "seq_len": SEQ_LEN,
        "admitted": len(engine.scheduler.plan(0).admitted),
        "predicted": predicted,
        "bits_per_element": 8 * form.blocks.block_bytes(spec, config.block_size) / elements,
        "pool_bytes": executor.kv_pool_bytes(),
        "open_block_bytes_a_sequence": executor.kv_tail_bytes() // slots,
        "weights_bytes": loaded.weights.num_bytes(),
        "provenance": "measured",
    }


def check(options: Mapping[str, Any], admit: Admit = admit) -> dict[str, Any]:
    """The scheduler's counts by format and block size, then the arithmetic for other models and a card."""
    settings = {"kv_memory_mib": KV_MEMORY_MIB, **(options.get("settings") or {})}
    sizes = (settings["block_size"],) if "block_size" in settings else BLOCK_SIZES
    arms = [{**form, "block_size": size} for size in sizes for form in FORMATS]
    rows = admit(settings, arms)
    verdict, reason = judge(rows)
    return {"verdict": verdict, "reason": reason, "evidence": [*map(_named, rows), *kv_rows()]}


def judge(rows: Sequence[Mapping[str, Any]]) -> Verdict:
    """Holds when INT8 admits twice and INT4 four times as many as 16 bits and as many as predicted, at every block
    size; with a limit when more than half of what was promised is reached."""
    wrong = [row for row in rows if row["admitted"] != row["predicted"]]
    if wrong:
        row = wrong[0]
        return FAILS, (
            f"{row['kv_dtype']} KV in blocks of {row['block_size']} admits {row['admitted']} sequences where the ledger"
            f" says {row['predicted']}"
        )
    bases = {row["block_size"]: row["admitted"] for row in rows if row["kv_dtype"] == BASE["kv_dtype"]}
    if not all(bases.values()):
        return UNDECIDED, f"this KV memory holds no sequence of {rows[0]['seq_len']} tokens in 16 bits"
    found = "; ".join(f"blocks of {size}: {_counts(rows, size)}" for size in bases)
    gains = {
        (row["kv_dtype"], row["admitted"] / bases[row["block_size"]]) for row in rows if row["kv_dtype"] in CLAIMED
    }
    beside = max(row["open_block_bytes_a_sequence"] for row in rows)
    text = (
        f"admitted as predicted, scales included. {found}. Only this pool shrinks: weights stay, and beside it every "
        f"running sequence keeps its open block in full precision, up to {beside / MIB:.2f} MiB"
    )
    if all(gain >= CLAIMED[name] for name, gain in gains):
        return HOLDS, text
    enough = all(gain > 1 + MOST_OF * (CLAIMED[name] - 1) for name, gain in gains)
    return (LIMITED if enough else FAILS), text


def _counts(rows: Sequence[Mapping[str, Any]], size: int) -> str:
    return ", ".join(f"{_name(row)} {row['admitted']}" for row in rows if row["block_size"] == size)


def _name(row: Mapping[str, Any]) -> str:
    keys = f" (keys per {row['kv_key_axis']})" if row["kv_key_axis"] else ""
    return f"{row['kv_dtype']}{keys}"


def _named(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"part": f"{_name(row)} KV, blocks of {row['block_size']}", **row}
