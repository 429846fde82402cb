"""The charts of the calculator pages: valid, in the right places, readable where things do not fit or are missing."""

from __future__ import annotations

from typing import Any

import altair as alt
import pytest

from app import charts
from app.charts.roofline import SELECTION
from app.charts.surface import tokens_text
from app.theme import HEAT, TOKENS
from tests.app.chart_rows import rows, texts

GIB = 2**30
WORDS = {key: f"<{key}>" for key in charts.WORD_KEYS}
WORDS |= {
    "usable": "usable {value}",
    "capacity": "capacity {value}",
    "left": "{value} left",
    "over": "{value} over",
    "cell_with": "with {name}",
    "ridge": "ridge {value}",
    "crossover_at": "from {batch}",
}
MODES = ("light", "dark")


# -- the ledger bars ---------------------------------------------------------------------------------------------------


def bar(name: str, kv: float, left: float | None, chosen: bool = False) -> dict[str, Any]:
    sizes = {"weights": 15.0, "kv_cache": kv, "activations": 0.5, "other": 1.0, "state": 0.0}
    segments = [{"account": account, "bytes": round(size * GIB)} for account, size in sizes.items()]
    left_bytes = None if left is None else round(left * GIB)
    return {"name": name, "is_chosen": chosen, "segments": segments, "left_bytes": left_bytes}


@pytest.mark.parametrize("mode", MODES)
def test_accounts_are_stacked_without_gaps_and_end_at_the_total(mode: str) -> None:
    chart = charts.capacity_chart([bar("BF16", 4.0, 0.5, True)], 21 * GIB, 22 * GIB, mode, WORDS)
    placed = {row["account"]: (row["start"], row["end"]) for row in rows(chart, "account", "start", "end", mark="rect")}
    assert placed == {"weights": (0, 15), "kv_cache": (15, 19), "activations": (19, 19.5), "other": (19.5, 20.5)}


def test_what_is_left_and_what_is_too_much_are_said_in_words_as_well_as_in_colour() -> None:
    chart = charts.capacity_chart([bar("A", 4.0, 0.5, True), bar("B", 9.0, -4.5)], 21 * GIB, 22 * GIB, "light", WORDS)
    said = {row["text"]: row["colour"] for row in rows(chart, "text", "colour", mark="text")}
    assert said["0.50 left"] == TOKENS["light"]["better"] and said["4.50 over"] == TOKENS["light"]["worse"]
    assert said["A"] == TOKENS["light"]["cand"] and said["B"] == TOKENS["light"]["text"]


def test_the_limits_are_lines_at_their_bytes_and_the_axis_holds_the_longest_bar() -> None:
    chart = charts.capacity_chart([bar("A", 90.0, -85.5, True)], 21 * GIB, 22 * GIB, "light", WORDS)
    lines = {row["text"]: row["start"] for row in rows(chart, "start", "text", mark="rule")}
    assert lines == {"usable 21.00": 21.0, "capacity 22.00": 22.0}
    domain = chart.to_dict()["layer"][1]["encoding"]["x"]["scale"]["domain"]
    assert domain[1] == pytest.approx(106.5)


def test_without_a_capacity_there_are_no_lines_and_nothing_is_left_or_over() -> None:
    chart = charts.capacity_chart([bar("A", 4.0, None)], None, None, "light", WORDS)
    assert rows(chart, "start", mark="rule") == [] and "A" in texts(chart)
    assert not any(text.endswith(("left", "over")) for text in texts(chart))


# -- the surface -------------------------------------------------------------------------------------------------------

LENGTHS, COUNTS = (1024, 2048, 4096), (1, 2, 4)


