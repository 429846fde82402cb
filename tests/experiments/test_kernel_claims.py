"""C19 to C21: verdicts from paired step times, and the probe that takes them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.claims import kernel_options, run_claim
from experiments.claims.catalogue import get_claim
from experiments.step_probe import PairedProbe, ProbedStep, probe_pair
from ledger.errors import CannotRunError, InputError
from tests.core_engine.conftest import make_llama


@pytest.fixture(scope="module")
def tiny_dir(tmp_path_factory):
    """A tiny model with heads of 26, a size that compiled kernels do not take."""
    directory = tmp_path_factory.mktemp("tiny")
    make_llama(directory, head_dim=26)
    return str(directory)


def probe_with(ratios):
    """A probe whose n-th step, over all calls, takes ratios[n] times as long in the candidate, nearly without noise."""
    left = list(ratios)

    def probe(steps, arms, repeats):
        base = [1.0 + 0.002 * (repeat % 3) for repeat in range(repeats)]
        pairs = []
        for _ in steps:
            ratio = left.pop(0)
            pairs.append((base, [second * ratio * (1 + 0.002 * (i % 2)) for i, second in enumerate(base)]))
        return PairedProbe(tuple(pairs), "compiled", "fp32", 2)

    return probe


def counted(variable, values, settings):
    """As the compiled step calls them, fused or not, as one call or not."""
    calls = {"fused_ops": ([361, 271], [1, 1]), "graph": ([271, 271], [271, 1])}
    return {"counts": "operators", "launches": calls[variable][0], "host_calls": calls[variable][1]}


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ((0.8, 0.9, 0.9), "holds"),
        ((0.8, 1.0, 1.0), "holds with a limit"),
        ((1.0, 1.0, 1.2), "does not hold here"),
    ],
)
def test_fusion_holds_where_every_step_gets_shorter(ratios, verdict):
    found = kernel_options.fusion({}, probe_with(ratios), counted)
    assert found["verdict"] == verdict and "361 operators unfused, 271 fused" in found["reason"]
    assert "launches" in found["not_checked"], "what stands in for them here"
    assert [round(row["change_pct"]) for row in found["evidence"]] == [round(100 * ratio - 100) for ratio in ratios]


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ((0.7, 0.8, 0.98), "holds"),
        ((0.8, 0.8, 0.7), "holds with a limit"),
        ((1.0, 0.8, 0.7), "does not hold here"),
    ],
)
def test_one_call_holds_when_decode_gains_most(ratios, verdict):
    found = kernel_options.one_call({}, probe_with(ratios), counted)
    assert found["verdict"] == verdict and "271 calls by the host off, 1 on" in found["reason"]


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ((0.9, 0.7, 0.6, 1.0), "holds with a limit"),
        ((0.9, 0.7, 0.6, 0.8), "holds"),
        ((0.9, 1.0, 1.1, 0.8), "does not hold here"),
    ],
)
def test_split_kv_is_judged_by_the_longest_context_of_a_lone_sequence(ratios, verdict):
    found = kernel_options.split_kv({}, probe_with(ratios))
    assert found["verdict"] == verdict
    assert [row["values"] for row in found["evidence"]] == [["1", "2"]] * 2 + [["1", "8"]] * 2


def test_too_much_noise_is_undecided():
    def probe(steps, arms, repeats):
        held_up = [3.0 if repeat % 4 == 3 else 1.0 + 0.001 * repeat for repeat in range(repeats)]
        return PairedProbe(tuple(([1.0] * repeats, held_up) for _ in steps), "compiled", "fp32", 2)

    for check in (kernel_options.fusion, kernel_options.one_call):
        assert check({}, probe, counted)["verdict"] == "undecided"
    assert kernel_options.split_kv({}, probe)["verdict"] == "undecided"


def test_on_a_gpu_nothing_stands_in_for_anything():
    def probe(steps, arms, repeats):
        return replace(probe_with([0.7, 0.8, 0.9])(steps, arms, repeats), kernels="triton")

    assert "not_checked" not in kernel_options.fusion({}, probe, counted)


def test_what_a_step_calls_is_counted(tiny_dir):
    settings = {"model": tiny_dir, "dtype": "fp32", "kernels": "torch"}
    found = kernel_options.launches("fused_ops", ("off", "on"), settings)
    assert found["launches"][0] > found["launches"][1] > 0 and found["counts"]


def test_steps_of_two_arms_are_timed_in_turn_on_one_model(tiny_dir):
    settings = {"model": tiny_dir, "dtype": "fp32", "kernels": "torch"}
    steps = [ProbedStep("prefill", 1, 9), ProbedStep("decode", 2, 5)]
    found = probe_pair(steps, [{**settings, "attention": value} for value in ("naive", "flash")], 3)
    assert [len(arm) for pair in found.seconds for arm in pair] == [3] * 4
    assert found.kernels == "torch" and all(second > 0 for pair in found.seconds for arm in pair for second in arm)


def test_what_only_compiled_kernels_have_is_refused_on_torchs(tiny_dir):
    steps = [ProbedStep("decode", 1, 5)]
    with pytest.raises(CannotRunError, match="graph=on"):  # 26 is no multiple of a vector
        probe_pair(steps, [{"model": tiny_dir, "graph": value} for value in ("off", "on")], 2)


@pytest.mark.parametrize("claim", ["C19", "C20", "C21"])
def test_the_claims_are_checkable_and_refuse_unknown_options(claim):
    assert get_claim(claim).state == "checkable"
    with pytest.raises(InputError, match="option"):
        run_claim(claim, options={"nothing": 1})
