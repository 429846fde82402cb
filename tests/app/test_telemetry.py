"""The device beside latency on the trace page: small multiples, or one line why there are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import altair as alt
import pytest

from app.charts import telemetry_chart
from app.i18n import catalogue, translate
from experiments.telemetry_view import LATENCY, largest_gaps, telemetry_rows, telemetry_view
from experiments.trace_export import chrome_trace
from tests.app.alone import page_alone, texts
from tests.app.chart_rows import rows
from tests.app.conftest import Sample

STEPS = 40


def with_telemetry(record: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The record as one of a device; a field of None is one that the card does not report."""
    end_ns = max(step["commit_end_ns"] for step in record["steps"])
    t_ns = [round(end_ns * 1.02 * place / STEPS) - 1 for place in range(STEPS + 1)]
    samples: dict[str, Any] = {
        "energy_j": [300.0 * at / 1e9 for at in t_ns], "power_w": [300.0 for _ in t_ns],
        "memory_used_bytes": [2**34 for _ in t_ns], "gpu_utilisation_pct": [90 for _ in t_ns],
        "memory_utilisation_pct": [40 for _ in t_ns], "sm_clock_mhz": [1980 for _ in t_ns],
        "memory_clock_mhz": [3201 for _ in t_ns], "throttle_reasons": [4] * 10 + [1] * (STEPS - 9),
        "temperature_c": [50 for _ in t_ns], "pcie_rx_bytes_per_s": [10**7 for _ in t_ns],
        "pcie_tx_bytes_per_s": [10**6 for _ in t_ns],
    }  # fmt: skip
    ended = changes.pop("ended", None)
    samples |= changes
    telemetry = {
        "absent": None, "source": "NVML", "device": "NVIDIA Made-up", "interval_s": 0.1, "t_ns": t_ns,
        "samples": samples, "ended": ended,
        "missing": {name: "Not Supported" for name, values in samples.items() if values is None},
    }  # fmt: skip
    return {**record, "telemetry": telemetry}


@pytest.fixture(scope="module")
def record(sample: Sample) -> dict[str, Any]:
    return sample.store.record(sample.run_id, 0, 1)


def stored(sample: Sample, record: dict[str, Any]) -> str:
    run_id = sample.store.create_run("bench", {"workload": "mixed"})
    sample.store.add_record(run_id, 0, 1, record)
    sample.store.update_run(run_id, state="done", result={})
    return run_id


def test_a_view_has_latency_and_a_panel_for_each_group_of_readings(record: dict[str, Any]) -> None:
    view = telemetry_view(with_telemetry(record))
    assert [panel.name for panel in view.panels] == [
        LATENCY, "power", "utilisation", "memory", "clocks", "pcie", "temperature"
    ]  # fmt: skip
    assert view.panels[3].lines["memory_used_bytes"][0][1] == 16.0  # GiB
    assert set(view.held_down) == {"software_power_cap"} and view.held_share == pytest.approx(10 / 41)
    assert view.energy["mean_power_w"] == pytest.approx(300) and view.missing == ()


def test_what_a_card_does_not_report_has_no_panel_and_is_named(record: dict[str, Any]) -> None:
    view = telemetry_view(with_telemetry(record, power_w=None, energy_j=None, throttle_reasons=None))
    assert "power" not in [panel.name for panel in view.panels]
    assert view.missing == ("energy_j", "power_w", "throttle_reasons") and view.held_share is None
    assert view.energy["joules"] is None


def test_latency_is_the_largest_gap_of_a_slice() -> None:
    requests = [{"emissions": [[0, 1], [10_000_000, 1], [1_010_000_000, 1]]}, {"emissions": [[0, 1], [30_000_000, 1]]}]
    assert largest_gaps({"requests": requests}) == [(0.01, 10.0), (0.03, 30.0), (1.01, 1000.0)]
    assert largest_gaps({"requests": []}) == []


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_page_draws_them_on_the_runs_time_axis(
    home: Path, sample: Sample, record: dict[str, Any], lang: str
) -> None:
    run_id = stored(sample, with_telemetry(record, temperature_c=None))
    app, words = page_alone("trace", run=run_id, lang=lang), catalogue(lang)
    shown = texts(app)
    for key in ("tele.title", "tele.power", "tele.latency", "tele.clocks", "tele.nvml_energy_counter"):
        assert words[key] in shown, key
    assert "NVIDIA Made-up" in shown and words["tele.software_power_cap"] in shown
    assert translate(lang, "tele.missing", fields=words["tele.temperature_c"]) in shown
    sample.store.delete_run(run_id)


def test_readings_that_ended_early_are_told(home: Path, sample: Sample, record: dict[str, Any]) -> None:
    made = with_telemetry(record, ended="NVML: GPU is lost")
    telemetry = made["telemetry"]
    telemetry["t_ns"] = telemetry["t_ns"][:5]
    telemetry["samples"] = {name: values[:5] for name, values in telemetry["samples"].items()}
    run_id = stored(sample, made)
    shown = texts(page_alone("trace", run=run_id))
    assert "GPU is lost" in shown and "No energy" in shown
    sample.store.delete_run(run_id)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_on_a_cpu_there_is_one_line_and_no_chart(home: Path, sample: Sample, lang: str) -> None:
    shown = texts(page_alone("trace", run=sample.run_id, arm="0", lang=lang))
    assert translate(lang, "tele.absent_cpu") in shown and translate(lang, "tele.title") not in shown


def test_a_record_from_before_says_so(home: Path, sample: Sample, record: dict[str, Any]) -> None:
    run_id = stored(sample, {name: value for name, value in record.items() if name != "telemetry"})
    assert translate("en", "tele.absent_older") in texts(page_alone("trace", run=run_id))
    sample.store.delete_run(run_id)


def test_samples_are_rows_and_counters_of_the_chrome_trace(record: dict[str, Any]) -> None:
    made = with_telemetry(record, power_w=None)
    assert len(telemetry_rows(made)) == STEPS + 1 and telemetry_rows(made)[0]["power_w"] is None
    assert telemetry_rows(record) == []
    counters = {event["name"] for event in chrome_trace(made)["traceEvents"] if event["ph"] == "C"}
    assert "NVML temperature_c" in counters and "NVML power_w" not in counters
    assert not any("NVML" in event["name"] for event in chrome_trace(record)["traceEvents"])


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_chart_is_valid_and_interrupts_a_line_where_nothing_was_read(mode: str) -> None:
    words = {**catalogue("en"), **{k.removeprefix("chart."): v for k, v in catalogue("en").items()}}
    words |= {k.removeprefix("tele."): v for k, v in catalogue("en").items() if k.startswith("tele.")}
    lines = {"sm_clock_mhz": [(0.0, 1500.0), (0.1, None), (0.2, 1600.0)], "memory_clock_mhz": [(0.0, 3200.0)]}
    chart = telemetry_chart("clocks", lines, 1.0, mode, words, top=3300.0)
    values = [row["v"] for row in rows(chart, "t", "v", mark="line")]
    assert values == [1500.0, None, 1600.0, 3200.0]
    alt.LayerChart.from_dict(json.loads(json.dumps(chart.to_dict(validate=False))))
