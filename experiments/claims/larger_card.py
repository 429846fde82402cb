"""C07, simulated: throughput and the concurrency that a smaller KV cache frees, on a card larger than this machine.

Two readings. Long contexts: the pool of a full card in each KV format, always full; what is freed is concurrency, and
the bytes of KV read in a step stay the same. Short contexts: one format, concurrency doubled again and again; where
memory stops being what limits a step, twice the concurrency brings much less than twice the tokens, and the bend is
shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from core_engine.simulation.job import Ended, Job
from experiments.claims.comparison import FAILS, HOLDS, LIMITED, Verdict
from experiments.simulator.deployment import SimulateSpec, deployed
from ledger.roofline import crossover_batch

MODEL, CARD = "llama-3.1-8b", "h100-sxm"
FORMATS = ("bf16", "fp8", "int4")
LONG = (8192, 256)  # prompt and answer tokens
SHORT = (128, 128)
CONCURRENCIES = (16, 32, 64, 128, 256, 512, 1024)
NEARLY = 0.75  # of the proportional gain
BENT = 1.5  # times the tokens for twice the concurrency: below, the line has bent


def check(options: Mapping[str, Any]) -> dict[str, Any]:
    """Simulate both readings; options play no part, since nothing runs on this machine."""
    freed = [_freed(kv_dtype) for kv_dtype in FORMATS]
    curve = [_throughput("bf16", SHORT, many) for many in CONCURRENCIES]
    verdict, reason = judge(freed, curve)
    return {"verdict": verdict, "reason": reason, "evidence": [*freed, *curve]}


def judge(freed: list[dict[str, Any]], curve: list[dict[str, Any]]) -> Verdict:
    """From tokens/s and concurrency of each KV format, and tokens/s at concurrencies that double."""
    base, *others = freed
    shares = []
    for row in others:
        more = row["concurrency"] / base["concurrency"] - 1
        shares.append((row["output_tokens_per_s"] / base["output_tokens_per_s"] - 1) / more)
    gains = [
        (high["concurrency"], high["output_tokens_per_s"] / low["output_tokens_per_s"]) for low, high in pairwise(curve)
    ]
    bend = next((many for many, gain in gains if gain < BENT), None)
    said = ", ".join(
        f"{row['kv_dtype']} holds x{row['concurrency'] / base['concurrency']:.2f} sequences and gives"
        f" x{row['output_tokens_per_s'] / base['output_tokens_per_s']:.2f} tokens/s"
        for row in others
    )
    found = f"{said} (simulated, {MODEL} on {CARD}, {LONG[0]:,} tokens of context)"
    if min(shares) < NEARLY:
        return FAILS, f"{found}: less than {NEARLY:.0%} of what the concurrency would give in proportion"
    if bend is None:
        return HOLDS, f"{found}; no bend up to {CONCURRENCIES[-1]:,} sequences of {sum(SHORT)} tokens"
    return LIMITED, f"{found}; at short contexts the line bends at about {bend:,} sequences, near the compute roof"


def _freed(kv_dtype: str) -> dict[str, Any]:
    """The card's pool in that format, filled with as many long sequences as it holds."""
    spec = _spec(kv_dtype, 1024)
    made = deployed(spec)
    held = made.memory.num_blocks // -(-sum(LONG) // made.config.block_size)
    return _throughput(kv_dtype, LONG, max(1, min(1024, held)))


def _throughput(kv_dtype: str, lengths: tuple[int, int], many: int) -> dict[str, Any]:
    """Tokens/s while `many` sequences decode together, after their prompts: those are computed once whatever the
    format, and would hide it."""
    made = deployed(_spec(kv_dtype, many))
    prompt, answer = lengths
    times = made.times
    middle = prompt + answer // 2
    step_s = times.step_s(times.shape([(middle, 1, 1, False)] * many))
    ended: list[Ended] = []
    replica = made.replica(0, ended.append)
    for number in range(many):
        replica.submit(Job(number, 0, prompt, answer, answer))
    replica.advance(None)
    last_s = max(item.last_ns or 0 for item in ended) / 1e9
    return {
        "model": MODEL,
        "gpu": CARD,
        "kv_dtype": kv_dtype,
        "prompt_tokens": prompt,
        "answer_tokens": answer,
        "concurrency": many,
        "output_tokens_per_s": many / step_s,
        "with_prompts_tokens_per_s": sum(item.output_tokens for item in ended) / last_s,
        "crossover_batch": crossover_batch(times.costs, made.profile.accelerator),
        "error_band_pct": made.profile.error_band_pct,
        "provenance": "simulated",
    }


def _spec(kv_dtype: str, many: int) -> SimulateSpec:
    return SimulateSpec.from_dict(
        {
            "model": MODEL, "gpu": CARD, "kv_dtype": kv_dtype,
            "settings": {"max_num_seqs": many, "prefix_cache": "off", "max_num_batched_tokens": 8192},
        }
    )  # fmt: skip
