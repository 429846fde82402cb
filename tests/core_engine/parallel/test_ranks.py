"""Ranks as real processes over gloo: one process's ids, the formula's bytes, and errors that come from a rank."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.model.loader import LoadedModel, load_model
from core_engine.parallel.processes import RankLost
from core_engine.request import SamplingParams
from ledger.errors import CannotRunError, InputError
from tests.core_engine.conftest import load_fp32, make_tiny
from tests.core_engine.oracle import ragged_prompts
from tests.core_engine.parallel.test_supervision import ROOT, wait_gone

PARAMS = SamplingParams(max_tokens=4, ignore_eos=True)
PROMPTS = ragged_prompts((1, 7, 17, 40))
SIZES: dict[str, Any] = {"max_num_seqs": 3, "kv_memory_mib": 2, "block_size": 8, "max_num_batched_tokens": 24}

pytestmark = pytest.mark.skipif(os.name != "posix", reason="ranks need a POSIX system")


def ids(engine: Engine) -> list[list[int]]:
    return [answer.token_ids for answer in engine.generate(PROMPTS, PARAMS)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LoadedModel, LoadedModel]]:
    """A tied model whole, and over two ranks that share one thread's worth of threads."""
    directory = tmp_path_factory.mktemp("ranks")
    make_tiny("qwen3", directory)
    split = load_fp32(directory, tensor_parallel=2, threads=1)
    yield load_fp32(directory), split
    split.close()
    assert wait_gone(split.decoder.ranks.pids)  # type: ignore[union-attr]


def split_engine(split: LoadedModel, **settings: Any) -> Engine:
    return Engine(EngineConfig.from_settings({**SIZES, "tensor_parallel": 2, **settings}), split)


def test_two_processes_give_one_processs_ids_and_hand_over_what_the_formula_says(
    models: tuple[LoadedModel, LoadedModel],
) -> None:
    whole, split = models
    engine = split_engine(split)
    assert ids(engine) == ids(Engine(EngineConfig.from_settings(SIZES), whole))
    record = engine.record()
    told = record["parallel"]
    assert told["equals_formula"] and told["backend"] == "gloo" and told["communication_share"] > 0
    assert record["environment"]["ranks"]["count"] == 2 and record["environment"]["kernels"] == "torch"
    accounts = record["memory"]["accounts"]
    for name in ("weights", "kv_pool", "padding_block"):
        assert accounts[name]["predicted_bytes"] == accounts[name]["measured_bytes"], name
    peaks = accounts["activation_peak"]
    assert peaks["measured_bytes"] == pytest.approx(peaks["predicted_bytes"], rel=0.1)  # masks count in a tiny model
    assert all(rank["process_rss_bytes"] > rank["weights_bytes"] for rank in told["ranks"])
    assert engine.snapshot()["parallel"]["steps"] == told["steps"]
    engine.clear_history()
    assert engine.record()["parallel"]["steps"] == 0


def test_a_second_engine_on_the_same_ranks_has_an_empty_cache(models: tuple[LoadedModel, LoadedModel]) -> None:
    first, second = split_engine(models[1]), split_engine(models[1], kv_memory_mib=1, kv_dtype="bf16")
    assert second.executor.num_blocks == first.executor.num_blocks
    assert ids(second) and second.record()["parallel"]["equals_formula"]
    assert second.derived()["ranks"] == 2


def test_a_cache_that_fits_nowhere_is_refused_and_the_ranks_go_on(models: tuple[LoadedModel, LoadedModel]) -> None:
    with pytest.raises(CannotRunError, match="kv_memory_mib"):
        split_engine(models[1], kv_memory_mib=1_048_576)
    assert ids(split_engine(models[1]))


def test_a_killed_rank_fails_the_step_and_gives_the_blocks_back(models: tuple[LoadedModel, LoadedModel]) -> None:
    engine = split_engine(models[1])
    ranks = models[1].decoder.ranks  # type: ignore[union-attr]
    engine.add(PROMPTS[0], PARAMS)
    os.kill(ranks.pids[1], signal.SIGKILL)
    with pytest.raises(RankLost, match="rank 1 of 2 was ended by SIGKILL"):
        engine.step()
    assert wait_gone(ranks.pids)
    assert engine.pool.num_used == 0 and len(engine.scheduler.waiting) == 1  # as if it had not been planned


def test_a_model_that_a_rank_can_not_read_is_refused_in_its_words(tmp_path: Path) -> None:
    make_tiny("qwen2", tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(InputError, match="readable safetensors"):
        load_fp32(tmp_path, pipeline_parallel=2, threads=1)


@pytest.mark.slow
@pytest.mark.parametrize(("tp", "pp"), [(3, 1), (2, 1), (1, 2), (2, 2)])
def test_the_embedded_model_gives_the_same_ids_over_ranks(embedded_dir: Path, tp: int, pp: int) -> None:
    settings = {
        "dtype": "fp32", "kernels": "torch", "kv_memory_mib": 64, "max_num_seqs": 3, "max_num_batched_tokens": 32,
    }  # fmt: skip
    prompts = ["The capital of France is", "def add(a, b):\n    return", "Once upon a time, in a land far away, there"]
    whole = EngineConfig.from_settings(settings)
    params = SamplingParams(max_tokens=6, ignore_eos=True)
    expected = [answer.token_ids for answer in Engine(whole, load_model(whole)).generate(prompts, params)]
    config = EngineConfig.from_settings({**settings, "tensor_parallel": tp, "pipeline_parallel": pp})
    split = load_model(config)
    try:
        engine = Engine(config, split)
        assert [answer.token_ids for answer in engine.generate(prompts, params)] == expected
        told = engine.record()["parallel"]
    finally:
        split.close()
    assert told["equals_formula"]
    heads = {3: [(3, 1)] * 3, 2: [(6, 2), (3, 1)], 1: [(9, 3)]}[tp]
    assert [(rank["query_heads"], rank["kv_heads"]) for rank in told["ranks"]] == heads * pp


@pytest.mark.slow
def test_ranks_in_the_middle_of_steps_end_with_a_killed_driver(tmp_path: Path) -> None:
    make_tiny("qwen2", tmp_path)
    code = f"""
from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.model.loader import load_model
from core_engine.request import SamplingParams
settings = {{"model": {str(tmp_path)!r}, "dtype": "fp32", "kv_memory_mib": 2, "threads": 1,
            "tensor_parallel": 2, "pipeline_parallel": 2}}
config = EngineConfig.from_settings(settings)
loaded = load_model(config)
engine = Engine(config, loaded)
print(*loaded.decoder.ranks.pids, flush=True)
while True:
    engine.generate([[1, 2, 3]], SamplingParams(max_tokens=200, ignore_eos=True))
"""
    driver = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True
    )
    assert driver.stdout is not None
    pids = [int(pid) for pid in driver.stdout.readline().split()]
    time.sleep(2)
    driver.kill()
    driver.wait()
    driver.stdout.close()
    assert len(pids) == 4 and wait_gone(pids)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
@pytest.mark.parametrize(("tp", "pp"), [(4, 1), (2, 2)])
def test_four_processes_give_the_same_ids(tmp_path: Path, family: str, tp: int, pp: int) -> None:
    make_tiny(family, tmp_path)
    expected = ids(Engine(EngineConfig.from_settings(SIZES), load_fp32(tmp_path)))
    shape = {"tensor_parallel": tp, "pipeline_parallel": pp}
    split = load_fp32(tmp_path, threads=1, **shape)
    try:
        assert ids(Engine(EngineConfig.from_settings({**SIZES, **shape}), split)) == expected
    finally:
        split.close()
