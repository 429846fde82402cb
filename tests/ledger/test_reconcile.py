"""Predicted beside measured: nothing is lost between the accounts, the unexplained and the whole."""

from __future__ import annotations

from ledger.memory import Account, MemoryLedger, predict_ledger
from ledger.model_spec import load_model_spec
from ledger.reconcile import Reading, reconcile

PREDICTED = MemoryLedger((Account("weights", 70, "given"), Account("kv_pool", 20, "given")))


def test_what_no_account_holds_is_unexplained():
    found = reconcile(PREDICTED, {"weights": Reading(72, "tensors"), "history": Reading(3, "log", "estimated")}, 100)
    assert found["unexplained_bytes"] == 100 - 72 - 3
    assert found["predicted_bytes"] == 90
    assert found["accounts"]["kv_pool"]["measured_bytes"] is None
    assert found["accounts"]["history"]["predicted_bytes"] is None


def test_every_figure_says_where_it_is_from():
    predicted = MemoryLedger((Account("runtime", 9, "reading", "measured"), Account("weights", 70, "given")))
    readings = {"runtime": Reading(9, "reading"), "history": Reading(3, "log", "estimated")}
    accounts = reconcile(predicted, readings, 100)["accounts"]
    labels = {name: (found["provenance"], found["measured_provenance"]) for name, found in accounts.items()}
    assert labels == {
        "runtime": ("measured", "measured"), "weights": ("computed", None), "history": (None, "estimated"),
    }  # fmt: skip


def test_accounts_beyond_the_whole_show_as_negative():
    assert reconcile(PREDICTED, {"weights": Reading(72, "tensors")}, 50)["unexplained_bytes"] == -22


def test_without_a_whole_nothing_is_unexplained():
    assert reconcile(PREDICTED, {"weights": Reading(72, "tensors")}, None)["unexplained_bytes"] is None


def test_the_runtime_is_an_account_only_where_it_was_read():
    sizes = {"dtype_bytes": 4, "kv_pool_bytes": 2**24, "max_num_batched_tokens": 64, "max_num_seqs": 1}
    without, given = (predict_ledger(load_model_spec("embedded"), **sizes, runtime_bytes=r) for r in (None, 1000))
    assert given.total_bytes == without.total_bytes + 1000
    assert given.account("runtime").provenance == "measured"


def test_no_prefill_is_longer_than_the_model():
    sizes = {"dtype_bytes": 4, "kv_pool_bytes": 2**30, "max_num_seqs": 1}
    model = load_model_spec("embedded")
    long, longer = (predict_ledger(model, **sizes, max_num_batched_tokens=n) for n in (8192, 65_536))
    assert long.account("activation_peak") == longer.account("activation_peak")
