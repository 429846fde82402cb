"""Block sizes, warps and stages of a kernel for a shape on a device: from a table, else by rule.

A table is a JSON file for each device, {"kernel/size,size,size": {"BLOCK_N": 64, ...}}. One may come with the project
(tuned/ beside this file); what `tune` measured on this machine lies in the user's cache directory and goes first. A run
only looks up: nothing is measured unless `tune` is called. Knows no kernel's insides: settings are whatever its launch
takes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from triton.runtime.errors import OutOfResources, PTXASError

from core_engine.model.embedded import cache_root

Config = dict[str, int]
Shape = tuple[int, ...]

Rule = Callable[[Shape, int], Config]
"""(shape, streaming multiprocessors of the device) -> settings."""

SHIPPED = Path(__file__).parent / "tuned"
USUAL_PROCESSORS = 108  # an A100's, where no device answers
WARM_UP, REPEATS = 3, 20
FLUSH_BYTES = 256 << 20  # beyond every L2: a step finds its weights in memory, and so must each repeat
MOST_SPLITS, MOST_PROGRAMS = 16, 4
UNDER_WAY = 40 << 10  # bytes a processor: 4.8e12 B/s of an H200 times 0.8e-6 s over 132 processors is 29e3
FEW_TOKENS = 64  # up to here a product waits for its weights, and is split until it fills the device
LARGEST_BUCKET = 4096


def config(kernel: str, shape: Shape, device_name: str, otherwise: Rule | None = None) -> Config:
    """Settings of `kernel` for `shape`: this user's, the shipped ones, or by rule; a copy.

    The rule is `otherwise`, else the one of RULES. KeyError where a kernel has neither an entry nor a rule.
    """
    return dict(_found(kernel, shape, device_name, otherwise))


@lru_cache(maxsize=4096)
def _found(kernel: str, shape: Shape, device_name: str, otherwise: Rule | None) -> Config:
    known = _table(device_name).get(_key(kernel, shape))
    if known is not None:
        return known
    return (otherwise or RULES[kernel])(shape, processors(device_name))


def bucket(tokens: int) -> int:
    """The number of tokens that a table is asked for: the next power of two, at most LARGEST_BUCKET."""
    return min(1 << max(tokens - 1, 0).bit_length(), LARGEST_BUCKET)


@lru_cache(maxsize=64)
def name_of(device: torch.device) -> str:
    """How tables call a device: its marketing name, "cpu" for the interpreter."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


@lru_cache(maxsize=64)
def processors(device_name: str) -> int:
    """Streaming multiprocessors of the first device of that name; USUAL_PROCESSORS where none is here."""
    for index in range(torch.cuda.device_count()):
        if torch.cuda.get_device_name(index) == device_name:
            return int(torch.cuda.get_device_properties(index).multi_processor_count)
    return USUAL_PROCESSORS


