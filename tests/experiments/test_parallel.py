"""Ranks in experiments: what a comparison holds beside them, its end, C24's judgement, computed rows of links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core_engine.variables import VARIABLES
from experiments.claims import ranks
from experiments.claims.comparison import FAILS, HOLDS, LIMITED
from experiments.compare import run_comparison
from experiments.rig import Rig
from experiments.spec import BenchSpec, CompareSpec
from ledger.errors import InputError
from tests.core_engine.conftest import make_tiny
from tests.core_engine.parallel.test_supervision import wait_gone

IDS = [[1, 2], [3]]


def test_both_arms_run_the_same_operators_unless_somebody_says_otherwise() -> None:
    spec = CompareSpec.from_dict({"variable": "tensor_parallel", "values": [1, 2]})
    assert [config.kernels for config in spec.configs()] == ["torch", "torch"]
    assert [config.tensor_parallel for config in spec.configs()] == [1, 2]
    assert spec.held_because()["kernels"] == {"value": "torch", "because": "tensor_parallel=2"}
    chosen = CompareSpec.from_dict({
        "variable": "pipeline_parallel", "values": [1, 2], "settings": {"kernels": "auto"},
    })  # fmt: skip
    assert [config.kernels for config in chosen.configs()] == ["auto", "auto"]
    assert BenchSpec.from_dict({"settings": {"tensor_parallel": 2}}).config().kernels == "torch"
    other = CompareSpec.from_dict({"variable": "batching", "values": ["static", "continuous"]})
    assert "kernels" not in other.held_because()


def test_micro_batches_need_stages_to_act_on() -> None:
    with pytest.raises(InputError, match="pipeline_parallel=2 to 64"):
        CompareSpec.from_dict({"variable": "micro_batches", "values": [1, 2]})
    fields = {"variable": "micro_batches", "values": [1, 2], "settings": {"pipeline_parallel": 2}}
    assert [config.micro_batches for config in CompareSpec.from_dict(fields).configs()] == [1, 2]
    assert {"vLLM", "SGLang", "TensorRT-LLM", "llama.cpp"} == set(VARIABLES["tensor_parallel"].peers)


@pytest.mark.slow
def test_a_comparison_of_ranks_tells_their_bytes_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tiny("qwen2", tmp_path)
    pids: list[int] = []
    load = Rig.loaded

    def noted(rig: Rig, config: Any) -> Any:
        found = load(rig, config)
        pids.extend(found.decoder.ranks.pids if config.ranks > 1 else [])
        return found

    monkeypatch.setattr(Rig, "loaded", noted)
    spec = {
        "variable": "tensor_parallel", "values": [1, 2], "repeats": 2, "num_requests": 3, "max_tokens_cap": 4,
        "settings": {"model": str(tmp_path), "dtype": "fp32", "kv_memory_mib": 4, "threads": 1},
    }  # fmt: skip
    result = run_comparison(spec, None, "")
    assert result["derived"]["ranks"] == [1, 2] and result["held_because"]["kernels"]["value"] == "torch"
    one, two = (arm["metrics"] for arm in result["arms"])
    assert "parallel" not in one and two["parallel"]["equals_formula"]
    assert result["quality"]["same_token_ids_share"] == 1.0
    assert pids and wait_gone(list(dict.fromkeys(pids)))


def made(**changes: Any) -> Any:
    """A run of splits in which ranks take `tp_step_s` a decode step, give `ids` and hand over as the formula says."""

    def run(settings: Any, splits: Any, repeats: int) -> list[dict[str, Any]]:
        found = []
        for tp, pp in splits:
            split = tp * pp > 1
            parallel = {
                "equals_formula": changes.get("equals_formula", True), "handed_bytes_per_step": 1000.0, "formula": "f",
                "ring_factor": 1.0, "communication_share": 0.2, "bubble_share": 0.1,
            }  # fmt: skip
            found.append({
                "tp": tp, "pp": pp, "ids": [changes.get("ids", IDS) if split else IDS] * repeats,
                "step_s": [changes.get("tp_step_s", 0.02) if tp > 1 else 0.01] * 3,
                "parallel": parallel if split else None, "threads": 2, "weights_bytes": [7, 5] if split else [10],
            })  # fmt: skip
        return found

    return run


def test_it_holds_with_its_price_where_ranks_share_the_cores() -> None:
    found = ranks.check({"repeats": 2}, made())
    assert found["verdict"] == LIMITED and "1,000 B a step" in found["reason"]
    assert [row["repeats"] for row in found["evidence"][:3]] == [2, 2, 2]
    assert found["evidence"][1]["largest_rank_weights_bytes"] == 7
    assert ranks.check({}, made(tp_step_s=0.005))["verdict"] == HOLDS


@pytest.mark.parametrize(
    ("changes", "said"), [({"ids": [[1, 2], [4]]}, "other tokens"), ({"equals_formula": False}, "other bytes")]
)
def test_other_tokens_or_bytes_refute_it(changes: dict[str, Any], said: str) -> None:
    found = ranks.check({}, made(**changes))
    assert found["verdict"] == FAILS and said in found["reason"]


def test_links_differ_by_latency_in_a_decode_and_by_bandwidth_in_a_prefill() -> None:
    rows = ranks.link_rows()
    decode = {row["part"].rpartition(", ")[2]: row for row in rows if "decode" in row["part"]}
    prefill = [row for row in rows if "prefill" in row["part"]]
    assert all(row["provenance"] == "computed" and row["all_reduces"] == 65 for row in rows)
    fast = next(row for name, row in decode.items() if name.startswith("NVLink"))
    assert fast["all_reduce_s"] > 0.8 * 65 * 14 * fast["latency_us"] * 1e-6  # nearly all of it is latency
    slow = max(prefill, key=lambda row: row["all_reduce_s"])
    assert slow["all_reduce_s"] > 0.8 * 1.75 * slow["handed_bytes_per_rank"] / slow["bytes_per_s"]
