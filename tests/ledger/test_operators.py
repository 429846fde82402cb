import json
import re
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.attention_ops import attended, attended_in_all
from ledger.errors import InputError
from ledger.model_spec import ModelSpec, load_model_spec
from ledger.operators import Operator, experts_touched, operators
from ledger.tensors import TABLES
from ledger.weights import active_parameter_count, parameter_shapes

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14_336,
    "vocab_size": 128_256,
    "max_position_embeddings": 131_072,
    "tie_word_embeddings": False,
}
LLAMA_8B = ModelSpec.from_config(LLAMA, "llama-3.1-8b")
LINEAR_8B = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 4096 * 14_336) + 128_256 * 4096


def config(shared_dir: Path, name: str) -> ModelSpec:
    return load_model_spec(shared_dir / "data" / "configs" / f"{name}.json")


def every_config(shared_dir: Path) -> list[ModelSpec]:
    paths = sorted((shared_dir / "data" / "configs").glob("*.json"))
    return [load_model_spec(path) for path in paths if path.stem != "REFERENCE"]


def total(found: tuple[Operator, ...], field: str, *, part: str | None = None, linear: bool | None = None) -> float:
    return sum(
        getattr(item, field)
        for item in found
        if (part is None or item.part == part) and (linear is None or item.linear == linear)
    )


def test_decode_of_llama_8b_by_hand() -> None:
    found = operators(LLAMA_8B, "decode", 1, 8192)
    assert total(found, "flops", linear=True) == 2 * LINEAR_8B
    assert total(found, "weight_bytes", linear=True) == 2 * LINEAR_8B
    assert total(found, "flops", part="attention", linear=False) == 32 * 4 * 32 * 128 * 8192
    # 131,072 B a token: read for the 8,192 tokens, written for the new one.
    assert total(found, "kv_bytes") == 131_072 * (8192 + 1)


