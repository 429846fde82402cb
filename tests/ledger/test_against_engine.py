"""Predicted against what the engine's executor really holds and allocates, on small random models."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from core_engine.executor.activation_meter import ActivationMeter  # noqa: E402
from core_engine.executor.torch_executor import TorchExecutor  # noqa: E402
from core_engine.kernels.choice import compiled_here  # noqa: E402
from core_engine.kernels.options import StepOptions  # noqa: E402
from core_engine.model.compiled import CompiledDecoder  # noqa: E402
from core_engine.model.decoder import Decoder, assemble  # noqa: E402
from core_engine.model.spec import DecoderSpec  # noqa: E402
from core_engine.plan import Row, StepPlan  # noqa: E402
from ledger.activations import activation_peak_bytes  # noqa: E402
from ledger.kv_cache import kv_bytes_per_token_all_layers  # noqa: E402
from ledger.memory import predict_ledger  # noqa: E402
from ledger.model_spec import ModelSpec, load_model_spec  # noqa: E402
from ledger.step_kernels import StepKernels  # noqa: E402
from ledger.weights import parameter_shapes, weight_bytes  # noqa: E402

MIB = 2**20


def config(**changes):
    return {
        "model_type": "llama", "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 3, "vocab_size": 1000,
        "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 2048,
        "tie_word_embeddings": True, **changes,
    }  # fmt: skip


def qwen(model_type, **changes):
    return config(model_type=model_type, head_dim=32, max_window_layers=1, sliding_window=64, **changes)


# One a family and switch that changes what is held. Windows change what is read, not what the paged pool holds.
FAMILIES = {
    "llama": config(),
    "llama-biases": config(attention_bias=True, mlp_bias=True),
    "llama-own-head": config(tie_word_embeddings=False, head_dim=48),
    "mistral": config(model_type="mistral", sliding_window=100, tie_word_embeddings=False),
    "qwen2": qwen("qwen2"),
    "qwen2-window": qwen("qwen2", use_sliding_window=True),
    "qwen3": qwen("qwen3"),
    "qwen3-biases": qwen("qwen3", attention_bias=True, tie_word_embeddings=False),
}

SHAPES = [
    (config(), 4, 512, 4),
    (config(vocab_size=50_000, tie_word_embeddings=False), 1, 16, 16),
    (config(hidden_size=256, intermediate_size=128, num_attention_heads=16), 2, 256, 4),
    (config(), 32, 16, 8),
    (FAMILIES["qwen3-biases"], 4, 512, 4),
    (FAMILIES["mistral"], 4, 256, 4),
]


def decoder_of(settings, dtype):
    """A random decoder of a config: it loads only if the ledger's table lists exactly the tensors the engine takes."""
    shapes = parameter_shapes(ModelSpec.from_config(settings))
    spec = DecoderSpec.from_config(settings)
    return Decoder(spec, assemble(spec, {name: torch.randn(shape).to(dtype) * 0.02 for name, shape in shapes.items()}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_holds_the_ledgers_bytes(family, dtype):
    settings = FAMILIES[family]
    spec, decoder = ModelSpec.from_config(settings), decoder_of(settings, dtype)
    held = sum(tensor.nelement() * tensor.element_size() for tensor in decoder.weights.tensors())
    assert weight_bytes(spec, dtype.itemsize) == decoder.weights.num_bytes() == held
    executor = TorchExecutor(decoder, block_size=16, kv_memory_bytes=MIB)
    per_token = kv_bytes_per_token_all_layers(spec, dtype.itemsize)
    assert executor.kv_pool_bytes() == per_token * executor.num_blocks * 16
    assert executor.padding_bytes() == per_token * 16
    assert [layer.window for layer in spec.layers] == list(decoder.spec.windows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("settings", "pool_mib", "max_tokens", "max_seqs"), SHAPES)
def test_weights_and_pool_to_the_byte_and_peak_within_a_tenth(settings, pool_mib, max_tokens, max_seqs, dtype):
    spec = ModelSpec.from_config(settings)
    decoder = decoder_of(settings, dtype)
    weights = decoder.weights
    executor = TorchExecutor(decoder, block_size=16, kv_memory_bytes=pool_mib * MIB)
    predicted = predict_ledger(
        spec,
        dtype_bytes=dtype.itemsize,
        kv_pool_bytes=pool_mib * MIB,
        max_num_batched_tokens=max_tokens,
        max_num_seqs=max_seqs,
    )
    assert predicted.account("weights").bytes == weights.num_bytes()
    assert predicted.account("kv_pool").bytes == executor.kv_pool_bytes()
    measured = executor.measure_activations(max_seqs, max_tokens)
    assert measured == pytest.approx(predicted.account("activation_peak").bytes, rel=0.1)


OPTIONS = [
    StepOptions(),
    StepOptions(fused_ops=False),
    StepOptions(flash=False),
    StepOptions(fused_ops=False, flash=False),
    StepOptions(kv_splits=4),
]


@pytest.fixture(scope="module", params=["torch", "compiled"])
def kernels(request):
    """(make a decoder of these kernels from torch's, columns of a panel)."""
    if request.param == "torch":
        return lambda decoder: decoder, 0
    found = compiled_here()
    if found.vector_bits is None:
        pytest.skip(found.kernels_reason)
    return lambda decoder: CompiledDecoder(decoder.spec, decoder.weights), 2 * found.vector_bits // 32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("settings", "pool_mib", "max_tokens", "max_seqs"),
    [
        (config(attention_bias=True, mlp_bias=True, intermediate_size=500, vocab_size=1003), 4, 512, 4),
        (config(num_attention_heads=12, num_key_value_heads=3, head_dim=16, tie_word_embeddings=False), 2, 70, 3),
        (config(hidden_size=256, vocab_size=50_000, num_attention_heads=16), 2, 16, 16),
        (config(max_position_embeddings=200), 4, 64, 8),
    ],
)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_way_to_compute_a_step_has_its_own_peak_and_its_weights_to_the_byte(
    settings, pool_mib, max_tokens, max_seqs, dtype, options, kernels
):
    make, panel_columns = kernels
    spec, decoder = ModelSpec.from_config(settings), make(decoder_of(settings, dtype))
    executor = TorchExecutor(decoder, block_size=16, kv_memory_bytes=pool_mib * MIB, options=options)
    predicted = predict_ledger(
        spec,
        dtype_bytes=dtype.itemsize,
        kv_pool_bytes=pool_mib * MIB,
        max_num_batched_tokens=max_tokens,
        max_num_seqs=max_seqs,
        kernels=StepKernels(
            panel_columns, torch.get_num_threads(), options.fused_ops, options.flash, options.kv_splits
        ),
    )
    assert predicted.account("weights").bytes == decoder.weights.num_bytes()
    measured = executor.measure_activations(max_seqs, max_tokens)
    assert measured == pytest.approx(predicted.account("activation_peak").bytes, rel=0.1)


def test_naive_attention_needs_more_memory_and_a_former_executors_workspace_is_not_counted(kernels):
    decoder = kernels[0](decoder_of(config(), torch.float32))
    peaks = [
        TorchExecutor(
            decoder, block_size=16, kv_memory_bytes=4 * MIB, options=StepOptions(flash=flash)
        ).measure_activations(4, 256)
        for flash in (True, False, True)
    ]
    assert peaks[0] == peaks[2] and peaks[1] > 2 * peaks[0]


# Shapes of fault 48's grid: (batched tokens, sequences). The last one's peak is its logits, one row a sequence.
STEPS = [(16, 4), (64, 4), (256, 4), (256, 64), (64, 64)]
EMBEDDED = load_model_spec("embedded")
GRID = {
    "embedded": EMBEDDED,
    "wide-vocabulary": ModelSpec.from_config(config(vocab_size=50_000)),
    "narrow-vocabulary": ModelSpec.from_config(config(vocab_size=500)),
    "wide-heads": ModelSpec.from_config(config(head_dim=96, tie_word_embeddings=False)),
}


@pytest.fixture(scope="module", params=GRID)
def grid_model(request):
    """Name, spec and a random float32 decoder of every shape of the grid, the embedded model's own among them."""
    spec = GRID[request.param]
    return request.param, spec, decoder_of(dict(spec.config), torch.float32)


def metered_steps(spec, decoder):
    """(predicted, measured) peak of every shape of STEPS, with a pool of 64 MiB."""
    for tokens, seqs in STEPS:
        executor = TorchExecutor(decoder, block_size=16, kv_memory_bytes=64 * MIB)
        sizes = {"max_num_batched_tokens": tokens, "max_num_seqs": seqs}
        ledger = predict_ledger(spec, dtype_bytes=4, kv_pool_bytes=64 * MIB, **sizes)
        yield ledger.account("activation_peak").bytes, executor.measure_activations(seqs, tokens)


def test_fault_48_the_activation_peak_is_the_meters_within_a_tenth_over_tokens_and_sequences(grid_model):
    _, spec, decoder = grid_model
    found = list(metered_steps(spec, decoder))
    for step, (predicted, measured) in zip(STEPS, found, strict=True):
        assert measured == pytest.approx(predicted, rel=0.1), step
    assert len({predicted for predicted, _ in found}) > 1, "a constant"


def test_fault_48_the_activation_peak_counts_every_logit_that_is_kept(grid_model):
    name, spec, decoder = grid_model
    executor = TorchExecutor(decoder, block_size=16, kv_memory_bytes=64 * MIB)
    peaks = {}
    for kept in (1, 256):  # a scored prompt keeps one row of logits a token
        targets = (0,) * kept + (-1,) * (256 - kept)
        row = Row("scored", 0, (0,) * 256, tuple(range(16)), is_prefill=True, targets=targets)
        with ActivationMeter() as meter, torch.inference_mode():
            executor.execute(StepPlan(index=0, rows=(row,), reserved=()))
        peaks[kept] = meter.peak_bytes
        assert meter.peak_bytes == pytest.approx(activation_peak_bytes(spec, 256, kept, 4), rel=0.1), kept
    if name in ("embedded", "wide-vocabulary"):
        assert peaks[256] > 256 * spec.vocab_size * 4 > peaks[1]


@pytest.mark.parametrize("tied", [True, False])
def test_fault_49_weight_bytes_are_the_sum_of_the_tensors_held_with_embedding_and_head(tied):
    settings = {**EMBEDDED.config, "num_hidden_layers": 2, "tie_word_embeddings": tied}
    spec, weights = ModelSpec.from_config(settings), decoder_of(settings, torch.float32).weights
    unique = {tensor.data_ptr(): tensor.untyped_storage().nbytes() for tensor in held(weights)}
    assert weight_bytes(spec, 4) == weights.num_bytes() == sum(unique.values())
    table = 49_152 * 576 * 4
    layers = weights.num_bytes() - table * (1 if tied else 2)
    assert (weights.head is weights.embedding) is tied
    assert 0 < layers == 4 * (2 * (3 * 576 * 1536 + 2 * 576 * 576 + 2 * 192 * 576 + 2 * 576) + 576)


def held(weights):
    """Every tensor reachable from the weights, found by looking rather than by their own list."""
    found = [value for value in vars(weights).values() if isinstance(value, torch.Tensor)]
    for layer in weights.layers:
        found += [value for value in vars(layer).values() if isinstance(value, torch.Tensor)]
    return found
