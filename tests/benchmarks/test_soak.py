"""The soak: what counts as growth, and a short one that must find nothing wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from soak import verdict
from soak_readings import LIMITS, growth, slope_per_minute

from tests.core_engine.conftest import make_llama
from tests.resilience.helpers import ROOT


def readings(per_minute: float, minutes: float = 20.0, spike: float = 0.0) -> list[dict[str, float]]:
    """One reading every 10 s; everything grows alike, after a warm-up that grows much faster."""
    found = []
    for number in range(int(6 * minutes)):
        t_s = 10.0 * number
        value = 100 + per_minute * t_s / 60 + min(t_s, 120) + (spike if number % 9 == 0 else 0)
        found.append({"t_s": t_s, **dict.fromkeys(LIMITS, value)})
    return found


def test_a_slope_is_the_growth_and_not_its_spikes() -> None:
    assert slope_per_minute([(0, 1.0), (60, 3.0), (120, 5.0)]) == pytest.approx(2.0)
    later = [(one["t_s"], one["children"]) for one in readings(0.0, spike=500.0) if one["t_s"] >= 120]
    assert slope_per_minute(later) == 0
    assert slope_per_minute([]) == slope_per_minute([(1, 5.0)]) == slope_per_minute([(1, 5.0), (1, 9.0)]) == 0


def test_growth_behind_the_warm_up_is_judged_by_its_limit() -> None:
    steady, leaking = growth(readings(0.0)), growth(readings(2.0))
    assert steady["judged"] and all(row["holds"] for row in steady["rows"].values())
    assert not any(row["holds"] for row in leaking["rows"].values())
    assert leaking["rows"]["server_rss_mib"]["per_minute"] == pytest.approx(2.0)


def test_a_short_run_judges_no_growth() -> None:
    short = growth(readings(50.0, minutes=3.0))
    assert not short["judged"] and {row["holds"] for row in short["rows"].values()} == {None}
    assert not growth([])["judged"]


FINE: dict[str, Any] = {
    "growth": {"judged": True, "rows": {"children": {"per_minute": 0.0, "limit": 1.0, "holds": True}}},
    "ended": {"bench done": 3, "bench failed: killed by the soak": 1}, "refused": {"workload: 'x' is not accepted": 2},
    "requests": {"stream 200": 4, "whole 429": 1}, "stuck": [], "left": {"processes": [], "segments": []},
    "store": {"integrity": "ok", "unreadable": []}, "server_exit_code": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"growth": {"judged": True, "rows": {"x": {"per_minute": 2, "limit": 1, "holds": False}}}}, "x grows by 2"),
        ({"ended": {"bench failed: a fault of ours: KeyError": 2}}, "2 x bench failed: a fault of ours"),
        ({"ended": {"bench failed: the engine process ended (SIGSEGV)": 1}}, "which nobody killed"),
        ({"requests": {"lost: stream OSError": 1}}, "lost: stream"),
        ({"requests": {"whole 500": 1}}, "1 requests: whole 500"),
        ({"stuck": ["ab12"]}, "run ab12 did not end"),
        ({"left": {"processes": [7], "segments": []}}, "process 7 is left"),
        ({"left": {"processes": [], "segments": ["psm_1"]}}, "shared memory psm_1 is left"),
        ({"store": {"integrity": "row 1 missing", "unreadable": []}}, "row 1 missing"),
        ({"store": {"integrity": "ok", "unreadable": ["record of run x"]}}, "record of run x"),
        ({"server_exit_code": -11}, "the server ended with -11"),
    ],
)
def test_each_thing_that_may_be_wrong_is_in_the_verdict(change: dict[str, Any], said: str) -> None:
    assert verdict(FINE) == {"ok": True, "wrong": [], "growth_judged": True}
    (line,) = verdict({**FINE, **change})["wrong"]
    assert said in line


@pytest.mark.slow
def test_a_short_soak_finds_nothing_wrong(tmp_path: Path) -> None:
    make_llama(tmp_path / "model", max_position_embeddings=2048)
    out = tmp_path / "soak.json"
    command = [sys.executable, "benchmarks/soak.py", "--minutes", "1", "--model", str(tmp_path / "model")]
    ended = subprocess.run(
        [*command, "--out", str(out)], cwd=ROOT, capture_output=True, text=True, timeout=600,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads(out.read_text())
    assert found["verdict"] == {"ok": True, "wrong": [], "growth_judged": False}
    assert len(found["readings"]) > 20 and sum(found["ended"].values()) > 3 and sum(found["requests"].values()) > 10
