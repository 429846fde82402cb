"""Step times: the roofline's own operators, for rows of any start and count; links and splits by formula."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ledger.attention_ops import Readers
from ledger.attention_ops import readers as readers_of
from ledger.device_profile import (
    CLASSES,
    DeviceProfile,
    Efficiency,
    device_profile,
    link_names,
    named_link,
    profiled_cards,
)
from ledger.errors import InputError
from ledger.formats import element_format
from ledger.hardware import accelerator
from ledger.links import Link
from ledger.model_spec import load_model_spec
from ledger.operators import operators
from ledger.presets import presets
from ledger.roofline import step_time_s
from ledger.step_time import Ends, Split, StepTimes

LINK = Link(2e-6, 100e9)


def perfect(card: str = "h100-sxm", **changes: object) -> DeviceProfile:
    """A device that reaches its roof and costs nothing beside it."""
    roof = DeviceProfile(card, accelerator(card), {kind: Efficiency() for kind in CLASSES}, link=LINK)
    return replace(roof, **changes)  # type: ignore[arg-type]


def decode_rows(batch: int, length: int) -> list[tuple[int, int, int, bool]]:
    return [(length - 1, 1, 1, False)] * batch


def flops_and_bytes(found: Readers, rows: list[tuple[int, int]], *, decode: bool) -> tuple[float, float]:
    flops = moved = 0.0
    for start, count in rows:
        for reader in found.readers:
            flops += (reader.decode_flops if decode else reader.prefill_flops) * reader.pairs(start, count)
            held = reader.entries(start + 1) if decode else reader.held(start, count)
            moved += (reader.decode_bytes if decode else reader.prefill_bytes) * held
        moved += (found.decode_token_bytes if decode else found.prefill_token_bytes) * count
    return flops, moved


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("phase", ["decode", "prefill"])
@pytest.mark.parametrize("name", sorted(presets()))
def test_readers_cost_what_the_operators_of_every_preset_cost(name: str, phase: str, tp: int) -> None:
    spec, batch, length = load_model_spec(name), 3, 5000
    if spec.num_heads % tp:
        pytest.skip("heads can't be split")
    expected = [op for op in operators(spec, phase, batch, length, tp=tp) if op.name.startswith("attention (")]
    found = readers_of(spec, element_format("bf16"), 2, tp)
    decode = phase == "decode"
    rows = [(length - 1, 1) if decode else (0, length)] * batch
    flops, moved = flops_and_bytes(found, rows, decode=decode)
    assert flops == pytest.approx(sum(op.flops for op in expected), rel=1e-9)
    windowed = any(reader.window for reader in found.readers)
    compressed = any(reader.stride > 1 for reader in found.readers)
    assert moved == pytest.approx(sum(op.bytes for op in expected), rel=2e-3 if windowed or compressed else 1e-9)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gemma-3-27b", "deepseek-v3", "llama-4-scout"])
def test_pieces_of_a_prompt_read_together_what_the_whole_reads(name: str) -> None:
    for reader in readers_of(load_model_spec(name), element_format(None), 2).readers:
        whole = reader.pairs(0, 10_000)
        assert reader.pairs(0, 4_097) + reader.pairs(4_097, 5_903) == whole
        assert sum(reader.entries(place) for place in range(9_001, 9_101)) == reader.pairs(9_000, 100)


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_a_perfect_device_takes_the_rooflines_time_and_the_choice_of_tokens(phase: str) -> None:
    spec, batch, length = load_model_spec("llama-3.1-8b"), 4, 2048
    times = StepTimes(spec, perfect())
    rows = decode_rows(batch, length) if phase == "decode" else [(0, length, 1, True)] * batch
    logits = 2 * batch * spec.vocab_size * 4 / times.profile.accelerator.bandwidth_bytes_per_s
    roof = step_time_s(operators(spec, phase, batch, length), times.profile.accelerator)
    assert times.step_s(times.shape(rows)) == pytest.approx(roof + logits, rel=1e-9)


@pytest.mark.parametrize("split", [Split(), Split(tp=4)])
def test_a_run_of_decode_steps_costs_what_its_steps_cost_to_the_last_bit(split: Split) -> None:
    times = StepTimes(load_model_spec("llama-3.1-8b"), device_profile("h100-sxm"), split=split)
    contexts = [17, 900, 4096]
    single = []
    for step in range(40):
        single.append(times.step_s(times.shape((context + step, 1, 1, False) for context in contexts)))
    entries = sum(contexts) + 3 + 3 * np.arange(40, dtype=np.float64)
    assert times.decode_run_s(3, entries, Ends(np.maximum, np.minimum)).tolist() == single


def test_slowdown_is_put_between_in_the_logarithm_and_constant_outside() -> None:
    kept = Efficiency(slowdown=((1, 2.0), (4, 4.0), (16, 1.0)))
    assert [kept.times(rows) for rows in (0.5, 1, 2, 4, 8, 16, 99)] == pytest.approx([2, 2, 3, 4, 2.5, 1, 1])


def test_a_ring_all_reduce_sends_its_messages_and_its_share_of_the_vector() -> None:
    assert LINK.all_reduce_s(8e9, 1) == 0
    assert LINK.all_reduce_s(8e9, 4) == pytest.approx(6 * 2e-6 + 1.5 * 8e9 / 100e9)


def test_tensor_parallelism_waits_for_two_all_reduces_a_layer_and_one_for_the_embedding() -> None:
    spec = load_model_spec("llama-3.1-8b")
    times = StepTimes(spec, perfect(), split=Split(tp=4))
    vector = 16 * spec.hidden_size * 2
    assert times.reduce_s(16) == pytest.approx((2 * spec.num_layers + 1) * LINK.all_reduce_s(vector, 4))
    slower = StepTimes(spec, perfect(), split=Split(tp=4), link=named_link("ethernet-25"))
    assert slower.step_s(slower.shape(decode_rows(16, 100))) > 5 * times.step_s(times.shape(decode_rows(16, 100)))


def test_stages_take_turns_with_micro_batches() -> None:
    spec = load_model_spec("llama-3.1-8b")
    one, two = (StepTimes(spec, perfect(), split=Split(pp=pp), link=Link(0.0, 1e18)) for pp in (1, 2))
    lone = decode_rows(1, 100)
    # A single row goes through both stages one after the other: nothing is gained.
    assert two.step_s(two.shape(lone)) == pytest.approx(one.step_s(one.shape(lone)), rel=1e-6)
    # Two large prompts overlap: three turns of half a model each, instead of two of a whole one.
    prompts = [(0, 4096, 1, True)] * 2
    assert two.step_s(two.shape(prompts)) == pytest.approx(0.75 * one.step_s(one.shape(prompts)), rel=0.05)


def test_a_ring_shortens_a_long_prompt_until_the_link_is_slower_than_attention() -> None:
    spec = load_model_spec("llama-3.1-8b")

    def prompt_s(cp: int, link: Link) -> float:
        times = StepTimes(spec, perfect(), split=Split(cp=cp), link=link)
        return times.step_s(times.shape([(0, 131_072, 1, True)]))

    whole = prompt_s(1, LINK)
    assert prompt_s(8, Link(0.0, 1e15)) == pytest.approx(whole / 8, rel=0.05)
    slow = Link(0.0, 1e9)
    kv = 131_072 / 8 * 2 * spec.num_kv_heads * spec.head_dim * 2
    assert prompt_s(8, slow) > spec.num_layers * 7 * kv / 1e9


def test_a_piece_of_a_prompt_takes_the_keys_before_it_round_the_ring_too() -> None:
    times = StepTimes(load_model_spec("llama-3.1-8b"), perfect(), split=Split(cp=8), link=Link(0.0, 1e9))
    first, second = (times.ring_s(times.shape([(start, 8192, 0, True)]).prefill_held) for start in (0, 8192))
    assert second == pytest.approx(2 * first)


def test_micro_batches_of_context_parallel_stages_merge_their_own_rows() -> None:
    spec, link = load_model_spec("llama-3.1-8b"), Link(1e-6, 1e8)
    slow, fast = (StepTimes(spec, perfect(), split=Split(pp=2, cp=2), link=one) for one in (link, Link(0.0, 1e18)))
    shape = slow.shape(decode_rows(64, 100))
    merged = spec.num_layers / 2 * link.all_reduce_s(32 * spec.num_heads * (spec.head_dim + 2) * 4, 2)
    hops = 64 / 2 * spec.hidden_size * 2 / 1e8 + 1e-6
    added = slow.step_s(shape) - fast.step_s(shape)
    assert 3 * merged < added < 3 * merged + 4 * hops


def test_launches_hide_behind_a_long_step_and_not_behind_a_short_one() -> None:
    spec = load_model_spec("llama-3.2-1b")
    eager = perfect(launch_s=5e-6, kernels_per_layer=10)
    times = StepTimes(spec, eager, graph=False)
    launches = 5e-6 * 10 * spec.num_layers
    short, long = times.shape(decode_rows(1, 10)), times.shape([(0, 8192, 1, True)])
    captured = StepTimes(spec, eager)
    assert times.device_s(short) - times.head_s(1) == pytest.approx(launches)
    assert captured.device_s(short) < times.device_s(short)
    assert times.device_s(long) == captured.device_s(long)


def test_splitting_keys_fills_a_device_that_a_few_rows_leave_idle() -> None:
    spec = load_model_spec("llama-3.1-8b")
    kept = perfect(processors=128)
    whole, auto = StepTimes(spec, kept, splits=1), StepTimes(spec, kept)
    assert whole.occupancy(1, 65_536.0) == 8 / 128 and auto.occupancy(1, 65_536.0) == 1
    assert auto.occupancy(1, 300.0) == pytest.approx(8 * 300 / 256 / 128)  # too short to be split so often
    long = decode_rows(1, 65_536)
    assert whole.step_s(whole.shape(long)) > auto.step_s(auto.shape(long))
    full = decode_rows(64, 4096)
    assert whole.step_s(whole.shape(full)) == auto.step_s(auto.shape(full))


def test_formats_may_have_efficiencies_of_their_own() -> None:
    spec = load_model_spec("llama-3.1-8b")
    roof = perfect()
    slow = replace(roof, efficiencies={**roof.efficiencies, "linear:w4a16": Efficiency(memory=0.5)})
    rows = decode_rows(1, 10)
    for weights, factor in (("bf16", 1.0), ("w4a16", 2.0)):
        one, other = (StepTimes(spec, profile, weights=weights) for profile in (roof, slow))
        assert other.layers_s(1) == pytest.approx(factor * one.layers_s(1), rel=0.02)
        assert other.step_s(other.shape(rows)) >= one.step_s(one.shape(rows))


def test_every_card_has_a_profile_that_says_where_it_comes_from() -> None:
    from ledger.hardware import catalogue

    for name in catalogue(with_own=False):
        profile = device_profile(name)
        assert profile.sources and profile.error_band_pct > 0
        assert (profile.calibration == "public") == (name in profiled_cards())
        assert ("uncalibrated" in profile.label) == (profile.calibration == "uncalibrated")
    assert set(profiled_cards()) <= set(catalogue(with_own=False))
    assert all(named_link(name).bytes_per_s > 0 for name in link_names())


def test_what_cannot_be_is_refused() -> None:
    spec = load_model_spec("llama-3.1-8b")
    with pytest.raises(InputError, match="no link is known"):
        StepTimes(spec, perfect(link=None), split=Split(tp=2))
    with pytest.raises(InputError, match="pp"):
        StepTimes(spec, perfect(), split=Split(pp=99))
    with pytest.raises(InputError, match="class linear"):
        StepTimes(spec, perfect(efficiencies={}))
    with pytest.raises(InputError, match="link"):
        named_link("string")
