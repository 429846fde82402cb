"""Bytes of quantized weights: the ledger's formula against what the decoders hold, to the byte; the workspace too."""

from __future__ import annotations

import pytest
import torch

from core_engine.kernels.choice import compiled_here
from core_engine.model.compiled import CompiledDecoder
from core_engine.model.decoder import Decoder
from ledger.model_spec import ModelSpec, load_model_spec
from ledger.packed_weights import MatrixFormat
from ledger.step_kernels import StepKernels, StepRow, held_weight_bytes, workspace_bytes
from ledger.weights import parameter_shapes
from tests.core_engine.quantized import ROUNDING
from tests.core_engine.test_compiled import STEPS, empty_cache, torchs_model
from tests.core_engine.test_quantized_models import MODELS, TIED, one, quantized

CASES = MODELS | {name: (TIED, one(name), {"embedding": "w8 a row"}) for name in ROUNDING}


def case(name):
    settings, formats, ends = CASES[name]
    plain = torchs_model(settings, torch.float32)
    return ModelSpec.from_config(settings), plain.spec, quantized(plain.spec, plain.weights, formats, **ends)


def kernels_here(formats):
    here = compiled_here()
    return StepKernels(
        panel_columns=2 * here.vector_bits // 32,
        threads=torch.get_num_threads(),
        formats=formats,
    )


@pytest.mark.usefixtures("compiled_kernels")
@pytest.mark.parametrize("name", CASES)
def test_compiled_decoders_hold_the_ledgers_bytes(name):
    model, spec, weights = case(name)
    decoder = CompiledDecoder(spec, weights)
    assert decoder.weights.num_bytes() == held_weight_bytes(model, 4, kernels_here(decoder.formats))


@pytest.mark.usefixtures("compiled_kernels")
@pytest.mark.parametrize("name", CASES)
def test_the_workspace_is_the_ledgers(name):
    model, spec, weights = case(name)
    decoder = CompiledDecoder(spec, weights)
    for rows in STEPS:
        decoder.release_workspace()
        decoder.step(rows, list(range(len(rows))), empty_cache(spec, torch.float32))
        predicted = workspace_bytes(
            model, [StepRow(row.start, row.count) for row in rows], kernels_here(decoder.formats)
        )
        assert 0 <= decoder._workspace.nbytes - predicted <= 64 * (14 + torch.get_num_threads())


@pytest.mark.parametrize("name", CASES)
def test_torchs_decoders_hold_the_ledgers_bytes(name):
    model, spec, weights = case(name)
    decoder = Decoder(spec, weights)
    assert decoder.weights.num_bytes() == held_weight_bytes(model, 4, StepKernels(formats=decoder.formats))


@pytest.mark.parametrize("columns", [8, 16, 32])
def test_the_embedded_models_bytes_in_bf16_are_those_of_the_issue(columns):
    """W4 keeps the 49,152 x 576 embedding in 16 bits: 113 MB of 269, not a quarter."""
    spec = load_model_spec("embedded")
    body = [name for name in parameter_shapes(spec) if name.endswith("_proj.weight")]

    def size(body_format, head=None):
        found = {name: body_format(shape) for name, shape in parameter_shapes(spec).items() if name in body}
        if head is not None:
            found["model.embed_tokens.weight"] = head
        return round(held_weight_bytes(spec, 2, StepKernels(panel_columns=columns, formats=found)) / 1e6)

    eight = MatrixFormat(8, 576)
    assert size(lambda shape: MatrixFormat(8, shape[1])) == 163
    assert size(lambda shape: MatrixFormat(8, shape[1]), eight) == 135
    assert size(lambda shape: MatrixFormat(4, 64)) == 113
    assert size(lambda shape: MatrixFormat(4, 64), eight) == 85
