"""C24: tensor and pipeline parallelism over real processes here; what faster links would make of their bytes.

Every split answers the same prompts by turns with the same threads in all, all on torch's operators. Tokens and bytes
are exact; the time in communication is this machine's, where ranks share a processor and its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from experiments.asked_to_stop import go_on
from experiments.claims.comparison import FAILS, HOLDS, LIMITED, Verdict
from experiments.claims.faster_links import simulated_links
from ledger.device_profile import named_link
from ledger.links import Link
from ledger.model_spec import load_model_spec
from ledger.parallel import part_traffic, rank_parts

REPEATS = 4
NEW_TOKENS = 24
PROMPTS = (
    "The capital of France is",
    "def add(a, b):\n    return",
    "Once upon a time, in a land far away, there lived",
    "List three reasons to measure before you tune:",
)
SETTINGS = {"dtype": "fp32", "kernels": "torch", "kv_memory_mib": 64, "max_num_seqs": 4}
SPLITS = ((1, 1), (2, 1), (1, 2))
LINKS = ("nvlink4", "pcie5", "ethernet-100")
LINK_MODEL, LINK_RANKS = "llama-3.1-8b", 8
LINK_STEPS = {"decode of 8 sequences": (8, 8), "prefill of 2,048 tokens": (2048, 1)}

Run = Callable[[Mapping[str, Any], Sequence[tuple[int, int]], int], list[dict[str, Any]]]


def run_splits(settings: Mapping[str, Any], splits: Sequence[tuple[int, int]], repeats: int) -> list[dict[str, Any]]:
    """Of each (tp, pp): token ids, seconds of its decode steps, bytes of weights by rank and the record's `parallel`
    (None for one process). The splits take turns, the order turned round each time."""
    from core_engine.config import EngineConfig
    from core_engine.request import SamplingParams
    from experiments.rig import Rig

    configs = [
        EngineConfig.from_settings({**settings, "tensor_parallel": tp, "pipeline_parallel": pp}) for tp, pp in splits
    ]
    params = SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True)
    rig = Rig()
    found: list[dict[str, Any]] = [{"tp": tp, "pp": pp, "ids": [], "step_s": []} for tp, pp in splits]
    try:
        for turn in range(repeats + 1):
            for place in range(len(splits)) if turn % 2 else reversed(range(len(splits))):
                go_on()
                engine = rig.engine(configs[place])
                ids = [answer.token_ids for answer in engine.generate(list(PROMPTS), params)]
                if not turn:
                    continue  # the first run of each warms up
                record = engine.record()
                decodes = [step for step in record["steps"] if not step["prefill_tokens"]]
                one = found[place]
                one["ids"].append(ids)
                one["step_s"] += [(step["execute_end_ns"] - step["execute_start_ns"]) / 1e9 for step in decodes]
                one["parallel"] = record.get("parallel")
                one["threads"] = record["environment"]["threads"]
                one["weights_bytes"] = [rank["weights_bytes"] for rank in (one["parallel"] or {}).get("ranks", ())] or [
                    record["memory"]["weights_bytes"]
                ]
    finally:
        rig.close()
    return found


def check(options: Mapping[str, Any], run: Run = run_splits) -> dict[str, Any]:
    """One process, two tensor-parallel ranks and two stages here; then the bytes of a larger model over links."""
    repeats = options.get("repeats")
    settings = {**SETTINGS, **(options.get("settings") or {})}
    found = run(settings, SPLITS, int(repeats) if repeats and repeats != "auto" else REPEATS)
    rows = [_row(one, found[0]) for one in found]
    verdict, reason = judge(rows)
    return {"verdict": verdict, "reason": reason, "evidence": [*rows, *link_rows(), *simulated_links()]}


def judge(rows: Sequence[Mapping[str, Any]]) -> Verdict:
    """Fails where a token differs or a byte is not the formula's; a machine whose ranks share its cores can show no
    more than the price, so it holds with that limit unless the split steps are the shorter ones."""
    split = rows[1:]
    for row in split:
        if not row["same_ids"]:
            return FAILS, f"{row['part']} gave other tokens than one process"
        if not row["equals_formula"]:
            return FAILS, f"{row['part']} handed over other bytes than the formula says"
    told = "; ".join(
        f"{row['part']}: {row['handed_bytes_per_step']:,.0f} B a step, {row['communication_share']:.0%} of its time in"
        f" communication, {row['bubble_share']:.0%} waiting, largest rank {row['largest_rank_weights_bytes']:,} B of"
        f" weights, decode step {row['decode_step_s'] * 1e3:.1f} ms against {rows[0]['decode_step_s'] * 1e3:.1f}"
        for row in split
    )
    text = f"identical tokens, bytes as the formula says. {told}"
    tensor = next(row for row in split if row["tensor_parallel"] > 1)
    if tensor["decode_step_s"] < rows[0]["decode_step_s"]:
        return HOLDS, text
    return LIMITED, f"{text}. Here the ranks share the cores that one process has, so that a split adds its price alone"


def _row(one: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    told = one["parallel"] or {}
    name = (
        "one process" if one["tp"] == one["pp"] == 1 else f"tensor_parallel={one['tp']}, pipeline_parallel={one['pp']}"
    )
    return {
        "part": name,
        "tensor_parallel": one["tp"],
        "pipeline_parallel": one["pp"],
        "same_ids": all(ids == whole["ids"][0] for ids in one["ids"]),
        "equals_formula": told.get("equals_formula", True),
        "handed_bytes_per_step": told.get("handed_bytes_per_step", 0.0),
        "formula": told.get("formula"),
        "ring_factor": told.get("ring_factor"),
        "communication_share": told.get("communication_share", 0.0),
        "bubble_share": told.get("bubble_share", 0.0),
        "largest_rank_weights_bytes": max(one["weights_bytes"]),
        "decode_step_s": median(one["step_s"]),
        "threads": one["threads"],
        "repeats": len(one["ids"]),
        "provenance": "measured",
    }


def link_rows() -> list[dict[str, Any]]:
    """The all-reduces of a step of a larger model over links of real hardware, by the alpha-beta model alone: what they
    add to the step before anything overlaps with them."""
    return [_link_row(named_link(name), step, *sizes) for step, sizes in LINK_STEPS.items() for name in LINKS]


def _link_row(link: Link, step: str, tokens: int, rows: int) -> dict[str, Any]:
    spec = load_model_spec(LINK_MODEL)
    traffic = part_traffic(spec, rank_parts(spec, LINK_RANKS, 1)[0], tokens, rows, 2)
    one = traffic.all_reduce_bytes / traffic.all_reduces
    return {
        "part": f"{LINK_MODEL} over {LINK_RANKS} ranks, {step}, {link.label}",
        "all_reduces": traffic.all_reduces,
        "handed_bytes_per_rank": traffic.all_reduce_bytes,
        "all_reduce_s": traffic.all_reduces * link.all_reduce_s(one, LINK_RANKS),
        "latency_us": link.latency_s * 1e6,
        "bytes_per_s": link.bytes_per_s,
        "provenance": "computed",
    }
