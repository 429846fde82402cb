"""What a decode step costs outside the compiled call: plan, arrays, sampling, commit, text, trace; on the real engine.

    python benchmarks/step_overhead.py [--batches 1,8,32] [--steps 200] [--sampling greedy,top_p] [--out FILE.json]
                                       [--set NAME=VALUE]...

The engine's own methods are wrapped by a stopwatch, so the product has no hook in it. Parts exclude each other: a
part's time is less that of the parts inside it. Medians over the steps. `wall` is what the step waited, `cpu` the
calling thread's own time (time.thread_time_ns): the one to read on a machine that others use. It leaves out the threads
that help in the compiled call and in torch's operators. Without the embedded model, random weights of its size.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor import torch_executor
from core_engine.model.loader import LoadedModel, load_model
from core_engine.sampling_params import SamplingParams
from core_engine.variables import parse_setting
from ledger.errors import CannotRunError

PARTS = ("plan", "arrays", "compiled call", "sample", "commit", "text", "trace", "rest")
DEVICE = ("compiled call",)
SAMPLING: dict[str, dict[str, Any]] = {
    "greedy": {},
    "stop": {"stop": ("\n\n\n", "</answer>")},
    "temperature": {"temperature": 0.8},
    "top_p": {"temperature": 0.8, "top_p": 0.95},
    "top_k": {"temperature": 0.8, "top_k": 50},
    "filters": {"temperature": 0.8, "top_k": 200, "top_p": 0.95, "min_p": 0.02},
    "penalties": {"temperature": 0.8, "top_p": 0.95, "repetition_penalty": 1.1, "frequency_penalty": 0.2},
    "logprobs": {"logprobs": 5},
}
SIZES = {"vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
         "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192, "rope_theta": 1e5,
         "tie_word_embeddings": True}  # fmt: skip
ALWAYS = {"max_num_batched_tokens": 2048, "kv_memory_mib": 1024}


class Stopwatch:
    """Exclusive (wall, cpu) ns of nested named calls; `lap` hands over and clears."""

    def __init__(self) -> None:
        self._spent: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self._inside: list[list[int]] = []  # of each open call: what the calls within it took

    def wrap(self, owner: Any, attribute: str, part: str) -> None:
        """Replace owner.attribute by one that counts as `part`."""
        setattr(owner, attribute, self.timed(getattr(owner, attribute), part))

    def timed(self, call: Callable[..., Any], part: str) -> Callable[..., Any]:
        """`call`, counted as `part`."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            self._inside.append([0, 0])
            wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
            try:
                return call(*args, **kwargs)
            finally:
                took = (time.perf_counter_ns() - wall, time.thread_time_ns() - cpu)
                within = self._inside.pop()
                for kind in (0, 1):
                    self._spent[part][kind] += took[kind] - within[kind]
                    if self._inside:
                        self._inside[-1][kind] += took[kind]

        return timed

    def lap(self) -> dict[str, list[int]]:
        """Everything since the last lap."""
        spent = dict(self._spent)
        self._spent.clear()
        return spent


class _Library:
    """A library whose step is timed; the rest of it as it is."""

    def __init__(self, found: Any, watch: Stopwatch) -> None:
        self._found = found
        self.trilemma_step = watch.timed(found.trilemma_step, "compiled call")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)


