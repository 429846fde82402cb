"""Every family against transformers: greedy ids in fp32 under all pairs of settings, chunks, windows, padding, bf16."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from core_engine.config import EngineConfig
from core_engine.engine import Engine
from core_engine.executor.batch import build_batch
from core_engine.executor.torch_executor import TorchExecutor
from core_engine.kernels.options import StepOptions
from core_engine.kernels.reference import write_kv
from core_engine.model.compiled import CompiledDecoder
from core_engine.model.decoder import Decoder
from core_engine.model.loader import LoadedModel
from core_engine.plan import Row
from core_engine.request import SamplingParams
from tests.core_engine.conftest import FAMILIES, load_fp32, make_tiny
from tests.core_engine.oracle import (
    MATRIX,
    Reference,
    engine_greedy,
    engine_settings,
    greedy_reference,
    hidden_in_chunks,
    pairwise,
    ragged_prompts,
    rules_out,
)
from tests.grids import representative

NEW_TOKENS = 10
LENGTHS = (1, 2, 7, 16, 17, 40, 70)
CLEAR = 2e-3  # fp32 logits of the two implementations differ by about 1e-5 here
BLOCK = 8
Family = tuple[Any, LoadedModel, Path]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    directory = tmp_path_factory.mktemp(request.param)
    return make_tiny(request.param, directory), load_fp32(directory), directory


@pytest.fixture(scope="module")
def compiled(family: Family, compiled_kernels: None) -> LoadedModel:
    """The same weights for the compiled step."""
    return load_fp32(family[2], kernels="compiled")


@pytest.fixture(scope="module")
def expected(family: Family) -> Reference:
    return greedy_reference(family[0], ragged_prompts(LENGTHS), NEW_TOKENS, CLEAR)


def case_id(value: Any) -> str | None:
    return "-".join(map(str, value.values())) if isinstance(value, dict) else None


@pytest.mark.parametrize(
    ("family", "case"), representative(FAMILIES, pairwise(), times=3), ids=case_id, indirect=["family"]
)
def test_greedy_ids_equal_the_reference_for_every_pair_of_settings(
    family: Family, expected: Reference, case: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    settings = {**engine_settings(case), "max_num_seqs": 4, "kv_memory_mib": 4}
    loaded = request.getfixturevalue("compiled") if case["kernels"] == "compiled" else family[1]
    assert isinstance(loaded.decoder, CompiledDecoder) == (case["kernels"] == "compiled")
    assert engine_greedy(loaded, expected.prompts, NEW_TOKENS, **settings) == expected.ids


def test_the_matrix_holds_every_pair_of_values() -> None:
    found = {pair for case in pairwise() for pair in ((a, b) for a in case.items() for b in case.items())}
    for first, second in ((a, b) for a in MATRIX for b in MATRIX if a != b):
        for pair in (((first, x), (second, y)) for x in MATRIX[first] for y in MATRIX[second]):
            assert pair in found or rules_out(*pair) or rules_out(*reversed(pair))


@pytest.mark.parametrize("chunk", [1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 70])
def test_chunks_of_any_size_give_the_logits_of_one_pass(family: Family, chunk: int) -> None:
    model, loaded, _ = family
    ids = ragged_prompts(LENGTHS)[-1]
    with torch.inference_mode():
        reference = model(torch.tensor([ids])).logits[0]
        logits = loaded.decoder.logits(hidden_in_chunks(loaded.decoder, ids, chunk, BLOCK))
    torch.testing.assert_close(logits, reference, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("options", [StepOptions(flash=False), StepOptions(fused_ops=False)], ids=str)
@pytest.mark.parametrize("chunk", [1, 7, 70])
def test_naive_attention_and_separate_products_give_the_same_logits(
    family: Family, chunk: int, options: StepOptions
) -> None:
    model, loaded, _ = family
    ids = ragged_prompts(LENGTHS)[-1]
    with torch.inference_mode():
        reference = model(torch.tensor([ids])).logits[0]
        logits = loaded.decoder.logits(hidden_in_chunks(loaded.decoder, ids, chunk, BLOCK, options=options))
    torch.testing.assert_close(logits, reference, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["mistral", "qwen2-window", "qwen3-layer-types"])
def test_a_window_cuts_what_is_behind_it(name: str, tmp_path: Path) -> None:
    """Without its windows a windowed model gives other logits from the window's end on, and only there."""
    make_tiny(name, tmp_path)
    decoder, ids = load_fp32(tmp_path).decoder, ragged_prompts(LENGTHS)[-1]
    cut = min(window for window in decoder.spec.windows if window is not None)
    open_decoder = Decoder(replace(decoder.spec, windows=(None,) * decoder.spec.num_layers), decoder.weights)
    difference = hidden_in_chunks(decoder, ids, 70, BLOCK) - hidden_in_chunks(open_decoder, ids, 70, BLOCK)
    assert difference[:cut].abs().max() < 1e-5
    assert difference[cut:].abs().max(dim=-1).values.min() > 1e-4


def test_weights_are_held_once_and_in_full(family: Family) -> None:
    held = sum(tensor.nelement() * tensor.element_size() for tensor in family[1].weights.tensors())
    assert family[1].weights.num_bytes() == held == 4 * sum(p.numel() for p in family[0].parameters())


