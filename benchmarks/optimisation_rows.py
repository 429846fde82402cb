"""The rows of benchmarks/optimisations.py: what is switched off and on, and at which sizes. One generator a row."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from interleave import Arm
from linear_arms import SHAPES, Products
from model_steps import decodes, executor, fresh_workspace, loaded, logits, prefill, step, workspace_bytes

from core_engine.environment import dtype_name, resolve_dtype, resolve_threads
from core_engine.executor.sampler import logit_places, sample_step
from core_engine.kernels.options import StepOptions
from core_engine.plan import RowSampling
from core_engine.sampling import choose_token
from core_engine.sampling_params import SamplingParams
from core_engine.threads import bind_threads
from experiments.threads import SPIN_COUNT

ON = StepOptions()
BATCHES = (1, 8, 32)
PROMPTS = (128, 512, 2048)
SAMPLED = RowSampling(SamplingParams(temperature=0.8, top_k=40, top_p=0.95), seed=1)


@dataclass(frozen=True)
class Point:
    """One size at which a row is measured. memory: bytes of both, where that is what changes."""

    name: str
    off: Arm
    on: Arm
    memory: tuple[int, int] | None = None


Row = Callable[[str], Iterator[Point]]  # takes the dtype


def _steps(sizes: str = "both") -> Iterator[tuple[str, tuple[Any, ...]]]:
    if sizes in ("both", "decode"):
        for batch in BATCHES:
            yield f"decode {batch} x 256", decodes(batch, 256)
        yield "decode 8 x 2,048", decodes(8, 2048)
    if sizes in ("both", "prefill"):
        for tokens in PROMPTS:
            yield f"prefill {tokens:,}", prefill(tokens)


def kernels(dtype: str) -> Iterator[Point]:
    """torch's operators, then compiled code."""
    for name, rows in _steps():
        yield Point(name, step(executor(dtype, "torch"), rows), step(executor(dtype), rows))


def _products(dtype: str, off: Callable[[Products], Arm | None]) -> Iterator[Point]:
    for name, (out, depth) in SHAPES.items():
        for tokens in (*BATCHES, 512):
            products = Products(out, depth, tokens, resolve_dtype(dtype, torch.device("cpu")))
            products.check()
            arm = off(products)
            if arm is not None:
                yield Point(f"{name}, {tokens} tokens", arm, products.compiled)


def prepacked(dtype: str) -> Iterator[Point]:
    """F.linear, then packed panels: a product alone."""
    yield from _products(dtype, lambda products: products.plain)


def prepacked_mkldnn(dtype: str) -> Iterator[Point]:
    """oneDNN's prepacked weights, then packed panels. No points where torch has no such product on this processor."""
    yield from _products(dtype, Products.prepacked)


def _option(dtype: str, off: StepOptions, sizes: str = "both") -> Iterator[Point]:
    for name, rows in _steps(sizes):
        yield Point(name, step(executor(dtype, options=off), rows), step(executor(dtype), rows))


def graph(dtype: str) -> Iterator[Point]:
    """Operator by operator, then the step as one call."""
    yield from _option(dtype, replace(ON, one_call=False))


def fused_ops(dtype: str) -> Iterator[Point]:
    """Every operator by itself, then fused."""
    yield from _option(dtype, replace(ON, fused_ops=False))


def attention(dtype: str) -> Iterator[Point]:
    """naive, then flash; memory is the step's buffers."""
    naive = executor(dtype, options=replace(ON, flash=False))
    for name, rows in _steps():
        memory = workspace_bytes(naive, rows), workspace_bytes(executor(dtype), rows)
        fresh_workspace(naive)
        yield Point(name, step(naive, rows), step(executor(dtype), rows), memory)


def kv_splits(dtype: str) -> Iterator[Point]:
    """The context in one piece, then in as many as fill the threads."""
    unsplit = executor(dtype, options=replace(ON, kv_splits=1))
    for batch in (1, 8):
        for context in (256, 2048, 8192):
            rows = decodes(batch, context)
            yield Point(f"decode {batch} x {context:,}", step(unsplit, rows), step(executor(dtype), rows))


def threads(dtype: str) -> Iterator[Point]:
    """One thread, then all."""
    every = resolve_threads(0)

    def with_threads(number: int, arm: Arm) -> Arm:
        def run() -> None:
            torch.set_num_threads(number)
            arm()
            torch.set_num_threads(every)

        return run

    for name, rows in _steps():
        arm = step(executor(dtype), rows)
        yield Point(name, with_threads(1, arm), with_threads(every, arm))