def product_rule(shape: Shape, processors: int) -> Config:
    """Settings of a quantized product of shape (tokens, out, depth, bytes of a row in a tile): BLOCK_N rows of the
    weight times BLOCK_M tokens a program, the depth in SPLITS.

    Few tokens wait for the weights' bytes: 64 rows, and as many splits as put UNDER_WAY bytes of loads under way on
    every processor (memory's bandwidth times its latency), each of eight times row_bytes columns or more. Many tokens
    take each weight once for 64 of them, since with 128 the sums of two levels leave no registers, and are split only
    while processors are idle.
    """
    tokens, out, depth, row_bytes = shape
    if tokens <= FEW_TOKENS:
        stages = 4 if row_bytes >= 64 else 6
        places = max(16, bucket(tokens))
        warps = 8 if places == 64 else 4  # with 4, sums of 64 tokens spill on sm_80
        found = {"BLOCK_N": 64, "BLOCK_M": places, "num_warps": warps, "num_stages": stages}
        wanted = processors * min(-(-UNDER_WAY // (64 * row_bytes * (stages - 1))), MOST_PROGRAMS)
    else:
        found = {"BLOCK_N": 128, "BLOCK_M": 64, "num_warps": 8, "num_stages": 3}
        wanted = processors
    programs = -(-out // found["BLOCK_N"]) * -(-tokens // found["BLOCK_M"])
    splits = min(-(-wanted // programs), depth // row_bytes // 8, MOST_SPLITS)
    return {**found, "SPLITS": max(splits, 1)}


def product_candidates(shape: Shape) -> list[Config]:
    """What `tune` tries for a quantized product: every sensible tile, and every split of few tokens."""
    tokens = shape[0]
    few = tokens <= FEW_TOKENS
    places = max(16, bucket(tokens))
    tiles = [(64, places, 4), (64, places, 8), (128, places, 8), (32, places, 2)]
    tiles = tiles if few else [(64, 64, 4), (128, 64, 4), (128, 64, 8), (128, 128, 8), (64, 128, 4), (256, 64, 8)]
    return [
        {"BLOCK_N": rows, "BLOCK_M": places, "SPLITS": splits, "num_warps": warps, "num_stages": stages}
        for rows, places, warps in tiles
        for stages in ((3, 4, 6) if few else (2, 3, 4))
        for splits in ((1, 2, 4, 8, 16) if few else (1, 2))
    ]


RULES: Mapping[str, Rule] = {"w4a16": product_rule, "w8a16": product_rule, "w8a8": product_rule}


def tune(
    kernel: str, shape: Shape, device_name: str, candidates: Sequence[Config], launch: Callable[[Config], object]
) -> tuple[Config, float]:
    """The fastest candidate and its median seconds, written to the user's table, which every later `config` reads.

    launch runs the kernel once with the settings it is given. A candidate that can't be launched (too much shared
    memory) is passed over; RuntimeError when none can. Needs a CUDA device and the time to compile every candidate.
    """
    timed = [(seconds, settings) for settings in candidates if (seconds := _seconds(launch, settings)) is not None]
    if not timed:
        raise RuntimeError(f"none of {len(candidates)} settings of {kernel} can be launched for {shape}")
    seconds, best = min(timed, key=lambda pair: pair[0])
    remember(kernel, shape, device_name, best)
    return best, seconds


def remember(kernel: str, shape: Shape, device_name: str, settings: Config) -> None:
    """Write settings to the user's table of the device; they count from now on."""
    path = user_table(device_name)
    table = {**_read(path), _key(kernel, shape): settings}
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    unfinished.replace(path)  # whole or not at all, whoever reads meanwhile
    forget()


def forget() -> None:
    """Read all tables anew when they are next asked for."""
    _found.cache_clear()
    _table.cache_clear()


def user_table(device_name: str) -> Path:
    """Where `tune` writes: under $TRILEMMA_CACHE, or trilemma/ in the user's cache directory."""
    return cache_root() / "tuned" / _file_name(device_name)


def _file_name(device_name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", device_name.lower()).strip("-") + ".json"


def _key(kernel: str, shape: Shape) -> str:
    return f"{kernel}/{','.join(map(str, shape))}"


@lru_cache(maxsize=8)
def _table(device_name: str) -> dict[str, Config]:
    return {**_read(SHIPPED / _file_name(device_name)), **_read(user_table(device_name))}


def _read(path: Path) -> dict[str, Config]:
    """Entries of a table; what is missing or can't be read has none, as it only costs speed."""
    try:
        found: Any = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return {key: value for key, value in found.items() if _is_config(value)} if isinstance(found, dict) else {}


def _is_config(value: Any) -> bool:
    return isinstance(value, dict) and all(type(number) is int and number > 0 for number in value.values())


def _seconds(launch: Callable[[Config], object], settings: Config) -> float | None:
    """Median of REPEATS launches between CUDA events, None where the device has not the room for the settings."""
    flushed = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    try:
        for _ in range(WARM_UP):
            launch(settings)
    except (OutOfResources, PTXASError):
        return None
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(REPEATS)]
    for start, end in events:
        flushed.zero_()
        start.record()
        launch(settings)
        end.record()
    torch.cuda.synchronize()
    times_ms = sorted(start.elapsed_time(end) for start, end in events)
    return float(times_ms[REPEATS // 2]) / 1e3
