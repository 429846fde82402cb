"""The engine on Triton's kernels, interpreted on the CPU: same ids as transformers, captured or not, ahead or not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor.step_graphs import Outputs
from core_engine.executor.torch_executor import TorchExecutor
from core_engine.model.loader import LoadedModel
from core_engine.sampling_params import SamplingParams
from experiments.speculation.constructed import ConstructedProposer
from tests.core_engine.conftest import load_fp32, make_tiny
from tests.core_engine.oracle import Reference, greedy_reference

pytest.importorskip("triton", reason="triton is not installed")

from core_engine.executor.device_runner import DeviceRunner

# Few positions: the largest steps, which every engine runs at its start, read them all.
SIZES = {"head_dim": 16, "num_hidden_layers": 1, "max_position_embeddings": 32}
SEEDS = {"llama": 3, "qwen2-window": 1}  # with which no choice is near and no answer is one token again and again
LENGTHS = (1, 3, 11)
NEW = 3
GREEDY = SamplingParams(max_tokens=NEW, ignore_eos=True)
MARGIN = 1e-3
BASE: dict[str, Any] = {"kv_memory_mib": 1, "max_num_seqs": 3, "max_num_batched_tokens": 12}


def made(family: str, directory: Path) -> Reference:
    """Save a tiny model there; transformers' greedy answers to a few prompts."""
    model = make_tiny(family, directory, **SIZES, **({"seed": SEEDS[family]} if family in SEEDS else {}))
    generator = torch.Generator().manual_seed(2)
    prompts = [torch.randint(3, 256, (length,), generator=generator).tolist() for length in LENGTHS]
    return greedy_reference(model, prompts, NEW, MARGIN)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("one")
    make_tiny("llama", directory, **SIZES)
    return directory


def engine_of(loaded: LoadedModel, **settings: Any) -> Engine:
    return Engine(EngineConfig.from_settings({**BASE, "kernels": "triton", **settings}), loaded)


def ids(engine: Engine, prompts: list[list[int]], params: SamplingParams = GREEDY) -> list[list[int]]:
    return [answer.token_ids for answer in engine.generate(prompts, params)]


def again(step: Callable[[], Outputs]) -> tuple[Outputs, Callable[[], None]]:
    """What stands in for a captured graph: the step is run again and its outputs go where the first ones were."""
    outputs = step()

    def replay() -> None:
        for old, new in zip(outputs, step(), strict=True):
            old.copy_(new)

    return outputs, replay


def captured(engine: Engine) -> list[int]:
    """Replace the steps of an engine by replays; returns a list that grows with each."""
    executor = engine.executor
    assert isinstance(executor, TorchExecutor) and executor._launcher is not None
    replays: list[int] = []

    def counted(step: Callable[[], Outputs]) -> tuple[Outputs, Callable[[], None]]:
        outputs, replay = again(step)

        def once() -> None:
            replays.append(1)
            replay()

        return outputs, once

    with torch.inference_mode():
        executor._launcher.capture(engine.config.max_num_seqs, counted)  # type: ignore[call-arg]
    return replays


EVERY_SETTING: list[dict[str, Any]] = [
    {},
    {"max_num_batched_tokens": 5, "block_size": 4, "overlap": "off"},
    {"fused_ops": "off", "kv_splits": "4", "prefix_cache": "off"},
]
FAMILIES = ("qwen3", "mistral", "llama-biases", "llama", "qwen2-window")
SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("qwen3", EVERY_SETTING[0]),
        ("mistral", EVERY_SETTING[1]),
        pytest.param("llama-biases", EVERY_SETTING[2], marks=SLOW),
    ],
    ids=["qwen3", "mistral, chunks", "llama with biases, unfused, split"],
)
def test_greedy_ids_equal_the_reference(tmp_path: Path, family: str, settings: dict[str, Any]) -> None:
    reference = made(family, tmp_path)
    engine = engine_of(load_fp32(tmp_path, kernels="triton"), **settings)
    assert ids(engine, reference.prompts) == reference.ids
    ahead = [step.get("ahead", False) for step in engine.trace.steps]
    assert any(ahead) == (settings.get("overlap") != "off")


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_ids_equal_the_reference_with_all_settings(tmp_path: Path, family: str) -> None:
    reference, loaded = made(family, tmp_path), load_fp32(tmp_path, kernels="triton")
    for settings in EVERY_SETTING:
        engine = engine_of(loaded, **settings)
        captured(engine)
        assert ids(engine, reference.prompts) == reference.ids


@pytest.mark.slow
def test_naive_attention_is_torchs_and_never_ahead(tmp_path: Path) -> None:
    reference = made("qwen3", tmp_path)
    engine = engine_of(load_fp32(tmp_path, kernels="triton"), attention="naive")
    assert ids(engine, reference.prompts) == reference.ids
    assert not any(step.get("ahead") for step in engine.trace.steps)


def test_replayed_steps_give_the_same_ids_and_touch_no_block_but_their_own(tmp_path: Path) -> None:
    reference = made("qwen3", tmp_path)
    engine = engine_of(load_fp32(tmp_path, kernels="triton"), max_num_seqs=4, block_size=4)
    replays = captured(engine)
    idle = list(range(engine.pool.num_blocks))[-3:]
    executor = engine.executor
    assert isinstance(executor, TorchExecutor)
    pool = executor.cache_tensors()[0]
    pool[:, :, idle] = 7.0
    assert ids(engine, reference.prompts) == reference.ids
    assert len(replays) >= NEW - 1, "3 rows run in the graph of 4"
    assert bool((pool[:, :, idle] == 7.0).all())


