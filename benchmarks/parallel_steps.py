"""Steps of the embedded model in one process and over ranks: how long they last, and where the time goes.

    python benchmarks/parallel_steps.py [--rounds N] [--dtype fp32|bf16]

Every split answers the same requests by turns (A B C, then C B A), all with torch's operators and the same threads in
all: two ranks have half of them each. A round's step time is the median of its decode steps, of 1 sequence and of 4; a
prefill is one step of 256 tokens. Needs a machine that does nothing else: ranks that wait for one another feel every
interruption of either.
"""

from __future__ import annotations

import argparse
from statistics import median
from typing import Any

from interleave import markdown, ratio

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.model.loader import LoadedModel, load_model
from core_engine.request import SamplingParams

SPLITS = {"1 process": (1, 1), "TP 2": (2, 1), "PP 2": (1, 2), "TP 2 x PP 2": (2, 2)}
PROMPT, NEW_TOKENS = 256, 24
CASES = {"decode of 1": 1, "decode of 4": 4, "prefill of 256": 0}


def config_of(tp: int, pp: int, dtype: str) -> EngineConfig:
    """The same settings but for the split."""
    return EngineConfig.from_settings({
        "dtype": dtype, "kernels": "torch", "kv_memory_mib": 64, "prefix_cache": "off",
        "max_num_batched_tokens": PROMPT, "tensor_parallel": tp, "pipeline_parallel": pp,
    })  # fmt: skip


def measure(engine: Engine, sequences: int) -> tuple[list[float], dict[str, Any]]:
    """Seconds of the executions of a kind of step, and what the record says of ranks meanwhile."""
    engine.clear_history()
    prompts = [[1000 + place for place in range(PROMPT - 1)] + [number] for number in range(max(1, sequences))]
    tokens = NEW_TOKENS if sequences else 1
    engine.generate(prompts, SamplingParams(max_tokens=tokens, ignore_eos=True))
    record = engine.record()
    steps = [step for step in record["steps"] if bool(step["prefill_tokens"]) == (sequences == 0)]
    steps = [step for step in steps if not sequences or step["num_seqs"] == sequences]
    return [(step["execute_end_ns"] - step["execute_start_ns"]) / 1e9 for step in steps], record.get("parallel") or {}


def main() -> None:
    """Print a table a case, and the bytes of a step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--dtype", default="fp32", choices=("fp32", "bf16"))
    options = parser.parse_args()
    models: dict[str, LoadedModel] = {}
    try:
        engines = {}
        for name, (tp, pp) in SPLITS.items():
            config = config_of(tp, pp, options.dtype)
            models[name] = load_model(config)
            engines[name] = Engine(config, models[name])
        for case, sequences in CASES.items():
            print(f"\n{case}, {options.dtype}, {options.rounds} rounds\n")
            print(table(engines, sequences, options.rounds))
    finally:
        for model in models.values():
            model.close()


def table(engines: dict[str, Engine], sequences: int, rounds: int) -> str:
    """Medians of every split over rounds that take turns, after one that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    told: dict[str, list[dict[str, Any]]] = {name: [] for name in engines}
    for turn in range(rounds + 1):
        for name in engines if turn % 2 else reversed(engines):
            found, parallel = measure(engines[name], sequences)
            if turn:
                seconds[name].append(median(found))
                told[name].append(parallel)
    alone = next(iter(seconds.values()))
    rows = []
    for name, found in seconds.items():
        against = ratio(found, alone)
        rows.append([
            name, f"{median(found) * 1e3:.2f}",
            f"{against['median']:.2f} ({against['low']:.2f} to {against['high']:.2f})",
            *(_share(told[name], key) for key in ("communication_share", "bubble_share")),
            f"{told[name][-1].get('handed_bytes_per_step', 0):,.0f}",
        ])  # fmt: skip
    header = ["split", "step, ms", "against one process (p10 to p90)", "in communication", "bubble", "bytes a step"]
    return markdown(header, rows)


def _share(told: list[dict[str, Any]], key: str) -> str:
    found = [one[key] for one in told if one.get(key) is not None]
    return f"{median(found):.1%}" if found else ""


if __name__ == "__main__":
    main()
