"""Where the time of a compiled step goes, by kind of operator, on the embedded model.

    python benchmarks/operator_times.py [--dtype bf16] [--steps 20] [--set NAME=VALUE]...

Means over the steps, ms. Decode at batch 1, 8 and 32 with 200 tokens of context, prompts of 512 and 2,048 tokens.
"""

from __future__ import annotations

import argparse

import numpy as np

from core_engine.config import EngineConfig
from core_engine.executor.torch_executor import TorchExecutor
from core_engine.kernels.options import StepOptions
from core_engine.model.compiled import CompiledDecoder
from core_engine.model.loader import load_model
from core_engine.plan import GREEDY, Row, StepPlan
from core_engine.variables import parse_setting

CASES = (
    ("batch 1", 1, 200, 1),
    ("batch 8", 8, 200, 1),
    ("batch 32", 32, 200, 1),
    ("512", 1, 0, 512),
    ("2,048", 1, 0, 2048),
)
BLOCK_SIZE, KV_BYTES = 16, 512 * 2**20


def rows_of(sequences: int, start: int, count: int) -> tuple[Row, ...]:
    """Rows over blocks of their own."""
    blocks = -(-(start + count) // BLOCK_SIZE)
    return tuple(
        Row(f"r{i}", start, tuple(range(count)), tuple(range(i * blocks, (i + 1) * blocks)), count > 1, GREEDY)
        for i in range(sequences)
    )


def main() -> None:
    """Print one line a case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    settings = {"dtype": given.dtype, "kernels": "compiled", **dict(map(parse_setting, given.set))}
    config = EngineConfig.from_settings(settings)
    decoder = load_model(config).decoder
    assert isinstance(decoder, CompiledDecoder)
    options = StepOptions.from_config(config)
    executor = TorchExecutor(decoder, block_size=BLOCK_SIZE, kv_memory_bytes=KV_BYTES, options=options)
    names = decoder.operator_names()
    for label, *sizes in CASES:
        plan = StepPlan(index=0, rows=rows_of(*sizes), reserved=())
        executor.execute(plan)
        steps = given.steps if sizes[2] == 1 else 2
        decoder.operator_ns = np.zeros(len(names), dtype=np.int64)
        for _ in range(steps):
            executor.execute(plan)
        ms = decoder.operator_ns / steps / 1e6
        parts = "  ".join(f"{name} {value:.2f}" for name, value in zip(names, ms, strict=True) if value)
        print(f"{label:>8} {ms.sum():9.2f} ms: {parts}")


if __name__ == "__main__":
    main()
