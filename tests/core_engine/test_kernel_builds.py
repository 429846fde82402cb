"""The compiled step as other processors have it: their vector widths and bf16 pairs, and targets only compiled here.

GCC lowers vectors of any width to what a processor has, so that the code of every width can run on every machine.
"""

from __future__ import annotations

import platform
import re
import subprocess
from pathlib import Path

import pytest
import torch

from core_engine.kernels.cpu import native
from core_engine.kernels.options import StepOptions
from core_engine.quant.linear import integer_product
from tests.core_engine.quantized import FORMATS, ROUNDING
from tests.core_engine.test_compiled import CONFIGS, STEPS, by_torch, empty_cache, models, row
from tests.core_engine.test_quant_linear import by_kernels, exact, inputs

pytestmark = pytest.mark.usefixtures("compiled_kernels")
on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="a target of x86-64")
WIDTHS = [
    pytest.param(("-DTRILEMMA_WIDTH=4", "-O1"), id="width 4"),
    pytest.param(("-DTRILEMMA_WIDTH=8", "-O1"), id="width 8", marks=pytest.mark.slow),
    pytest.param(("-DTRILEMMA_WIDTH=16", "-O1"), id="width 16", marks=pytest.mark.slow),
    pytest.param(("-march=x86-64",), id="no AVX, no FMA", marks=[pytest.mark.slow, on_x86]),
]
PAIRS = [
    pytest.param(
        (f"-DTRILEMMA_WIDTH={width}", "-DTRILEMMA_PAIRS=1", "-O1"),
        id=f"pairs of width {width}",
        marks=pytest.mark.slow,
    )
    for width in (8, 16)
]
# As on a processor that multiplies bytes.
BYTES = pytest.param(("-DTRILEMMA_WORDS=0", "-O1"), id="bytes", marks=pytest.mark.slow)
# Every part of the step that an option switches has both of its sides in these two.
OPTIONS = {"all on": StepOptions(), "all off": StepOptions(one_call=False, fused_ops=False, flash=False, kv_splits=1)}
# A prompt in chunks of 1 to 12 tokens: every height that a register tile has.
CHUNKS = [[row(3, count * (count - 1) // 2, count)] for count in range(1, 13)]


@pytest.fixture(scope="module")
def kernels(request):
    return native.opened(request.param)


@pytest.mark.parametrize("kernels", WIDTHS, indirect=True)
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("how", OPTIONS)
def test_float32_logits_and_cache_are_torchs(kernels, name, how):
    decoder, compiled = models(CONFIGS[name], torch.float32, kernels=kernels)
    ours, theirs = empty_cache(decoder.spec, torch.float32), empty_cache(decoder.spec, torch.float32)
    for rows in STEPS + CHUNKS:
        wanted = list(range(sum(row.count for row in rows)))
        expected = by_torch(decoder, rows, wanted, theirs)
        torch.testing.assert_close(compiled.step(rows, wanted, ours, OPTIONS[how]), expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernels", WIDTHS + PAIRS, indirect=True)
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("how", OPTIONS)
def test_bf16_logits_and_cache_are_nearer_to_float32_than_torchs_bf16(kernels, name, how):
    """Torch rounds what every operator gives; compiled code what is stored and, in pairs, what goes into a product."""
    exact, _ = models(CONFIGS[name], torch.bfloat16, torch.float32)
    decoder, compiled = models(CONFIGS[name], torch.bfloat16, kernels=kernels)
    reference, theirs, ours = (
        empty_cache(decoder.spec, dtype) for dtype in (torch.float32, torch.bfloat16, torch.bfloat16)
    )
    for rows in STEPS + CHUNKS:
        wanted = list(range(sum(row.count for row in rows)))
        expected = by_torch(exact, rows, wanted, reference)
        their_logits, our_logits = (
            by_torch(decoder, rows, wanted, theirs),
            compiled.step(rows, wanted, ours, OPTIONS[how]),
        )
        assert mean_error(our_logits, expected) < mean_error(their_logits, expected)
        assert mean_error(ours, reference) < mean_error(theirs, reference)


def mean_error(found, expected):
    return (found.float() - expected).abs().mean()


@pytest.mark.parametrize("kernels", [*WIDTHS, BYTES], indirect=True)
@pytest.mark.parametrize("name", FORMATS | ROUNDING)
def test_quantized_products_are_those_of_this_processors_build(kernels, name):
    """Rounded inputs: the same integers. Others: within float32's rounding of the dequantized matrix."""
    matrix = (FORMATS | ROUNDING)[name](37, 96)
    for tokens in (*range(1, 14), 33):
        x = inputs(tokens, 96)
        found = by_kernels(matrix, x, kernels)
        wanted = integer_product(x, matrix) if name in ROUNDING else exact(matrix, x).float()
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5 * wanted.abs().max())


@on_x86
@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "unit", "instruction"),
    [
        ("sapphirerapids", "step", r"vdpbf16ps\s.*%zmm"),
        ("sapphirerapids", "quantized", r"vpdpbusd\s.*%zmm"),
        ("alderlake", "quantized", r"vpdpbusd\s.*%ymm"),
        ("skylake-avx512", "quantized", r"vpmaddwd\s.*%zmm"),
        ("skylake-avx512", "step", r"vfmadd\d+ps\s.*%zmm"),
        ("haswell", "step", r"vfmadd\d+ps\s.*%ymm"),
        ("haswell", "quantized", r"vpmaddwd\s.*%ymm"),
        ("x86-64", "step", r"mulps\s.*%xmm"),
    ],
)
def test_a_processors_own_multiplications_are_used(target, unit, instruction, tmp_path):
    assembly = tmp_path / "step.s"
    source = Path(native.__file__).parent / f"{unit}.cpp"
    flags = ("-std=c++17", "-O2", "-fopenmp", f"-march={target}", "-S", str(source), "-o", str(assembly))
    done = subprocess.run([native.compiler(), *flags], capture_output=True, text=True)
    if f"-march={target}" in done.stderr or "unknown target CPU" in done.stderr:
        pytest.skip(f"the compiler does not know {target}")
    assert done.returncode == 0, done.stderr
    assert re.search(instruction, assembly.read_text())