def test_prefill_of_llama_8b_by_hand() -> None:
    found = operators(LLAMA_8B, "prefill", 2, 1024)
    head = 128_256 * 4096
    assert total(found, "flops", linear=True) == 2 * ((LINEAR_8B - head) * 2048 + head * 2)
    assert total(found, "flops", part="attention", linear=False) == 2 * 32 * 4 * 32 * 128 * (1024 * 1025 // 2)
    assert total(found, "weight_bytes", linear=True) == 2 * LINEAR_8B


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_a_decode_step_is_two_operations_a_parameter_and_token(batch: int) -> None:
    found = operators(LLAMA_8B, "decode", batch, 100)
    assert total(found, "flops", linear=True) == 2 * LINEAR_8B * batch
    assert total(found, "weight_bytes", linear=True) == 2 * LINEAR_8B  # read once, whatever the batch


def read_once(spec: ModelSpec) -> float:
    """Parameters that a decode step of one token reads, with all rows of the tables of which it reads one."""
    found, shapes = operators(spec, "decode", 1, 16), parameter_shapes(spec)
    gathers = [item for item in found if "row read" in item.how]
    read = total(found, "weight_bytes") - sum(item.weight_bytes for item in gathers)
    tables = {
        name: prod(shape) for name, shape in shapes.items() if any(f"{item.name}.weight" in name for item in gathers)
    }
    if spec.tie_embeddings:  # read in full as the head
        del tables[max(tables, key=lambda name: shapes[name][0] * (not re.search("position|wpe|per_layer", name)))]
    return read / 2 + sum(tables.values())


def test_every_active_parameter_is_read_once_by_a_decode_step(shared_dir: Path) -> None:
    for spec in every_config(shared_dir):
        assert read_once(spec) == pytest.approx(active_parameter_count(spec), rel=1e-9), spec.name


def test_every_family_reads_its_active_parameters_once() -> None:
    families = pytest.importorskip("tests.ledger.test_against_transformers", reason="transformers is not installed")
    compared = 0
    for name in sorted(
        set(TABLES) - {"dbrx", "jetmoe"}
    ):  # their experts are not one tensor a layer, first axis experts
        fields = families.HYBRID_CONFIGS.get(name) or families.tiny(name, **families.LATENT, qk_head_dim=24)
        spec = ModelSpec.from_config(fields)
        assert read_once(spec) == pytest.approx(active_parameter_count(spec), rel=1e-9), name
        for phase in ("decode", "prefill"):
            whole, rank = (total(operators(spec, phase, 2, 40, tp=tp), "flops") for tp in (1, 2))
            assert 0 < rank < whole, name
        compared += 1
    assert compared >= 40


def test_operations_agree_with_torch_on_a_tiny_model() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

    sizes = {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 8,
        "num_key_value_heads": 2, "vocab_size": 200, "max_position_embeddings": 256,
    }  # fmt: skip
    model = LlamaForCausalLM(LlamaConfig(**sizes, attn_implementation="eager")).eval()
    spec = ModelSpec.from_config({"model_type": "llama", "tie_word_embeddings": False, **sizes})
    length, batch = 40, 2
    ids = torch.randint(0, 200, (batch, length))
    cache = DynamicCache()

    def count(tokens: Any) -> int:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model(tokens, past_key_values=cache, logits_to_keep=1)
        return int(counter.get_total_flops())

    prefill = operators(spec, "prefill", batch, length)
    attention = total(prefill, "flops", part="attention", linear=False)
    # torch counts the whole square of a causal prefill, the half above the diagonal included.
    square = attention * 2 * length / (length + 1)
    assert count(ids) == total(prefill, "flops") - attention + square
    assert count(ids[:, -1:]) == total(operators(spec, "decode", batch, length + 1), "flops")


def test_operations_of_experts_agree_with_torch_on_a_tiny_model() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    sizes = {
        "hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 200, "num_experts": 8,
        "num_experts_per_tok": 3, "max_position_embeddings": 256,
    }  # fmt: skip
    settings = Qwen3MoeConfig(**sizes, attn_implementation="eager", experts_implementation="eager")
    model = Qwen3MoeForCausalLM(settings).eval()
    spec = ModelSpec.from_config({"model_type": "qwen3_moe", "tie_word_embeddings": False, **sizes})
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(torch.randint(0, 200, (1, 1)), logits_to_keep=1)
    assert counter.get_total_flops() == total(operators(spec, "decode", 1, 1), "flops")


@given(
    st.integers(1, 300),
    st.none() | st.integers(1, 50),
    st.booleans(),
    st.integers(1, 9),
    st.none() | st.integers(1, 20),
)
def test_a_causal_prefill_is_the_sum_over_its_positions(
    length: int, window: int | None, chunk: bool, stride: int, top: int | None
) -> None:
    if window is not None:
        stride, top = 1, None  # no layer has both a window and an indexer over the same rows
    options = {"window": window, "chunk": chunk and window is not None, "stride": stride, "top": top}
    one_by_one = sum(attended(position, **options) for position in range(1, length + 1))  # type: ignore[arg-type]
    assert attended_in_all(length, **options) == one_by_one  # type: ignore[arg-type]


def test_a_window_bounds_what_a_token_reads() -> None:
    windowed = ModelSpec.from_config({**LLAMA, "model_type": "mistral", "sliding_window": 1000})
    near, far = (operators(windowed, "decode", 1, length) for length in (1000, 50_000))
    assert total(near, "kv_bytes") == total(far, "kv_bytes")
    assert total(near, "flops") == total(far, "flops")


def test_one_token_touches_the_chosen_experts_and_many_touch_all() -> None:
    assert experts_touched(256, 8, 1) == pytest.approx(8)
    assert experts_touched(256, 8, 64) == pytest.approx(256 * (1 - (248 / 256) ** 64))
    assert experts_touched(256, 8, 10_000) == pytest.approx(256)
    assert experts_touched(8, 8, 1) == 8


def test_experts_are_read_once_and_computed_for_each_token(shared_dir: Path) -> None:
    spec = config(shared_dir, "Mixtral-8x7B-v0.1")
    one, many = (operators(spec, "decode", batch, 16) for batch in (1, 1000))
    assert total(many, "flops", part="experts") == 1000 * total(one, "flops", part="experts")
    assert total(one, "weight_bytes", part="experts") == pytest.approx(2 / 8 * 32 * 8 * 3 * 4096 * 14_336 * 2)
    assert total(many, "weight_bytes", part="experts") == pytest.approx(32 * 8 * 3 * 4096 * 14_336 * 2)


def test_latent_attention_is_absorbed_in_decode_and_expanded_in_prefill(shared_dir: Path) -> None:
    spec = config(shared_dir, "DeepSeek-V3")
    decode, prefill = (operators(spec, phase, 1, 1000) for phase in ("decode", "prefill"))
    assert total(decode, "flops", part="attention", linear=False) == 61 * 2 * 128 * (576 + 512) * 1000
    assert total(decode, "kv_bytes") == 70_272 * 1001
    assert total(prefill, "flops", part="attention", linear=False) == 61 * 2 * 128 * (192 + 128) * 500_500
    assert total(prefill, "kv_bytes") == 70_272 * 1000


def test_an_indexer_reads_every_key_and_only_the_chosen_latents(shared_dir: Path) -> None:
    plain = json.loads((shared_dir / "data" / "configs" / "DeepSeek-V3.json").read_text())
    indexed = {**plain, "model_type": "deepseek_v32", "index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128}
    found = operators(ModelSpec.from_config(indexed), "decode", 1, 100_000)
    mixing = [item for item in found if item.part == "attention" and not item.linear]
    a_layer = 2 * 128 * (576 + 512) * 2048 + 2 * 64 * 128 * 100_000
    assert sum(item.flops for item in mixing) == 61 * a_layer
    written = 2 * (576 + 128)
    assert sum(item.kv_bytes for item in mixing) == 61 * (2 * 576 * 2048 + 2 * 128 * 100_000 + written)


def test_a_recurrent_state_costs_the_same_at_any_length(shared_dir: Path) -> None:
    for name in ("Jamba-v0.1", "Qwen3.5-27B", "Nemotron-3-Nano-30B-A3B"):
        spec = config(shared_dir, name)
        short, long = (operators(spec, "decode", 3, length) for length in (100, 10_000))
        assert total(short, "kv_bytes", part="state") == total(long, "kv_bytes", part="state") > 0
        assert total(short, "flops", part="state") == total(long, "flops", part="state")


@pytest.mark.parametrize(("name", "operations"), [("Jamba-v0.1", 5), ("Qwen3.5-27B", 7)])
def test_a_scan_is_a_few_operations_an_element_of_state(name: str, operations: int, shared_dir: Path) -> None:
    spec = config(shared_dir, name)
    elements = sum(layer.state_elements for layer in spec.layers)
    for phase, tokens in (("decode", 3), ("prefill", 3 * 50)):
        scan = next(item for item in operators(spec, phase, 3, 50) if item.name == "state scan")
        assert scan.flops == operations * elements * tokens


def test_a_layer_that_shares_a_cache_reads_it_and_writes_nothing(shared_dir: Path) -> None:
    spec = config(shared_dir, "gemma-4-E4B")
    found = operators(spec, "decode", 1, 20_000)
    own = [layer for layer in spec.layers if layer.keeps_kv]
    shared = [layer for layer in spec.layers if layer.kind == "shared"]
    attention = [item for item in found if item.part == "attention" and not item.linear]
    assert sum(item.count for item in attention) == len(own) + len(shared)
    # A wide shared layer reads everything, a narrow one the window of the layer whose cache it reads.
    wide = sum(layer.k_head_dim == 512 for layer in spec.layers)
    expected = 4 * 8 * (wide * 512 * 20_000 + (len(spec.layers) - wide) * 256 * 512)
    assert sum(item.flops for item in attention) == expected


@pytest.mark.parametrize("tp", [2, 4, 8, 16])
def test_the_ranks_together_do_at_least_what_one_does(tp: int, shared_dir: Path) -> None:
    for name in ("Llama-3.1-8B", "DeepSeek-V3", "Jamba-v0.1", "falcon-7b"):
        spec = config(shared_dir, name)
        for phase in ("decode", "prefill"):
            whole, rank = (operators(spec, phase, 4, 64, tp=ranks) for ranks in (1, tp))
            for field in ("flops", "weight_bytes", "kv_bytes"):
                assert total(rank, field) <= total(whole, field) <= tp * total(rank, field)


def test_tensor_parallelism_sends_two_all_reduces_a_layer_around_the_ring() -> None:
    found = {item.name: item for item in operators(LLAMA_8B, "decode", 16, 64, tp=4)}
    vector = 16 * 4096 * 2
    assert found["all-reduce"].count == 2 * 32 + 1
    assert found["all-reduce"].link_bytes == 65 * 2 * 3 / 4 * vector
    assert not any(item.link_bytes for item in operators(LLAMA_8B, "decode", 16, 64))


def test_quantized_weights_are_fewer_bytes_and_the_same_operations() -> None:
    plain, small = (operators(LLAMA_8B, "decode", 1, 16, weights=weights) for weights in ("bf16", "w4a16"))
    assert total(plain, "flops") == total(small, "flops")
    assert total(small, "weight_bytes", part="mlp") < 0.3 * total(plain, "weight_bytes", part="mlp")
    assert total(small, "weight_bytes", part="head") == total(plain, "weight_bytes", part="head")
    dtypes = {item.compute_dtype for item in operators(LLAMA_8B, "decode", 1, 16, weights="w8a8") if item.part == "mlp"}
    assert dtypes == {"int8"}


def test_kv_precision_scales_what_attention_reads() -> None:
    full, half = (total(operators(LLAMA_8B, "decode", 1, 999, kv_dtype=name), "kv_bytes") for name in ("bf16", "fp8"))
    assert full == 2 * half


def test_operator_names_are_distinct_and_every_figure_is_finite(shared_dir: Path) -> None:
    for spec in every_config(shared_dir):
        for phase in ("decode", "prefill"):
            found = operators(spec, phase, 2, 300, weights="as-stored")
            assert len({item.name for item in found}) == len(found)
            json.dumps([[item.flops, item.bytes, item.intensity] for item in found], allow_nan=False)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"phase": "both"}, "phase"),
        ({"batch": 0}, "batch"),
        ({"seq_len": -1}, "seq_len"),
        ({"tp": 0}, "tp"),
        ({"weights": "int3"}, "weights"),
        ({"kv_dtype": "int3"}, "kv_dtype"),
    ],
)
def test_wrong_input_names_the_field(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as raised:
        operators(**{"spec": LLAMA_8B, "phase": "decode", "batch": 1, "seq_len": 1, **options})
    assert raised.value.field == field
