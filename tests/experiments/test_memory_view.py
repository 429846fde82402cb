"""The live ledger of real comparisons of tiny models, as pages and command line show it."""

from __future__ import annotations

import pytest

from experiments.cli.tables import print_memory
from experiments.compare import run_comparison
from experiments.memory_view import account_rows, arm_memory
from experiments.spec import CompareSpec
from ledger.model_spec import load_model_spec
from ledger.weights import weight_bytes
from tests.core_engine.conftest import make_llama

FAST = {"num_requests": 2, "max_tokens_cap": 4, "repeats": 1, "rate_rps": 50.0}
SETTINGS = {"dtype": "fp32", "threads": 1, "kv_memory_mib": 4, "device": "cpu"}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two tiny models of different sizes."""
    small, large = tmp_path_factory.mktemp("small"), tmp_path_factory.mktemp("large")
    make_llama(small)
    make_llama(large, hidden_size=96, num_hidden_layers=4)
    return str(small), str(large)


@pytest.fixture(scope="module")
def two_models(models):
    spec = CompareSpec.from_dict({"variable": "model", "values": list(models), "settings": SETTINGS, **FAST})
    return run_comparison(spec.to_dict(), None, "00000000")


def test_each_arm_of_two_models_counts_the_others_weights_beside_its_own(models, two_models):
    own = [weight_bytes(load_model_spec(model), 4) for model in models]
    assert own[0] != own[1]
    for arm in (0, 1):
        accounts = two_models["arms"][arm]["metrics"]["memory"]["accounts"]
        assert accounts["weights"]["predicted_bytes"] == accounts["weights"]["measured_bytes"] == own[arm]
        assert accounts["other_models"]["measured_bytes"] == own[1 - arm]
        assert accounts["other_models"]["predicted_bytes"] is None


def test_a_comparison_within_one_model_has_no_other(models):
    given = {"variable": "block_size", "values": [16, 32], "settings": {**SETTINGS, "model": models[0]}, **FAST}
    result = run_comparison(CompareSpec.from_dict(given).to_dict(), None, "00000000")
    assert all("other_models" not in arm["metrics"]["memory"]["accounts"] for arm in result["arms"])


def test_the_printed_table_labels_every_figure_and_names_the_reading(two_models, capsys):
    memory = two_models["arms"][0]["metrics"]["memory"]
    print_memory(memory)
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["memory,", "MiB", "predicted", "label", "found", "label", "difference", "how"]
    cells = {line.split()[0]: line.split()[1:] for line in lines if not line.startswith(" ")}  # not folded texts
    assert [*cells] == [row.name for row in account_rows(memory)]
    assert cells["weights"][1::2][:2] == ["computed", "measured"] and cells["weights"][4] == "0.00"
    assert cells["runtime"][1::2][:2] == ["reading", "measured"]
    assert cells["history"][0] == "–" and "estimated" in cells["history"]
    mib = memory["process_peak_bytes"] / 2**20
    difference = (memory["process_peak_bytes"] - memory["predicted_bytes"]) / 2**20
    shown = [f"{mib:,.2f}", "measured", f"{difference:,.2f}".replace("-", "−")]
    assert cells["process_peak"][-3:] == shown


def test_an_older_run_prints_no_table(capsys):
    print_memory({"weights_bytes": 1})
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("chunked", ["on", "off"])
def test_the_arithmetic_of_a_finished_run_is_the_engines_own_prediction(models, chunked):
    held = {**SETTINGS, "model": models[0], "chunked_prefill": chunked, "max_num_batched_tokens": 256}
    given = {"variable": "block_size", "values": [16, 32], "settings": held, **FAST}
    result = run_comparison(CompareSpec.from_dict(given).to_dict(), None, "00000000")
    for arm in (0, 1):
        accounts = result["arms"][arm]["metrics"]["memory"]["accounts"]
        predicted = {account.name: account.bytes for account in arm_memory(result, arm).predicted}
        assert predicted == {name: accounts[name]["predicted_bytes"] for name in predicted}