def pin_threads(dtype: str) -> Iterator[Point]:
    """Threads where the system puts them, then each on its core: 5 steps, the binding with them."""
    decoder = loaded(dtype).decoder
    why = bind_threads("auto", decoder)
    if why:
        print(f"pin_threads: {why}")
        return

    def bound(pin: str, arm: Arm) -> Arm:
        def run() -> None:
            bind_threads(pin, decoder)
            for _ in range(5):
                arm()

        return run

    for name, rows in _steps("decode"):
        arm = step(executor(dtype), rows)
        yield Point(f"{name}, 5 steps", bound("off", arm), bound("auto", arm))
    bind_threads("off", decoder)


def sampled_logits(dtype: str) -> Iterator[Point]:
    """Logits of every token, then of the rows that sample."""
    for name, rows in _steps():
        every, wanted = list(range(sum(row.count for row in rows))), logit_places(rows)[0]
        yield Point(name, logits(executor(dtype), rows, every), logits(executor(dtype), rows, wanted))


def vectorised_sampling(dtype: str) -> Iterator[Point]:
    """Row by row, then all rows together: temperature 0.8, top_k 40, top_p 0.95, and greedy."""
    for name, sampling in (("sampled", SAMPLED), ("greedy", replace(SAMPLED, params=SamplingParams()))):
        for batch in BATCHES:
            rows = decodes(batch, 256, sampling=sampling)
            wanted, places = logit_places(rows)
            scores = logits(executor(dtype), rows, wanted)()
            together = partial(sample_step, rows, scores, places)
            alone = partial(_choose_alone, rows, scores)
            assert tuple(alone()) == together().tokens
            yield Point(f"{name}, {batch} rows", alone, together)


def _choose_alone(rows: Sequence[Any], scores: torch.Tensor) -> list[int]:
    return [choose_token(line, row.sampling, row.end) for row, line in zip(rows, scores, strict=True)]


def buffers(dtype: str) -> Iterator[Point]:
    """New buffers for every step, then the same ones again."""
    runner = executor(dtype)

    def fresh(arm: Arm) -> Arm:
        def run() -> None:
            fresh_workspace(runner)
            arm()

        return run

    for name, rows in _steps():
        arm = step(runner, rows)
        yield Point(name, fresh(arm), arm)


def flat_batch(dtype: str) -> Iterator[Point]:
    """A call for each row, then one for all of them."""
    runner = executor(dtype)
    chunk, others = prefill(128), decodes(8, 256, first_block=8)
    sizes = {"a chunk of 128 and 8 decodes": (*chunk, *others), "8 decodes": others, "32 decodes": decodes(32, 256)}
    sizes["one decode"] = decodes(1, 256)
    sizes["two prompts of 128"] = (*chunk, *prefill(128, first_block=8))
    for name, rows in sizes.items():
        alone = [step(runner, [row]) for row in rows]
        yield Point(name, lambda alone=alone: [arm() for arm in alone], step(runner, rows))


def bf16(_: str) -> Iterator[Point]:
    """Weights and KV in fp32, then in bf16, whatever the table's dtype is."""
    for name, rows in _steps():
        yield Point(name, step(executor("fp32"), rows), step(executor("bf16"), rows))


SPINNER = """
import sys; sys.path.insert(0, "benchmarks")
import torch
from model_steps import decodes, executor, step
torch.set_num_threads(THREADS)
arm = step(executor("DTYPE"), decodes(8, 256))
arm()
for _ in sys.stdin:
    for _ in range(5):
        arm()
    print("done", flush=True)
"""


def spin_count(dtype: str) -> Iterator[Point]:
    """libgomp's own spin, then the worker's short one: 5 decode steps of 8 x 256, alone and beside a busy process."""
    script = SPINNER.replace("THREADS", str(resolve_threads(0))).replace("DTYPE", dtype)
    plain = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    arms = [
        subprocess.Popen([sys.executable, "-c", script], env=environment, **pipes)
        for environment in (plain, {**plain, "GOMP_SPINCOUNT": SPIN_COUNT})
    ]
    try:
        off, on = (_asking(process) for process in arms)
        yield Point("alone", off, on)
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        arms.append(busy)
        yield Point("beside a busy process", off, on)
    finally:
        for process in arms:
            process.kill()
            process.wait()


def _asking(process: Any) -> Arm:
    def run() -> None:
        process.stdin.write("\n")
        if process.stdout.readline() != "done\n":
            raise RuntimeError("the process that was to be timed has ended")

    return run


ROWS: dict[str, Row] = {
    row.__name__: row
    for row in (
        kernels, prepacked, prepacked_mkldnn, graph, fused_ops, attention, kv_splits, threads, pin_threads,
        sampled_logits, vectorised_sampling, buffers, flat_batch, bf16, spin_count,
    )
}  # fmt: skip


def table_dtype(name: str) -> str:
    """The dtype that the engine would choose, or the one asked for."""
    return dtype_name(resolve_dtype(name, torch.device("cpu")))