def surface(mode: str = "light", room: float | None = 4.0, **changes: Any) -> alt.LayerChart:
    """KV of 0.5 GiB for 1,024 tokens; 4 GiB of room hold 8 units in BF16, 16 in INT4."""
    cells = []
    for length in LENGTHS:
        for count in COUNTS:
            size = 0.5 * length / 1024 * count
            name = "BF16" if size <= 4 else "INT4" if size <= 8 - 1e-9 else None
            share = None if room is None else size / room
            cells.append({"seq_len": length, "concurrency": count, "kv_bytes": int(size * GIB), "share": share,
                          "fits": size <= 4, "with": name})  # fmt: skip
    frontiers = [
        {"name": "BF16", "bits": 16, "is_chosen": True, "rows": [3, 3, 2]},
        {"name": "INT4", "bits": 4, "is_chosen": False, "rows": [3, 3, 2]},
    ]
    usual: dict[str, Any] = {"chosen": (2048, 2)}
    return charts.surface_chart(cells, LENGTHS, COUNTS, frontiers, (usual | changes)["chosen"], mode, WORDS)


@pytest.mark.parametrize("mode", MODES)
def test_a_cell_that_fits_shows_its_size_and_one_that_does_not_the_precision_that_would(mode: str) -> None:
    placed = {(row["length"], row["count"]): row for row in rows(surface(mode), "length", "count", "fill", mark="rect")}
    assert placed["1,024", "1"]["text"] == "0.50" and placed["1,024", "1"]["fill"] == HEAT[mode][1]
    assert placed["4,096", "2"]["text"] == "4.00" and placed["4,096", "2"]["fill"] == HEAT[mode][9]
    assert placed["4,096", "4"]["text"] == "" and placed["4,096", "4"]["said"] == "<cell_never>"


def test_more_sequences_lie_higher_and_longer_ones_further_right() -> None:
    placed = {(row["length"], row["count"]): row for row in rows(surface(), "length", "count", "top", mark="rect")}
    assert placed["1,024", "4"]["top"] < placed["1,024", "1"]["top"]
    assert placed["4,096", "1"]["start"] == 2 and placed["1,024", "1"]["start"] == 0


def test_the_frontier_runs_on_cell_edges_down_to_the_axis() -> None:
    line = sorted(rows(surface(), "order", mark="line")[:7], key=lambda row: row["order"])
    assert [row["start"] for row in line] == [0, 1, 1, 2, 2, 3, 3]
    tops = [row["y"] for row in line]
    assert tops[0] == 0 and tops[4] > tops[3] and tops[-1] == max(tops)


def test_the_chosen_cell_is_marked_twice_so_that_it_shows_on_every_colour() -> None:
    marks = [row for row in rows(surface(chosen=(4096, 1)), "start", "end", mark="rect") if "length" not in row]
    assert len(marks) == 2 and {(row["start"], row["end"]) for row in marks} == {(2, 3)}
    assert len({row["fill"] for row in marks}) == 2


def test_without_a_limit_the_surface_still_draws() -> None:
    placed = rows(surface(room=None), "length", "fill", mark="rect")
    assert {row["fill"] for row in placed if row["text"] not in ("", "INT4")} == {HEAT["light"][4]}


def test_lengths_are_written_as_engineers_do() -> None:
    assert [tokens_text(value) for value in (512, 1024, 1536, 1700, 131072)] == ["512", "1k", "1.5k", "1,700", "128k"]


# -- the roofline ------------------------------------------------------------------------------------------------------


def point(key: str, kind: str, intensity: float | None, phase: str = "decode", share: float = 0.5) -> dict[str, Any]:
    attained = None if intensity is None else min(intensity * 300e9, 120e12)
    return {"key": key, "name": key, "phase": phase, "kind": kind, "intensity": intensity, "share": share,
            "attained_flops_per_s": attained, "bound": "memory", "ridge": 400.0}  # fmt: skip


ROOF = {"name": "BF16 120", "flops_per_s": 120e12, "bandwidth_bytes_per_s": 300e9, "ridge": 400.0}


def roof(points: list[dict[str, Any]], chosen: str | None = None, mode: str = "light", **more: Any) -> alt.LayerChart:
    return charts.roofline_chart(points, [ROOF, *more.get("roofs", [])], chosen, mode, WORDS)


