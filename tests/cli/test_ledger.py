"""`trilemma ledger` and the order of errors of `trilemma kv`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from experiments.cli import run

CONTRACT = (
    "accounts", "total_bytes", "capacity_bytes", "fits", "max_concurrency", "max_seq_len", "unexplained_bytes",
    "params_total", "params_text", "params_active",
)  # fmt: skip


def ledger_json(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert run(["ledger", *options, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_contracts_keys_and_accounts_that_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    found = ledger_json(capsys, "llama-3.1-8b", "--gpu", "L4", "--concurrency", "4")
    assert set(CONTRACT) <= set(found)
    assert all({"name", "bytes", "how"} <= set(account) for account in found["accounts"])
    assert sum(account["bytes"] for account in found["accounts"]) == found["total_bytes"]
    assert found["capacity_bytes"] == 23_034 * 2**20
    assert found["fits"] is True
    assert found["unexplained_bytes"] is None


def test_without_a_card_nothing_is_said_about_fitting(capsys: pytest.CaptureFixture[str]) -> None:
    found = ledger_json(capsys, "embedded", "--measured-bytes", "2000000000")
    assert found["capacity_bytes"] is found["fits"] is found["max_concurrency"] is None
    assert found["unexplained_bytes"] == 2_000_000_000 - found["total_bytes"]


def test_the_limit_it_prints_is_where_it_stops_fitting(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("llama-3.1-8b", "--capacity-gib", "24", "--engine", "sglang", "--kv-dtype", "int8", "--tp", "2")
    most = ledger_json(capsys, *options)["max_concurrency"]
    assert ledger_json(capsys, *options, "--concurrency", str(most))["fits"] is True
    assert ledger_json(capsys, *options, "--concurrency", str(most + 1))["fits"] is False


def test_gb_and_gib_are_both_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ledger", "llama-3.1-8b", "--gpu", "h100", "--surface"]) == 0
    printed = capsys.readouterr().out
    assert "GB" in printed and "GiB" in printed
    assert "85.52" in printed and "79.65" in printed  # 81,559 MiB
    assert "8,030,261,248 parameters in bf16" in printed
    assert "--gpu-memory-utilization 0.92 of total" in printed


def test_kv_prints_both_units_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kv", "--layers", "32", "--kv-heads", "8", "--head-dim", "128", "--seq-len", "131072"]) == 0
    assert "17,179,869,184  17.180  16.000" in capsys.readouterr().out


def test_a_surface_comes_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = ledger_json(capsys, "llama-3.1-8b", "--gpu", "h100", "--surface")
    assert len(found["surface"]) >= 200
    assert {"seq_len", "concurrency", "kv_dtype", "kv_bytes", "fits"} == set(found["surface"][0])


def test_an_unknown_architecture_is_refused_and_assumed_only_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    sizes = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 100, "num_hidden_layers": 2}
    path.write_text(json.dumps({"model_type": "unheard-of", "num_attention_heads": 4, **sizes}))
    assert run(["ledger", str(path)]) == 2
    assert "unheard-of" in capsys.readouterr().err
    assert run(["ledger", str(path), "--plain-attention"]) == 0
    warnings = capsys.readouterr().err
    assert "taken as Llama with full attention, as asked" in warnings
    assert "Llama-like decoder" in warnings


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("kv nosuch", "config"),
        ("kv embedded --kv-dtype fp7", "kv_dtype"),
        ("kv embedded --kv-dtype int4 --kv-group-size -1", "kv_group_size"),
        ("kv embedded", "--seq-len"),
        ("kv embedded --seq-len 10 --pp 31", "pp"),
        ("ledger nosuch", "config"),
        ("ledger embedded --weights w5", "weights"),
        ("ledger embedded --kv-dtype fp7", "kv_dtype"),
        ("ledger embedded --gpu nosuch", "gpu"),
        ("ledger embedded --gpu l4 --capacity-gib 3", "--capacity-gib"),
        ("ledger embedded --capacity-gib nan", "--capacity-gib"),
        ("ledger embedded --memory-fraction 1.5", "memory_fraction"),
        ("ledger embedded --engine none", "engine"),
        ("ledger embedded --seq-len many", "--seq-len"),
        ("ledger embedded --measured-bytes -1", "measured_bytes"),
    ],
)
def test_wrong_input_names_what_was_wrong_first(line: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"trilemma: {named}:")
    assert error.count("\n") == 1


def test_the_answer_loads_neither_torch_nor_pandas() -> None:
    code = (
        "import sys; from experiments.cli import run; run(['ledger', 'embedded', '--gpu', 'l4', '--json']);"
        "sys.exit(sorted({'torch', 'pandas', 'scipy', 'transformers', 'streamlit'} & set(sys.modules)) and 1 or 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


@pytest.mark.parametrize(("gpu", "rows"), [("a100-sxm-80gb", 256), ("h100-sxm", 1024), ("l4", 256)])
def test_vllm_prepares_for_as_many_sequences_as_it_does_by_default_on_that_card(
    gpu: str, rows: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ledger", "llama-3.1-8b", "--gpu", gpu, "--json"]) == 0
    accounts = {item["name"]: item["how"] for item in json.loads(capsys.readouterr().out)["accounts"]}
    assert f"{rows:,} rows x 128,256 logits" in accounts["activations"]