@pytest.mark.parametrize(
    ("kv", "captures"),
    [
        ("int8", True),
        pytest.param("int8", False, marks=SLOW),
        pytest.param("int4", False, marks=SLOW),
        pytest.param("int4", True, marks=SLOW),
    ],
)
def test_quantized_kv_gives_the_ids_of_torchs_operators(llama: Path, kv: str, captures: bool) -> None:
    prompts = [[5, 6, 7], list(range(3, 20))]
    settings = {"kv_dtype": kv, "block_size": 16, "max_num_seqs": 2}
    expected = ids(
        Engine(EngineConfig.from_settings({**BASE, **settings, "kernels": "torch"}), load_fp32(llama)), prompts
    )
    engine = engine_of(load_fp32(llama, kernels="triton"), **settings)
    if captures:
        captured(engine)
    assert ids(engine, prompts) == expected


@pytest.mark.parametrize("weights", [pytest.param("w8a16", marks=SLOW), pytest.param("w8a8", marks=SLOW), "w4a16-rtn"])
def test_quantized_weights_give_the_ids_of_torchs_operators(tmp_path: Path, weights: str) -> None:
    make_tiny("llama", tmp_path, **SIZES, hidden_size=64, intermediate_size=128, num_attention_heads=4)
    settings = {"weights": weights, "head_weights": "int8"}
    prompts = [[9, 8, 7, 6]]
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    torchs, ours = (load_fp32(tmp_path, kernels=kernels, **settings) for kernels in ("torch", "triton"))
    engines = [
        Engine(EngineConfig.from_settings({**BASE, **settings, "kernels": kernels}), loaded)
        for kernels, loaded in (("torch", torchs), ("triton", ours))
    ]
    assert ids(engines[1], prompts, params) == ids(engines[0], prompts, params)
    held = [engine.loaded.weights.num_bytes() for engine in engines]
    assert held[0] == held[1], "the bytes of quantized weights do not depend on who multiplies them"


@pytest.mark.parametrize("captures", [pytest.param(False, marks=pytest.mark.slow), True], ids=["eager", "replayed"])
def test_drafts_are_verified_on_the_device(llama: Path, captures: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right and wrong ones, in rows of different lengths, beside a request that has none left, in tiles of two."""
    monkeypatch.setattr(DeviceRunner, "_block_q", lambda self, count: min(count, 2))
    prompts = {"long": [4, 5, 6, 7], "short": [11, 12]}
    loaded = load_fp32(llama, kernels="triton")
    params = {name: SamplingParams(max_tokens=length, ignore_eos=True) for name, length in (("long", 8), ("short", 4))}
    torchs = Engine(EngineConfig.from_settings({**BASE, "kernels": "torch"}), load_fp32(llama))
    plain = {name: torchs.generate([prompt], params[name])[0].token_ids for name, prompt in prompts.items()}
    known = {name: [*prompts[name], *answer] for name, answer in plain.items()}
    settings = {**BASE, "kernels": "triton", "num_draft_tokens": 3, "draft_control": "fixed", "speculation": "ngram"}
    proposer = ConstructedProposer(known, 0.7, 0.0, vocab_size=256)
    engine = Engine(EngineConfig.from_settings(settings), loaded, proposer=proposer)
    replays = captured(engine) if captures else []
    for name, prompt in prompts.items():
        engine.add(prompt, params[name], request_id=name)
    while engine.has_unfinished():
        engine.step()
    assert {name: engine.completions(name)[0].token_ids for name in prompts} == plain
    counters = engine.speculation.counters()
    assert 0 < counters["accepted_tokens"] < counters["drafted_tokens"] and bool(replays) == captures


def test_sampled_tokens_are_those_of_the_definition(llama: Path) -> None:
    prompts = [[4, 5, 6], [7, 8]]
    loaded = load_fp32(llama, kernels="triton")
    reference = load_fp32(llama)
    for params in (
        SamplingParams(max_tokens=4, temperature=0.8, top_k=20, top_p=0.9, min_p=0.01, seed=5, ignore_eos=True),
        SamplingParams(max_tokens=4, temperature=1.0, repetition_penalty=1.3, seed=6, ignore_eos=True),
        SamplingParams(max_tokens=3, temperature=1.0, logprobs=2, seed=7, ignore_eos=True),
    ):
        expected = ids(Engine(EngineConfig.from_settings({**BASE, "kernels": "torch"}), reference), prompts, params)
        assert ids(engine_of(loaded), prompts, params) == expected


@pytest.mark.slow
def test_scores_are_those_of_torchs_operators(llama: Path) -> None:
    tokens = list(range(3, 20))
    ours = engine_of(load_fp32(llama, kernels="triton")).score(tokens, 5)
    theirs = Engine(EngineConfig.from_settings({**BASE, "kernels": "torch"}), load_fp32(llama)).score(tokens, 5)
    assert ours == pytest.approx(theirs, abs=1e-4)


def test_outside_of_cuda_nothing_is_captured_and_graph_on_is_refused(llama: Path) -> None:
    from ledger.errors import CannotRunError

    loaded = load_fp32(llama, kernels="triton")
    executor = engine_of(loaded).executor
    assert isinstance(executor, TorchExecutor) and "CUDA device" in str(executor.captured)
    with pytest.raises(CannotRunError, match="graph=on"):
        engine_of(loaded, graph="on")