@pytest.mark.parametrize("name", ["llama", "qwen2-window", "qwen3"])
def test_bf16_gives_the_fp32_choice_where_it_is_clear(name: str, tmp_path: Path) -> None:
    """Clear: the fp32 margin is beyond four times what bf16 moves the reference's own logits at that position.

    On a given text, so that one near tie does not end the comparison.
    """
    model = make_tiny(name, tmp_path)
    loaded = load_fp32(tmp_path, dtype="bf16")
    ids = ragged_prompts((300,))[0]
    with torch.inference_mode():
        exact = model(torch.tensor([ids])).logits[0]
        rounded = model.to(torch.bfloat16)(torch.tensor([ids])).logits[0].float()
        logits = loaded.decoder.logits(hidden_in_chunks(loaded.decoder, ids, 64, 16))
    noise = (rounded - exact).abs().max(dim=-1).values
    top = exact.topk(2).values
    clear = top[:, 0] - top[:, 1] > 4 * noise
    assert clear.sum() > 30
    assert torch.equal(logits.argmax(-1)[clear], exact.argmax(-1)[clear])
    assert (logits - exact).abs().max(dim=-1).values.mean() < 1.2 * noise.mean()


# -- padding ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["llama", "mistral"])
def padded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    directory = tmp_path_factory.mktemp("padded")
    make_tiny(request.param, directory)
    return load_fp32(directory)


def pool_of(executor: TorchExecutor) -> torch.Tensor:
    """All blocks that a request can own: the cache without the padding block."""
    return executor._cache[:, :, : executor.num_blocks]


def test_a_padded_step_changes_no_block_but_those_its_rows_write(padded: LoadedModel) -> None:
    sizes = {"block_size": 4, "kv_memory_bytes": 2**17}
    plain, filled = (TorchExecutor(padded.decoder, **sizes, pad_to=pad) for pad in (1, 8))
    rows = (
        Row("a", 0, (5, 6, 7), (3,), is_prefill=True),
        Row("b", 5, (9,), (0, plain.num_blocks - 1), is_prefill=False),
    )
    for executor in (plain, filled):
        torch.manual_seed(3)
        pool_of(executor).normal_()
    before = pool_of(filled).clone()
    hidden = []
    for executor, pad in ((plain, 1), (filled, 8)):
        batch = build_batch(
            rows,
            4,
            torch.device("cpu"),
            padding_block=executor.num_blocks,
            windows=padded.decoder.spec.windows,
            pad_to=pad,
        )
        assert len(batch.token_ids) == (4 if pad == 1 else 8)
        with torch.inference_mode():
            hidden.append(
                padded.decoder.forward(batch.token_ids, batch.positions, executor._cache, batch.attention)[:4]
            )
    torch.testing.assert_close(*hidden, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(pool_of(plain), pool_of(filled), atol=1e-6, rtol=1e-5)
    untouched = [block for block in range(filled.num_blocks) if block not in (3, filled.num_blocks - 1)]
    assert torch.equal(pool_of(filled)[:, :, untouched], before[:, :, untouched])
    last = pool_of(filled)[:, :, filled.num_blocks - 1]
    assert not torch.equal(last[:, :, 1], before[:, :, filled.num_blocks - 1, 1])  # position 5 is b's
    assert torch.equal(last[:, :, [0, 2, 3]], before[:, :, filled.num_blocks - 1][:, :, [0, 2, 3]])


def test_padding_changes_no_ids_and_the_padding_block_is_in_the_bytes(padded: LoadedModel) -> None:
    prompts = ragged_prompts((3, 30, 50))
    config = EngineConfig.from_settings({"block_size": 4})
    params = SamplingParams(max_tokens=8, ignore_eos=True)
    answers = []
    for pad_to in (1, 16):
        executor = TorchExecutor(padded.decoder, block_size=4, kv_memory_bytes=2**19, pad_to=pad_to)
        engine = Engine(config, padded, executor=executor)
        answers.append([answer.token_ids for answer in engine.generate(prompts, params)])
        spec = padded.decoder.spec
        block_bytes = 2 * spec.num_layers * 4 * spec.num_kv_heads * spec.head_dim * 4
        assert executor.kv_pool_bytes() == executor.num_blocks * block_bytes
        assert executor.kv_pool_bytes() + executor.padding_bytes() == executor._cache.untyped_storage().nbytes()
        assert executor.activation_peak_bytes() >= executor.padding_bytes() == block_bytes
    assert answers[0] == answers[1]


def test_the_pool_hands_out_every_block_but_the_padding_block(padded: LoadedModel) -> None:
    executor = TorchExecutor(padded.decoder, block_size=4, kv_memory_bytes=2**17)
    engine = Engine(EngineConfig.from_settings({"block_size": 4}), padded, executor=executor)
    assert engine.pool.num_blocks == executor.num_blocks == executor._cache.shape[2] - 1


def test_a_negative_slot_is_refused_instead_of_meaning_the_last_one() -> None:
    with pytest.raises((RuntimeError, IndexError)):
        write_kv(torch.zeros(2, 4, 1, 2), torch.ones(1, 1, 2), torch.tensor([-1]))
