"""`simulate`: a bench's metrics, labelled simulated; deployments, fleets, claims; what cannot be is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core_engine.config import EngineConfig
from experiments.claims import faster_links, larger_card, long_documents
from experiments.simulator import calibration
from experiments.simulator.deployment import SimulateSpec, deployed
from experiments.simulator.public import compared, measurements
from experiments.simulator.run import simulate
from ledger.capacity import Deployment, max_concurrency
from ledger.errors import CannotRunError, InputError
from ledger.hardware import accelerator

H100 = {"model": "llama-3.1-8b", "gpu": "h100", "num_requests": 20, "rate_rps": 20}


def test_a_simulated_run_has_a_benchs_metrics_and_says_simulated_everywhere() -> None:
    found = simulate({**H100, "slo": "ttft_p95=1,itl_p99=0.1", "price_per_device_hour": 2.5})
    assert found["provenance"] == "simulated" and found["completed"] == 20 and found["failed"] == 0
    assert found["simulated"]["calibration"] == "public" and found["simulated"]["error_band_pct"] > 0
    assert found["objectives"][0]["met"] and found["goodput_rps"] == found["requests_per_s"]
    assert found["cost_per_request"] > 0 and found["latency_breakdown"]["prefill_s"] is not None
    assert found["memory"]["process_rss_bytes"] is None  # nothing of this machine's is taken for the card's
    json.dumps(found, allow_nan=False)


def test_the_same_traffic_on_one_replica_is_the_same_by_either_way() -> None:
    one = simulate(H100)
    fleet = simulate({**H100, "replicas": 2, "router": "round-robin"})
    assert fleet["completed"] == 20 and fleet["devices"] == 2
    assert fleet["provenance"] == "simulated"
    assert {"ttft_s", "tpot_s", "itl_s", "e2e_s", "output_tokens_per_s", "goodput_rps"} <= fleet.keys()
    # Half the traffic each, far below what a card can do: latencies are near those of one replica.
    assert fleet["tpot_s"]["mean"] == pytest.approx(one["tpot_s"]["mean"], rel=0.1)


def test_a_closed_loop_of_more_clients_gives_more_tokens_and_takes_longer_for_each() -> None:
    few, many = (
        simulate({"model": "llama-3.1-8b", "gpu": "h100", "num_requests": 16, "concurrency": clients})
        for clients in (1, 8)
    )
    assert many["output_tokens_per_s"] > 3 * few["output_tokens_per_s"]
    assert many["tpot_s"]["mean"] > few["tpot_s"]["mean"]


def test_a_cards_pool_is_what_the_ledger_leaves() -> None:
    made = deployed(SimulateSpec.from_dict({"model": "llama-3.1-8b", "gpu": "h100"}))
    card = accelerator("h100")
    deployment = Deployment(made.spec, seq_len=4096, capacity_bytes=card.memory_bytes, max_num_seqs=256, card=card.name)
    held = max_concurrency(deployment) or 0
    assert made.memory.num_blocks // 256 == pytest.approx(held, abs=1)
    assert made.kv_bytes_per_token == 131_072


def test_prefill_and_decode_apart_moves_the_prompts_and_says_how_long_it_took() -> None:
    found = simulate({**H100, "replicas": 1, "prefill_replicas": 1})
    assert found["completed"] == 20 and found["kv_transfer"]["requests"] == 20
    assert found["kv_transfer"]["bytes"] == found["workload"]["prompt_tokens"] * 131_072
    assert found["devices"] == 2


def test_speculation_needs_a_measured_acceptance_and_gains_with_it() -> None:
    with pytest.raises(InputError, match="acceptance"):
        simulate({**H100, "settings": {"speculation": "ngram"}})
    with pytest.raises(InputError, match="speculation"):
        simulate({**H100, "acceptance": 0.8})
    drafts = {"speculation": "ngram", "num_draft_tokens": 3, "draft_control": "fixed"}
    fast = simulate({**H100, "acceptance": 0.9, "settings": drafts})
    assert fast["tpot_s"]["mean"] < 0.6 * simulate(H100)["tpot_s"]["mean"]
    assert fast["counters"]["alpha"] == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"gpu": "abacus"}, "gpu"),
        ({"model": "llama-3.1-70b"}, "leave none"),
        ({"router": "magic", "replicas": 2}, "router"),
        ({"tp": 0}, "tp"),
        ({"link": "string"}, "link"),
        ({"weights": "w3"}, "weights"),
        ({"replicas": 2, "concurrency": 4, "rate_rps": None}, "times of its own"),
        ({"gpu": "this", "model": "embedded", "tp": 2}, "tp"),
        ({"settings": {"disaggregation": "on"}}, "prefill_replicas"),
        ({"settings": {"exact_cache": "on"}}, "no text"),
        ({"gpu": "this", "model": "embedded", "weights": "w8a16"}, "--set weights"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        simulate({**H100, **changes})


def test_an_uncalibrated_card_is_marked_so_and_warned_of() -> None:
    found = simulate({**H100, "gpu": "mi300x"})
    assert found["simulated"]["calibration"] == "uncalibrated" and "guess" in found["warnings"][0]


def test_this_machine_has_to_be_calibrated_for_the_formats(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(calibration, "calibration_file", lambda: tmp_path / "simulator.json")
    with pytest.raises(CannotRunError, match="calibrate --simulator --set kv_dtype=int8"):
        simulate({"settings": {"kv_dtype": "int8"}})
    (tmp_path / "simulator.json").write_text("{not json", "utf-8")
    assert calibration.stored() == []


def test_an_entry_that_is_kept_is_found_for_its_settings_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(calibration, "calibration_file", lambda: tmp_path / "simulator.json")
    config = EngineConfig()
    calibration.store(_entry(config))
    profile, entry = calibration.profile_here(config)
    assert profile.calibration == "measured" and profile.host_step_s == 0.001
    assert profile.efficiency("linear", "fp32").times(3) == pytest.approx(2.5, abs=0.1)
    assert entry["formats"]["weights"] == "fp32"
    found = simulate({"num_requests": 4, "settings": {"max_num_seqs": 2}})  # plans differ, steps don't
    assert found["simulated"]["name"] == "this" and found["completed"] == 4
    with pytest.raises(CannotRunError):
        calibration.profile_here(EngineConfig.from_settings({"threads": 3}))


def test_a_calibration_is_not_used_for_another_model_and_a_link_can_be_put_between_machines_like_this_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(calibration, "calibration_file", lambda: tmp_path / "simulator.json")
    calibration.store(_entry(EngineConfig()))
    with pytest.raises(CannotRunError, match=r"--set model=llama-3.1-8b"):
        simulate({"model": "llama-3.1-8b"})
    with pytest.raises(InputError, match="link"):
        simulate({"num_requests": 2, "prefill_replicas": 1})
    found = simulate({"num_requests": 2, "prefill_replicas": 1, "link": "pcie5"})
    assert found["completed"] == 2 and found["kv_transfer"]["link"] == "PCIe 5.0 x16"


def test_an_hour_of_two_cards_is_two_device_hours_however_it_is_simulated() -> None:
    for replicas in (1, 2):
        found = simulate({**H100, "tp": 2, "replicas": replicas})
        hours = found["duration_s"] / 3600 * 2 * replicas
        assert found["requests_per_device_hour"] == pytest.approx(found["completed"] / hours)
        assert found["cost_per_request"] == pytest.approx(hours / found["completed"])


def test_requests_that_decode_refuses_have_failed_and_leave_no_gap_in_the_figures() -> None:
    settings = {"max_queue": 1, "max_num_seqs": 1}
    found = simulate({**H100, "rate_rps": 1000, "replicas": 1, "prefill_replicas": 4, "settings": settings})
    assert found["failed"] > 0 and found["completed"] + found["failed"] == 20
    json.dumps(found, allow_nan=False)


def _entry(config: EngineConfig) -> dict[str, Any]:
    card = {
        "name": "this", "label": "this machine", "vendor": "", "memory_bytes": 8 * 2**30, "memory_source": "system",
        "bandwidth_bytes_per_s": 2e10, "flops_per_s": {"fp32": 1e11}, "link_bytes_per_s": None, "power_w": None,
        "sources": [], "provenance": "measured", "link_name": "", "aliases": [],
    }  # fmt: skip
    kept = {"compute": 1.0, "memory": 1.0, "slowdown": [[1, 1.0]]}
    kinds = ("attention_decode", "attention_prefill", "elementwise", "sampling")
    return {
        "for": calibration.settings_of_a_step(config),
        "date": "2026-01-01",
        "formats": {"weights": "fp32", "kv_dtype": "fp32"},
        "accelerator": card,
        "efficiencies": {
            "linear": {**kept, "slowdown": [[1, 2.0], [8, 3.0]]},
            **dict.fromkeys(kinds, kept),
        },
        "host_step_s": 0.001,
        "host_row_s": 0.0001,
        "fit": {"cross_validated_error_pct": {"mean": 4.0, "p95": 9.0, "max": 12.0}},
    }


def test_host_time_is_found_between_executions() -> None:
    steps, now = [], 0
    for rows in (1, 4, 8, 2, 8, 4, 1, 2) * 3:
        host = 1_000_000 + 50_000 * rows
        steps.append({"num_seqs": rows, "execute_start_ns": now + host, "execute_end_ns": now + host + 7_000_000})
        now += host + 7_000_000
    assert calibration.host_of(steps) == pytest.approx((0.001, 0.00005))


# -- published measurements --------------------------------------------------------------------------------------


def _named(row: dict[str, Any]) -> str:
    shape = f"{row['requests']}x{row['input']}+{row['output']}"
    formats = f"{row.get('weights', 'bf16')}-tp{row.get('tp', 1)}"
    return f"{row['source']}-{row['model']}-{row['gpu']}-{formats}-{shape}-{row['metric']}"


def _rows() -> list[Any]:
    """Rows of many tokens are for the slow tests."""
    return [
        pytest.param(row, id=_named(row), marks=[pytest.mark.slow] if row["requests"] * row["output"] > 2000 else [])
        for row in measurements()
    ]


@pytest.mark.parametrize("row", _rows())
def test_published_measurements_are_within_the_band_that_is_stated_for_them(row: dict[str, Any]) -> None:
    found = compared(row)
    assert abs(found.error_pct) <= found.band_pct, f"{found.simulated:.4g} against {found.measured:.4g}"
    assert found.source and found.to_json()["provenance"] == "simulated"


def test_the_models_and_cards_that_were_asked_for_are_among_them() -> None:
    assert {"llama-3.1-8b", "llama-3.1-70b", "qwen3-8b", "deepseek-v3"} <= {row["model"] for row in measurements()}
    assert {"h100-sxm", "h200-sxm", "a100-sxm-80gb", "rtx-4090"} <= {row["gpu"] for row in measurements()}


# -- claims ------------------------------------------------------------------------------------------------------


def _freed(concurrency: int, rate: float, kv_dtype: str = "int4") -> dict[str, Any]:
    return {"kv_dtype": kv_dtype, "concurrency": concurrency, "output_tokens_per_s": rate}


@pytest.mark.parametrize(
    ("freed", "curve", "expected"),
    [
        (1950, (10, 20, 25), "holds with a limit"),
        (1950, (10, 20, 39), "holds"),
        (1300, (10, 20, 39), "does not hold here"),
    ],
)
def test_c07_is_judged_by_proportion_and_shows_the_bend(freed: float, curve: tuple[float, ...], expected: str) -> None:
    formats = [_freed(50, 1000, "bf16"), _freed(100, freed)]
    assert larger_card.judge(formats, [_freed(2**place, rate) for place, rate in enumerate(curve)])[0] == expected


def test_a_pool_in_a_smaller_format_holds_more_and_gives_more_tokens() -> None:
    wide, narrow = (larger_card._freed(kv_dtype) for kv_dtype in ("bf16", "fp8"))
    assert narrow["concurrency"] == pytest.approx(2 * wide["concurrency"], abs=1)
    assert narrow["output_tokens_per_s"] > 1.7 * wide["output_tokens_per_s"] and wide["provenance"] == "simulated"


@pytest.mark.parametrize(
    ("gaps", "speedup", "expected"),
    [
        ("better", 7.9, "holds"),
        ("better", 2.0, "holds with a limit"),
        ("no difference", 7.9, "holds with a limit"),
        ("worse", 2.0, "does not hold here"),
        ("inconclusive", 7.9, "undecided"),
    ],
)
def test_c48_is_judged_by_gaps_here_and_rings_elsewhere(gaps: str, speedup: float, expected: str) -> None:
    rings = [{"devices": 8, "speedup": speedup, "link": "NVLink"}, {"devices": 1, "speedup": 1.0, "link": "NVLink"}]
    assert long_documents.judge(gaps, rings)[0] == expected


def test_a_ring_over_a_slow_link_stops_paying_and_all_reduces_eat_what_ranks_bring() -> None:
    fast, slow = (long_documents.ring(8, link)["speedup"] for link in ("nvlink4", "ethernet-25"))
    assert fast > 6 and slow < 3
    rows = {(row["link"], row["tp"], row["pp"]): row for row in faster_links.simulated_links()}
    assert rows["NVLink 4", 8, 1]["decode_step_s"] < rows["NVLink 4", 1, 1]["decode_step_s"]
    assert rows["Ethernet, 100 Gbit/s", 8, 1]["decode_step_s"] > rows["Ethernet, 100 Gbit/s", 1, 1]["decode_step_s"]
    assert all(row["provenance"] == "simulated" for row in rows.values())


@pytest.mark.parametrize("settings", [{"tensor_parallel": 2}, {"pipeline_parallel": 2}, {"disaggregation": "on"}])
def test_one_process_is_calibrated(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(settings))}.*one process"):
        calibration.calibrate_simulator(settings)
