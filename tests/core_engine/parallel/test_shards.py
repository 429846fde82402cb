"""Shards give one process's token ids: every family, every split, under batching, chunks, preemption, prefixes, drafts,
quantized KV. The ranks are threads here (see threads.py)."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor.make import make_executor
from core_engine.model.loader import LoadedModel
from core_engine.parallel import shards
from core_engine.parallel.executor import ParallelExecutor
from core_engine.parallel.messages import Load, Loaded
from core_engine.request import SamplingParams
from experiments.metrics import compute_metrics
from ledger.errors import InputError
from ledger.model_spec import load_model_spec
from ledger.weight_formats import weight_bytes_of
from tests.core_engine.conftest import FAMILIES, load_fp32, make_tiny
from tests.core_engine.oracle import ragged_prompts
from tests.core_engine.parallel.threads import ThreadRanks, load_threads

LENGTHS = (1, 2, 7, 16, 17, 40)
NEW_TOKENS = 5
SPLITS = ((2, 1), (3, 1), (4, 1), (1, 2), (1, 3), (2, 2))
EVERY_SPLIT = ("smollm2", "qwen2", "qwen3")  # of the other families one that has everything
SIZES = {"max_num_seqs": 4, "kv_memory_mib": 2, "block_size": 8}


def answers(loaded: LoadedModel, **settings: Any) -> list[list[int]]:
    """Greedy ids of several ragged requests."""
    engine = Engine(EngineConfig.from_settings({**SIZES, **settings}), loaded)
    found = engine.generate(ragged_prompts(LENGTHS), SamplingParams(max_tokens=NEW_TOKENS, ignore_eos=True))
    return [answer.token_ids for answer in found]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, LoadedModel]:
    directory = tmp_path_factory.mktemp(request.param)
    make_tiny(request.param, directory)
    return request.param, directory, load_fp32(directory)


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LoadedModel]:
    """9 query and 3 KV heads, a tied embedding."""
    directory = tmp_path_factory.mktemp("smollm2")
    make_tiny("smollm2", directory)
    return directory, load_fp32(directory)


def test_every_family_gives_the_same_ids_on_any_split(family: tuple[str, Path, LoadedModel]) -> None:
    name, path, whole = family
    expected = answers(whole)
    for tp, pp in SPLITS if name in EVERY_SPLIT else [(2, 2)]:
        split = load_threads(path, whole, tp, pp)
        assert answers(split, tensor_parallel=tp, pipeline_parallel=pp) == expected, (tp, pp)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_num_batched_tokens": 13},
        {"chunked_prefill": "off"},
        {"kv_memory_mib": 1, "block_size": 1, "max_num_seqs": 6},
        {"batching": "static"},
        {"kv_dtype": "int8"},
        {"kv_dtype": "int4", "max_num_batched_tokens": 24},
        {"speculation": "ngram", "draft_control": "fixed"},
        {"speculation": "ngram", "draft_control": "fixed", "kv_dtype": "int8"},
        {"fused_ops": "off", "attention": "naive"},
        {"micro_batches": 3},
    ],
    ids=lambda settings: "-".join(f"{value}" for value in settings.values()),
)
def test_what_a_step_holds_does_not_matter(smollm2: tuple[Path, LoadedModel], settings: dict[str, Any]) -> None:
    path, whole = smollm2
    alone = {name: value for name, value in settings.items() if name != "micro_batches"}
    expected = answers(whole, **alone)
    split = load_threads(path, whole, 2, 2)
    assert answers(split, tensor_parallel=2, pipeline_parallel=2, **settings) == expected


def test_preemption_and_a_shared_prefix_change_nothing(smollm2: tuple[Path, LoadedModel]) -> None:
    path, whole = smollm2
    split = load_threads(path, whole, 2, 2)
    prompts = [list(range(1, 41)), [*range(1, 41), 7, 8], [9, 9, 9]]
    params = SamplingParams(max_tokens=30, ignore_eos=True)

    def run(loaded: LoadedModel, **settings: Any) -> tuple[list[list[int]], Engine]:
        config = EngineConfig.from_settings({**SIZES, "kv_memory_mib": 1, "kv_watermark": 0, **settings})
        executor = make_executor(config, loaded)
        executor.num_blocks = 11  # too few for all three: somebody gives way
        engine = Engine(config, loaded, executor=executor)
        answers = [*engine.generate(prompts, params), *engine.generate(prompts[1:2], params)]
        return [answer.token_ids for answer in [*answers, *engine.generate(prompts[1:2], params)]], engine

    expected, _ = run(whole)
    found, engine = run(split, tensor_parallel=2, pipeline_parallel=2)
    assert found == expected
    counters = engine.record()["counters"]
    assert counters["preemptions"] > 0 and counters["prefix_hit_rate"] > 0


def test_seeded_sampling_is_the_same(smollm2: tuple[Path, LoadedModel]) -> None:
    path, whole = smollm2
    params = SamplingParams(max_tokens=12, temperature=0.9, top_p=0.9, seed=5, n=2, ignore_eos=True, logprobs=2)
    prompts = ragged_prompts((3, 9))
    config = EngineConfig.from_settings({**SIZES, "tensor_parallel": 3})
    split = Engine(config, load_threads(path, whole, 3, 1))
    one = Engine(EngineConfig.from_settings(SIZES), whole)
    expected, found = one.generate(prompts, params), split.generate(prompts, params)
    assert [answer.token_ids for answer in found] == [answer.token_ids for answer in expected]
    ids = prompts[1]
    assert split.score(ids, 1) == pytest.approx(one.score(ids, 1), abs=1e-4)


@pytest.mark.parametrize(("tp", "pp"), SPLITS)
def test_what_ranks_hold_and_hand_over_is_the_ledgers(smollm2: tuple[Path, LoadedModel], tp: int, pp: int) -> None:
    path, whole = smollm2
    split = load_threads(path, whole, tp, pp)
    engine = Engine(EngineConfig.from_settings({**SIZES, "tensor_parallel": tp, "pipeline_parallel": pp}), split)
    engine.generate(ragged_prompts(LENGTHS), SamplingParams(max_tokens=5, ignore_eos=True))
    record = engine.record()
    told, ranks = record["parallel"], record["parallel"]["ranks"]
    assert told["equals_formula"] and told["handed"] == told["handed_by_formula"]
    assert told["steps"] == len(record["steps"]) > 3 and told["handed"]["total_bytes"] > 0
    assert sum(step["parallel"]["handed_bytes"] for step in record["steps"]) == told["handed"]["total_bytes"]
    for rank in ranks:
        assert rank["weights_bytes"] == rank["weights_predicted_bytes"]
        assert rank["kv_pool_bytes"] == rank["kv_pool_predicted_bytes"]
    # The largest rank is what the ledger's command tells of a deployment, in 16 bits there.
    assert 2 * weight_bytes_of(whole.spec, "none", tp, pp) == max(rank["weights_bytes"] for rank in ranks)
    reduces = [step["parallel"] for step in record["steps"]]
    assert all(min(step["communication_ns"], step["bubble_ns"]) >= 0 for step in reduces)
    assert compute_metrics(record)["parallel"] == told


def test_rows_reach_every_rank_in_the_plans_order(smollm2: tuple[Path, LoadedModel]) -> None:
    path, whole = smollm2
    split = load_threads(path, whole, 2, 1)
    engine = Engine(EngineConfig.from_settings({**SIZES, "tensor_parallel": 2}), split)
    ranks = split.decoder.ranks  # type: ignore[union-attr]
    assert isinstance(ranks, ThreadRanks)
    engine.generate(ragged_prompts(LENGTHS), SamplingParams(max_tokens=4, ignore_eos=True))
    for step, told in zip(ranks.steps, engine.record()["steps"], strict=True):
        assert [(row.start, row.count) for row in step.rows] == [(start, count) for _, start, count, *_ in told["rows"]]
        assert all(row.sampling is None and not row.request_id for row in step.rows)  # nothing to sample with


def test_tp_2_on_nine_heads_is_6_and_3_and_says_so(smollm2: tuple[Path, LoadedModel]) -> None:
    path, whole = smollm2
    engine = Engine(EngineConfig.from_settings({**SIZES, "tensor_parallel": 2}), load_threads(path, whole, 2, 1))
    told = engine.record()["parallel"]
    assert [(rank["query_heads"], rank["kv_heads"]) for rank in told["ranks"]] == [(6, 2), (3, 1)]
    assert told["imbalance"]["query_heads"] == pytest.approx(4 / 3)
    assert told["steps"] == 0 and told["communication_share"] is None
    assert isinstance(engine.executor, ParallelExecutor)


def test_a_shard_holds_memory_of_its_own_and_no_more(smollm2: tuple[Path, LoadedModel]) -> None:
    path, whole = smollm2
    ranks = load_threads(path, whole, 2, 2).decoder.ranks  # type: ignore[union-attr]
    assert isinstance(ranks, ThreadRanks)
    for decoder in ranks.decoders:
        for tensor in decoder.weights.tensors():
            assert tensor.untyped_storage().nbytes() == tensor.nbytes
    first, last = ranks.decoders[0].weights, ranks.decoders[-1].weights
    assert first.embedding.shape[0] > 0 and first.head.shape[0] == 0  # type: ignore[union-attr]
    assert last.embedding.shape[0] == 0 and last.head.shape[0] > 0  # type: ignore[union-attr]
    table = torch.cat([decoder.weights.embedding for decoder in ranks.decoders[:2]])  # type: ignore[misc]
    assert torch.equal(table, torch.cat([decoder.weights.head for decoder in ranks.decoders[2:]]))  # type: ignore[misc]


def test_a_model_that_is_too_small_is_refused_with_all_reasons(smollm2: tuple[Path, LoadedModel]) -> None:
    path, whole = smollm2
    with pytest.raises(InputError, match=r"tensor_parallel of at most 9.*pipeline_parallel of at most 3"):
        load_threads(path, whole, 10, 4)
    with pytest.raises(InputError, match="pipeline_parallel: '4' is not accepted"):
        load_threads(path, whole, 1, 4)


def test_combinations_that_ranks_lack_are_refused_together() -> None:
    with pytest.raises(InputError) as caught:
        EngineConfig.from_settings(
            {"tensor_parallel": 2, "kernels": "compiled", "graph": "on", "weights": "w8a8", "speculation": "eagle"}
        )
    text = str(caught.value)
    assert all(name in text for name in ("kernels", "graph", "weights", "speculation")) and "\n" not in text
    assert EngineConfig.from_settings({"tensor_parallel": 2, "pipeline_parallel": 2}).ranks == 4


class FakeRanks:
    """Ranks that say at once that they have met."""

    store = Path()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def ask(self, message: Load) -> list[Loaded]:
        FakeRanks.store = Path(message.store)
        assert self.store.parent.is_dir()
        return [Loaded(1, None, 1, ())] * 2


@pytest.mark.parametrize(("backend", "stays"), [("gloo", False), ("nccl", True)])
def test_where_ranks_meet_is_there_as_long_as_their_backend_asks_for_it(
    backend: str, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "RankProcesses", FakeRanks)
    monkeypatch.setattr(shards, "_backend", lambda *_: backend)
    config, spec = EngineConfig.from_settings({"tensor_parallel": 2}), load_model_spec("llama-3.1-8b")
    model = shards.start_shards(config, None, spec, torch.device("cpu"), torch.float32, print)  # type: ignore[arg-type]
    assert FakeRanks.store.parent.is_dir() is stays
    del model
    gc.collect()
    assert not FakeRanks.store.parent.exists()
