"""KV bytes and parameter counts of real configs against the reference figures."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ledger.kv_cache import kv_bytes_per_token, kv_bytes_per_token_all_layers, kv_report
from ledger.model_spec import ModelSpec, load_model_spec
from ledger.weights import active_parameter_count, parameter_count, parts


@pytest.fixture(scope="module")
def reference(shared_dir: Path) -> list[tuple[str, ModelSpec, dict[str, Any]]]:
    folder = shared_dir / "data" / "configs"
    rows = json.loads((folder / "REFERENCE.json").read_text())
    return [(name, load_model_spec(folder / row["file"]), row) for name, row in rows.items()]


def test_every_layer_has_the_reference_kind(reference):
    for name, spec, row in reference:
        assert Counter(layer.kind for layer in spec.layers) == row["kinds"], name


def test_kv_bytes_equal_the_reference(reference):
    for name, spec, row in reference:
        assert kv_bytes_per_token(spec) == row["kv_bytes_per_token_unbounded"], name
        assert kv_bytes_per_token_all_layers(spec) == row["kv_bytes_per_token_all_attn_layers"], name
        for length in (4096, 32768, 131072):
            report = kv_report(spec, length)
            assert report["kv_bytes_per_sequence"] == row[f"kv_bytes_1seq_{length}"], name
            assert report["kv_bytes_per_token"] == row["kv_bytes_per_token_unbounded"], name
            assert report["kv_bytes_per_token_all_layers"] == row["kv_bytes_per_token_all_attn_layers"], name


def test_state_elements_equal_the_reference(reference):
    for name, spec, row in reference:
        assert sum(layer.state_elements for layer in spec.layers) == row.get("ssm_state_elems_per_seq", 0), name
        assert sum(layer.conv_elements for layer in spec.layers) == row.get("conv_state_elems_per_seq", 0), name


def test_parameter_counts_equal_the_reference(reference):
    for name, spec, row in reference:
        assert parameter_count(spec) == (row["params_text_only"] or row["params_total"]), name
        assert sum(parts(spec).values()) == parameter_count(spec), name


def test_active_parameters_equal_the_reference(reference):
    compared = 0
    for name, spec, row in reference:
        if row["params_active_incl_embeddings"] is not None:
            assert active_parameter_count(spec) == row["params_active_incl_embeddings"], name
            compared += 1
    assert compared >= 7
