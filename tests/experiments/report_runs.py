"""Runs of every kind with results as those kinds really have them, for tests of reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from experiments import loadgen
from experiments.claims.run_all import run_claims
from experiments.factorial import run_factorial
from experiments.jitter import run_jitter
from experiments.kinds import KINDS
from experiments.levers import run_levers
from experiments.metrics import compute_metrics
from experiments.operators.run import changes_json
from experiments.planner.run import plan
from experiments.planner.search import Round
from experiments.planner.spec import PlanSpec
from experiments.quality.choices import ItemScore
from experiments.quality.items import Item
from experiments.quality.slices import baseline_rows, judge_slices, row_json
from experiments.report.build import document, given_away
from experiments.report.page import html_page
from experiments.report.words import Words
from experiments.speculation.run import run_speculation
from experiments.statistics import CurveSamples, judge
from experiments.store import Run, Store, StoredRecord
from experiments.store.identity import code_hash
from experiments.sweep.run import run_sweep
from ledger.errors import CannotRunError
from tests.experiments.fakes import FakeRig, VirtualClock
from tests.experiments.records import MS, record, request, step
from tests.experiments.test_calibrate import result as ceilings


def page_of(run: Run, records: Sequence[StoredRecord], lang: str = "en") -> str:
    """The HTML report of a run whose records are at hand."""
    return html_page(document(given_away(run), records, Words(lang)))


def comparison_record(held: int) -> dict[str, Any]:
    steps = [step(i, 10 * i, 10 * i + 1, 10 * i + 9, 10 * i + 10) for i in range(6)]
    served = [
        request(
            [(19 + 10 * i, 1), (39 + 10 * i, 1)],
            id=f"r{i:02d}",
            steps=[(1 + i, "prefill", 4), (3 + i, "decode", 1)],
            release_ns=held * MS,
        )
        for i in range(2)
    ]
    return record(*served, steps=steps)


def comparison_result(values: Any = ("static", "continuous"), samples: Any = None, **extra: Any) -> dict[str, Any]:
    samples = samples or {
        "ttft_s": ("p95", "lower", [2.0, 2.1, 2.0, 1.9, 2.0], [0.8, 0.82, 0.79, 0.8, 0.81]),
        "itl_s": ("p95", "lower", [0.012, 0.0121, 0.012, 0.0119, 0.012], [0.034, 0.033, 0.034, 0.035, 0.034]),
        "output_tokens_per_s": ("mean", "higher", [50.0, 51, 50, 49, 50], [100.0, 103, 99, 101, 100]),
        "cost_per_request": ("mean", "lower", [1e-4] * 5, [1.0e-4, 1.2e-4, 0.8e-4, 1e-4, 1.1e-4]),
        "quality": ("mean", "higher", [0.6, 0.5, 0.7], [0.6, 0.5, 0.7]),
    }
    curves = [CurveSamples(name, *rest) for name, rest in samples.items()]
    shown = [
        verdict.to_json(
            candidate_value=values[1], samples={"baseline": list(c.baseline), "candidate": list(c.candidate)}
        )
        for verdict, c in zip(judge(curves), curves, strict=True)
    ]
    return {
        "variable": "batching",
        "derived": {"num_blocks": [96, 48]},
        "arms": [{"value": value, "metrics": compute_metrics(comparison_record(80))} for value in values],
        "curves": shown,
        "quality": {"same_token_ids_share": 1.0},
        "repeats": 5,
        "workload": {"name": "mixed"},
        "held_equal": {"max_num_seqs": 8},
        "environment": {"cpu": "a processor"},
        "provenance": "measured",
        "warnings": [],
    } | extra


def run_record() -> dict[str, Any]:
    steps = [step(i, 10 * i, 10 * i + 1, 10 * i + 9, 10 * i + 10) for i in range(6)]
    served = [
        request([(19 + 10 * i, 1), (39 + 10 * i, 1)], id=f"r{i:02d}", release_ns=80 * MS,
                steps=[(1 + i, "prefill", 4), (3 + i, "decode", 1)])
        for i in range(2)
    ]  # fmt: skip
    return record(*served, steps=steps)


def bench_result(**extra: Any) -> dict[str, Any]:
    return {**compute_metrics(run_record(), slo="ttft_p95=0.5"), "held_because": {}, "warnings": [], **extra}


def _claim(**extra: Any) -> dict[str, Any]:
    evidence = [
        {"name": "weights", "value": 26.0, "unit": "GB", "provenance": "computed", "formula": "13e9 x 2 B"},
        {"run_id": "0a1b2c3d", "change_pct": 12.5},
    ]
    return {"id": "C04", "statement": "A 13B model", "verdict": "holds with a limit", "reason": "because of it",
            "trap": "not always", "evidence": evidence, **extra}  # fmt: skip


def _eval(name: str = "two") -> dict[str, Any]:
    items = [Item(f"i{i}", ("one", name)[i % 2], "p", ("a", "b"), 0) for i in range(80)]
    right, wrong = ItemScore((-1.0, -2.0), 0), ItemScore((-2.0, -1.0), 0)
    before, after = [right] * 80, [wrong if i % 2 else right for i in range(80)]
    rows = judge_slices(items, before, {"int2": after})
    found = {"slices": [row_json(row) for row in rows], "texts": [{"text": "novel", "perplexity": 12.5}]}
    base = {"slices": [row_json(row) for row in baseline_rows(items, before)], "texts": []}
    return json.loads(json.dumps({
        "baseline": base, "candidates": [{"label": "int2", **found}], "items_hash": "ab", "provenance": "measured",
        "overlooked": {"verdict": "found", "sentence": "the mean hides it"}, "warnings": [],
    }))  # fmt: skip


def _speculation() -> dict[str, Any]:
    clock = VirtualClock()
    spec = {"tasks": ["chat"], "forms": ["ngram"], "prompts": 2, "max_tokens": 64, "repeats": 2, "batches": [],
            "constructed": False}  # fmt: skip
    return json.loads(json.dumps(run_speculation(spec, None, "", rig=FakeRig(clock), spend=clock.sleep)))


def _profile() -> dict[str, Any]:
    def arm(value: str, seconds: float) -> dict[str, Any]:
        rows = [{"name": "qkv", "launches": 30, "seconds": seconds, "share": 1.0}]
        return {"value": value, "counts": "compiled operators", "launches": 30, "host_calls": 1, "outside_s": 0.001,
                "step_s": {"median": seconds, "low": seconds, "high": seconds, "repeats": 6}, "operators": rows,
                "operators_s": seconds, "kernels": "compiled"}  # fmt: skip

    arms = [arm("off", 0.03), arm("on", 0.02)]
    changes = changes_json(arms, [[0.03 + i / 1e5 for i in range(6)], [0.02 + i / 1e5 for i in range(6)]])
    return json.loads(json.dumps({"arms": arms, "changes": changes, "settings": {"threads": 1}, "warnings": [],
                                  "variable": "fused_ops", "provenance": "measured"}))  # fmt: skip


def _calibration() -> dict[str, Any]:
    return {"kind": "calibrate", "what": "ceilings", "found": ceilings(), "kept_in": "calibration.json", "took_s": 20.0,
            "provenance": "measured", "warnings": [], "run_id": "c0ffee01"}  # fmt: skip


def _virtual(monkeypatch: pytest.MonkeyPatch) -> FakeRig:
    clock = VirtualClock()
    monkeypatch.setattr(loadgen.gc, "collect", lambda: 0)  # 0.1 s with torch loaded, many runs
    return FakeRig(clock, noise=0.002)


def _sweep() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        return json.loads(json.dumps(run_sweep(SPECS["sweep"], None, "", rig=_virtual(patch))))


def _factorial() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        return json.loads(json.dumps(run_factorial(SPECS["factorial"], None, "", rig=_virtual(patch))))


def _plan() -> dict[str, Any]:
    found = plan(PlanSpec.from_dict(SPECS["plan"]), rounds=(Round(1, 24, 0.5, 3),))
    return json.loads(json.dumps(found))


def _jitter() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        return json.loads(json.dumps(run_jitter(SPECS["jitter"], None, "", rig=_virtual(patch))))


def _levers() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        return json.loads(json.dumps(run_levers(SPECS["levers"], None, "", rig=_virtual(patch))))


def _claims() -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        store = Store(Path(folder) / "runs.sqlite3")
        run_id = store.create_run("claims", SPECS["claims"])

        def run_row(spec: dict[str, Any], on_live: Any, should_cancel: Any) -> dict[str, Any]:
            if spec["claim"] == "C24":
                raise CannotRunError("no second process can be started")
            return _claim(id=spec["claim"], run_id="c0ffee00")

        return json.loads(json.dumps(run_claims(SPECS["claims"], store, run_id, run_row=run_row)))


SPECS: dict[str, dict[str, Any]] = {
    "bench": {"workload": "chat", "num_requests": 4, "rate_rps": 2.0, "slo": "ttft_p95=0.5", "seed": 3,
              "max_prompt_tokens": 64, "length_scale": 0.5, "price_per_device_hour": 2.5,
              "settings": {"max_num_seqs": 4}},
    "compare": {"variable": "max_num_seqs", "values": [2, 8], "repeats": "auto", "workload": "equal",
                "num_requests": 5, "settings": {"block_size": 32}},
    "claim": {"claim": "C10", "options": {"repeats": 3, "num_requests": "6", "settings": {"threads": 1}}},
    "claims": {"quick": True, "options": {"settings": {"threads": 1}}},
    "eval": {"vary": ["kv_dtype", ["int8", "int4"]], "settings": {"threads": 1}, "limit": 5, "seed": 2,
             "slices": ["arithmetic"], "speed": True},
    "speculation": {"forms": ["ngram"], "tasks": ["copy"], "prompts": 2, "max_tokens": 48, "repeats": 2,
                    "batches": [1, 4], "constructed": False, "seed": 4, "settings": {"threads": 1}},
    "sweep": {"over": "concurrency", "values": [1, 2, 4, 8], "workload": "equal", "max_tokens_cap": 8, "repeats": 2,
              "slo": "itl_p95=0.02", "demand_rps": 50.0, "headroom": 0.2,
              "settings": {"max_num_seqs": 16, "prefix_cache": "off"}},
    "factorial": {"factors": [["seed", [0, 1]], ["block_size", [16, 32]]], "repeats": 2, "workload": "equal",
                  "num_requests": 2, "max_tokens_cap": 4},
    "plan": {"model": "llama-3.2-1b", "gpus": ["h100-sxm"], "rate_rps": 40, "input_tokens": 256, "output_tokens": 48,
             "slo": "ttft_p95=0.3,tpot_p95=0.02", "prices": {"h100-sxm": 2.0}, "tps": [1], "pps": [1], "seqs": [64],
             "batched": [2048], "weights": ["bf16"], "kv_dtypes": ["bf16"], "disaggregation": False, "headroom": 0.3,
             "seed": 5},
    "jitter": {"arms": [["whole prompts", {"chunked_prefill": "off"}], ["chunked", {"chunked_prefill": "on"}]],
               "workload": "equal", "num_requests": 4, "max_tokens_cap": 6, "repeats": 2, "seed": 6},
    "levers": {"levers": [["prefix_cache", "on"], ["concurrency", 4]], "num_requests": 8, "concurrency": 8,
               "max_tokens_cap": 6, "repeats": 2, "seed": 7, "price_per_device_hour": 2.5, "slo": "ttft_p95=9",
               "settings": {"threads": 1}},
    "calibrate": {"what": "ceilings", "threads": 1},
    "profile": {"step": "decode:2x256", "vary": ["fused_ops", ["off", "on"]], "repeats": 6,
                "settings": {"threads": 1}},
}  # fmt: skip
MADE = {"bench": bench_result, "compare": comparison_result, "claim": _claim, "claims": _claims, "eval": _eval,
        "speculation": _speculation, "profile": _profile, "sweep": _sweep, "factorial": _factorial, "plan": _plan,
        "jitter": _jitter, "levers": _levers, "calibrate": _calibration}  # fmt: skip


@cache
def _made(kind: str) -> str:
    return json.dumps(MADE[kind]())


def result_of(kind: str) -> dict[str, Any]:
    """A result as that kind of run really has it, made once."""
    found: dict[str, Any] = json.loads(_made(kind))
    return found


def checked(kind: str) -> dict[str, Any]:
    return KINDS[kind].check(SPECS[kind])


def stored(store: Store, kind: str, result: dict[str, Any] | None = None, **fields: Any) -> str:
    run_id = store.create_run(kind, checked(kind), code=code_hash(), version="0.1+abc",
                              environment={"cpu": "a processor of ours"})  # fmt: skip
    store.update_run(run_id, state="done", result=result_of(kind) if result is None else result, **fields)
    if kind in ("bench", "compare"):
        for arm in range(2 if kind == "compare" else 1):
            store.add_record(run_id, arm, 1, run_record())
    return run_id