def test_the_roof_bends_at_the_ridge_and_marks_lie_on_it() -> None:
    chart = roof(
        [point("linear", "linear", 8.0), point("mixing", "attention", 4.0), point("mlp", "linear", 900, "prefill")]
    )
    bend = [row for row in rows(chart, "x", "y", mark="line") if row["x"] == 400.0]
    assert bend[0]["y"] == pytest.approx(120.0)
    marks = {row["key"]: (row["x"], row["y"]) for row in rows(chart, "key", mark="point")}
    assert marks["mixing"] == (4.0, pytest.approx(1.2)) and marks["mlp"] == (900, pytest.approx(120.0))


def test_a_click_chooses_by_the_key_of_an_operator() -> None:
    spec = roof([point("linear", "linear", 8.0)]).to_dict()
    (pick,) = [item for item in spec["params"] if item["name"] == SELECTION]
    assert pick["select"]["type"] == "point" and pick["select"]["fields"] == ["key"]


def test_the_chosen_operator_has_a_ring_and_one_without_arithmetic_no_mark() -> None:
    chart = roof([point("linear", "linear", 8.0), point("norms", "other", None)], chosen="linear")
    assert [row["key"] for row in rows(chart, "key", mark="point")] == ["linear"]
    rings = [row for row in rows(chart, "size", mark="point") if "key" not in row]
    assert [row["x"] for row in rings] == [8.0]


def test_a_second_number_format_is_a_second_flat_roof_only() -> None:
    faster = {**ROOF, "name": "FP8 240", "flops_per_s": 240e12, "ridge": 800.0}
    lines = rows(roof([point("linear", "linear", 8.0)], roofs=[faster]), "x", "y", mark="line")
    assert len(lines) == 3 + 2 and {round(row["y"]) for row in lines[3:]} == {240}


@pytest.mark.parametrize("mode", MODES)
def test_time_bars_come_longest_first_with_time_and_share(mode: str) -> None:
    taken = [{"name": name, "phase": "decode", "time_s": time_s, "share": share, "bound": "memory"}
             for name, time_s, share in (("short", 2e-6, 0.001), ("long", 2e-3, 0.999))]  # fmt: skip
    chart = charts.time_share_chart(taken, mode, WORDS)
    assert [row["name"] for row in rows(chart, "end", mark="rect")] == ["long", "short"]
    assert {"2.00 ms · 100 %", "2.00 µs · < 1 %"} <= set(texts(chart))


def test_the_crossover_is_marked_where_it_is_and_left_out_where_there_is_none() -> None:
    lines = [
        {"kind": "linear", "points": [{"batch": batch, "intensity": float(batch)} for batch in (1, 64, 1024)]},
        {"kind": "attention", "points": [{"batch": batch, "intensity": 4.0} for batch in (1, 64, 1024)]},
    ]
    assert "from 478" in texts(charts.crossover_chart(lines, 400.0, 478, "light", WORDS))
    without = texts(charts.crossover_chart(lines, 4000.0, None, "dark", WORDS))
    assert not any(text.startswith("from") for text in without) and "ridge 4,000" in without


# -- the levers --------------------------------------------------------------------------------------------------------


def test_a_lever_shows_its_cost_its_change_and_what_is_saved() -> None:
    made = [
        {"name": "as it is", "cost": 1000.0, "is_base": True, "change_pct": None, "how": "h"},
        {"name": "cache", "cost": 750.0, "is_base": False, "change_pct": -25.0, "how": "h"},
        {"name": "impossible", "cost": None, "is_base": False, "change_pct": None, "how": "h"},
    ]
    chart = charts.levers_chart(made, "light", WORDS)
    bars = [(row["name"], row["start"], row["end"]) for row in rows(chart, "start", "end", "fill", mark="rect")]
    assert bars == [("cache", 750.0, 1000.0), ("as it is", 0, 1000.0), ("cache", 0, 750.0)]
    assert {"1,000", "750.0 · −25 %", "–"} <= set(texts(chart))