def main() -> int:
    """Measure each batch and way of sampling, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", default="1,8,32")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--sampling", default="greedy,top_p", help=f"of {', '.join(SAMPLING)}, or all")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args()
    settings = {**ALWAYS, **dict(parse_setting(text) for text in options.set)}
    loaded = _loaded(settings)
    watch = Stopwatch()
    _watch_shared(watch, loaded)
    names = list(SAMPLING) if options.sampling == "all" else options.sampling.split(",")
    results = []
    for name in names:
        for batch in map(int, options.batches.split(",")):
            results.append(_measured(loaded, settings, watch, name, batch, options))
            print(_lines(results[-1]), flush=True)
    if options.out:
        found = {"model": loaded.name, "settings": settings, "steps": options.steps,
                 "prompt_tokens": options.prompt_tokens, "results": results}  # fmt: skip
        options.out.write_text(json.dumps(found, indent=1))
    return 0


def _loaded(settings: dict[str, Any]) -> LoadedModel:
    try:
        return load_model(EngineConfig.from_settings(settings))
    except CannotRunError as error:
        print(f"{error}; random weights of its size instead", file=sys.stderr)
    with tempfile.TemporaryDirectory() as directory:
        _write_random(Path(directory))
        return load_model(EngineConfig.from_settings({**settings, "model": directory}))


def _write_random(directory: Path) -> None:
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)).save_pretrained(directory)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, *(f"Ġw{number}" for number in range(SIZES["vocab_size"] - len(alphabet)))]
    tokenizer = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(directory / "tokenizer.json"))


def _watch_shared(watch: Stopwatch, loaded: LoadedModel) -> None:
    """The parts that all engines of one model share: decoder and sampler."""
    decoder: Any = loaded.decoder
    if hasattr(decoder, "_lib"):
        decoder._lib = _Library(decoder._lib, watch)
        watch.wrap(decoder, "step", "arrays")
    else:
        watch.wrap(decoder, "forward", "compiled call")
        watch.wrap(decoder, "logits", "compiled call")
    for name in ("logit_places", "sample_step"):
        watch.wrap(torch_executor, name, "sample")


def _measured(
    loaded: LoadedModel, settings: dict[str, Any], watch: Stopwatch, name: str, batch: int, options: Any
) -> dict[str, Any]:
    engine = Engine(EngineConfig.from_settings({**settings, "max_num_seqs": batch}), loaded)
    for owner, attribute, part in (
        (engine.scheduler, "plan", "plan"),
        (engine.scheduler, "commit", "commit"),
        (engine, "_commit", "text"),
        (engine.trace, "executed", "trace"),
        (engine.trace, "end", "trace"),
        (engine, "step", "rest"),
    ):
        watch.wrap(owner, attribute, part)
    pick = random.Random(batch)
    for seed in range(batch):
        prompt = [pick.randrange(1000, 40_000) for _ in range(options.prompt_tokens)]
        engine.add(prompt, SamplingParams(max_tokens=2 * options.steps, ignore_eos=True, seed=seed, **SAMPLING[name]))
    while engine.scheduler.waiting or any(request.num_pending > 1 for request in engine.scheduler.running):
        engine.step()
    for _ in range(10):
        engine.step()
    watch.lap()
    laps = []
    for _ in range(options.steps):
        engine.step()
        laps.append(watch.lap())
    return {"sampling": name, "batch": batch, **_summary(laps)}


def _summary(laps: list[dict[str, list[int]]]) -> dict[str, Any]:
    """Medians in ms of each part, of the whole step and of the host's share of it."""

    def median_ms(parts: tuple[str, ...], kind: int) -> float:
        return statistics.median(sum(lap.get(part, (0, 0))[kind] for part in parts) for lap in laps) / 1e6

    host = tuple(part for part in PARTS if part not in DEVICE)
    shares = [sum(lap.get(part, (0, 0))[0] for part in host) / sum(wall for wall, _ in lap.values()) for lap in laps]
    return {
        "parts": {part: {"wall_ms": median_ms((part,), 0), "cpu_ms": median_ms((part,), 1)} for part in PARTS},
        "host_wall_ms": median_ms(host, 0),
        "host_cpu_ms": median_ms(host, 1),
        "step_wall_ms": median_ms(PARTS, 0),
        "host_share_pct": 100 * statistics.median(shares),
    }


def _lines(result: dict[str, Any]) -> str:
    head = f"{result['sampling']}, batch {result['batch']}"
    parts = result["parts"]
    return "\n".join(
        [
            f"{head:24}" + "".join(f"{part:>14}" for part in PARTS) + f"{'host':>9}{'step':>9}{'share':>8}",
            f"{'  wall ms':24}"
            + "".join(f"{parts[part]['wall_ms']:14.3f}" for part in PARTS)
            + f"{result['host_wall_ms']:9.3f}{result['step_wall_ms']:9.2f}{result['host_share_pct']:7.1f}%",
            f"{'  cpu ms':24}"
            + "".join(f"{parts[part]['cpu_ms']:14.3f}" for part in PARTS)
            + f"{result['host_cpu_ms']:9.3f}",
        ]
    )


if __name__ == "__main__":
    raise SystemExit(main())
