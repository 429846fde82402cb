"""The charts compile to valid Vega-Lite, hold the right numbers, and stand missing values and empty intervals."""

from __future__ import annotations

import ast
import math
import tomllib
from pathlib import Path
from typing import Any

import altair as alt
import pytest

from app import charts
from app.charts.common import exact, number, percent, ticks
from app.theme import TOKENS
from tests.app.chart_rows import rows, texts

ROOT = Path(__file__).resolve().parents[2]
MIB = 2**20
WORDS = {key: f"<{key}>" for key in charts.WORD_KEYS}
WORDS |= {
    "by_arrival": "{n} by arrival",
    "first_n": "first {n} of {total}",
    "blocks_per_cell": "{n} a cell",
    "repeat": "repeat {n}",
    "now": "{name}, now",
    "finished": "{name}, finished",
    "rate_unit": "tokens/s",
}
NAMES = ("static", "continuous")


def curve(**changes: Any) -> dict[str, Any]:
    """A curve of the compare JSON, +107 % [96, 117]."""
    usual = {
        "baseline": 210.0,
        "candidate": 434.7,
        "baseline_ci95": [180.0, 236.0],
        "candidate_ci95": [424.0, 450.0],
        "change_pct": 107.0,
        "ci95": [96.0, 117.0],
        "noise_floor_pct": 3.0,
        "provenance": "measured",
        "pairs": 5,
    }
    return {**usual, **changes}


UNKNOWN = curve(
    baseline=None,
    candidate=None,
    baseline_ci95=None,
    candidate_ci95=None,
    change_pct=None,
    ci95=None,
    noise_floor_pct=None,
)
ONE_PAIR = curve(baseline_ci95=None, candidate_ci95=None, ci95=None)
NO_CHANGE = curve(
    baseline=40.0, candidate=40.0, baseline_ci95=[40, 40], candidate_ci95=[40, 40], change_pct=0.0, ci95=[0, 0]
)


def live(**changes: Any) -> dict[str, Any]:
    usual = {
        "phase": "running",
        "repeat": 3,
        "arm": 1,
        "repeats": 5,
        "fraction": 5.25 / 11,
        "repeats_so_far": [
            {"repeat": 1, "values": [203.0, 423.0]},
            {"repeat": 2, "values": [227.0, 439.0]},
            {"repeat": 3, "values": [204.0, None]},
        ],
    }
    return {**usual, **changes}


def blocks(total: int) -> dict[str, Any]:
    owners = [(-1, 0, 1, 2)[index % 4] for index in range(total)]
    fill = [(0, 16, 5, 0)[index % 4] for index in range(total)]
    return {"total": total, "used": 0, "free": 0, "block_size": 16, "owners": owners, "fill": fill}


def ledger_row(name: str, used: int | None) -> dict[str, Any]:
    sizes = {"other": 200, "weights": 257, "kv_used": used, "kv_free": 50, "activations": None}
    segments = [{"account": name, "bytes": None if size is None else size * MIB} for name, size in sizes.items()]
    return {
        "name": name,
        "is_candidate": name == "continuous",
        "segments": segments,
        "predicted_boundaries": [257 * MIB, None],
    }


def arm(name: str, requests: int, last: float | None = 9.5) -> dict[str, Any]:
    segments = []
    for row in range(requests):
        for kind, start in (("queue", 0.0), ("prefill", 1.0), ("decode", 1.25), ("held", 4.0)):
            segments.append({"request": f"r{row}", "row": row, "kind": kind, "start_s": start, "end_s": start + 0.25})
    return {"name": name, "segments": segments, "last_token_s": last}


def series(*rates: float | None) -> dict[str, Any]:
    return {"t_s": [0.5 * index for index in range(len(rates))], "output_tokens_per_s": list(rates)}


# -- the curve card ----------------------------------------------------------------------------------------------------


def test_card_bars_start_at_zero_and_end_at_the_value() -> None:
    chart = charts.curve_card(curve(), NAMES, "light", WORDS)
    parts = rows(chart, "start", "end", "opacity", mark="rect")
    for index, name in enumerate(NAMES):
        own = [part for part in parts if part["name"] == name]
        assert own[0]["start"] == 0
        assert own[1]["end"] == pytest.approx((210.0, 434.7)[index])
        assert own[-1]["end"] == (236.0, 450.0)[index]
    assert {tuple(row[key] for key in ("start", "end")) for row in rows(chart, "end", mark="rule")} == {
        (180.0, 236.0),
        (424.0, 450.0),
    }
    domain = chart.to_dict()["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert domain[0] == 0 and domain[1] >= 450


def test_card_scales_values_and_writes_units() -> None:
    chart = charts.curve_card(
        curve(baseline=0.0124, candidate=0.0343, baseline_ci95=[0.0120, 0.0130], candidate_ci95=None),
        NAMES,
        "dark",
        WORDS,
        scale=1000,
        unit="ms",
    )
    assert {"12.4 ms", "34.3 ms", *NAMES} <= set(texts(chart))
    assert rows(chart, "shown")[0]["ends"] == "[12, 13] ms"
    assert rows(chart, "shown")[0]["label"] == "<measured>"
    assert rows(chart, "shown")[0]["pairs"] == "5"
    money = charts.curve_card(curve(baseline=0.132), NAMES, "light", WORDS, unit="$")
    assert "$0.132" in texts(money)


# -- the strip of change -----------------------------------------------------------------------------------------------


def test_strip_holds_interval_and_floor_in_doublings() -> None:
    chart = charts.change_strip(curve(), "light", WORDS)
    floor, interval = rows(chart, "start", "end", mark="rect")
    assert (interval["start"], interval["end"]) == pytest.approx((math.log2(1.96), math.log2(2.17)))
    assert (floor["start"], floor["end"]) == pytest.approx((math.log2(0.97), math.log2(1.03)))
    assert chart.to_dict()["layer"][0]["encoding"]["x"]["scale"]["domain"] == [-4, 4]


@pytest.mark.parametrize(
    ("ends", "shapes", "bars"),
    [
        ([96, 117], [], 1),
        ([96, 5000], ["triangle-right"], 1),
        ([-99, 20], ["triangle-left"], 1),
        ([-100, 9999], ["triangle-left", "triangle-right"], 1),
        ([2000, 5000], ["triangle-right"], 0),
    ],
)
def test_strip_shows_an_arrow_where_the_interval_leaves_it(ends: list[float], shapes: list[str], bars: int) -> None:
    spec = charts.change_strip(curve(ci95=ends), "light", WORDS).to_dict()
    assert [layer["mark"]["shape"] for layer in spec["layer"] if "shape" in layer["mark"]] == shapes
    assert sum(layer["mark"]["type"] == "rect" for layer in spec["layer"]) == 1 + bars


def test_a_stack_keeps_each_chart_to_its_own_rows_and_scale() -> None:
    card, strip = charts.curve_card(curve(), NAMES, "light", WORDS), charts.change_strip(curve(), "light", WORDS)
    spec = charts.Stack((card, strip), gap=8).to_dict()
    alt.LayerChart.from_dict(spec)
    above, below = spec["layer"]
    assert len(above["layer"]) == len(card.layer) and len(below["layer"]) == len(strip.layer)
    ranges = [{tuple(one["encoding"]["y"]["scale"]["range"]) for one in group["layer"]} for group in (above, below)]
    assert ranges == [{(0, card.height)}, {(card.height + 8, card.height + 8 + strip.height)}]
    assert spec["height"] == card.height + 8 + strip.height
    assert spec["resolve"]["scale"] == {"x": "independent", "y": "independent"}


# -- guess, prediction, result -----------------------------------------------------------------------------------------


def test_guess_rows_appear_only_when_given() -> None:
    def names(*args: Any, **options: Any) -> list[str]:
        return [text for text in texts(charts.guess_chart(*args, "light", WORDS, **options)) if text.startswith("<")]

    assert names(50.0, curve()) == ["<your_guess>", "<result>"]
    assert names(None, curve()) == ["<result>"]
    assert names(50.0, curve(), predicted_pct=118.0) == ["<your_guess>", "<predicted>", "<result>"]


def test_guess_axis_includes_zero_and_all_values() -> None:
    for change, ends in ((107.0, [96.0, 117.0]), (-85.0, [-89.0, -81.0])):
        chart = charts.guess_chart(50.0, curve(change_pct=change, ci95=ends), "light", WORDS)
        low, high = chart.to_dict()["layer"][0]["encoding"]["x"]["scale"]["domain"]
        assert low <= min(0, *ends) and high >= max(50, *ends)
        assert rows(chart, "high", mark="rule")[-1]["high"] == ends[1]
        assert percent(change) in texts(chart)


@pytest.mark.parametrize("case", [UNKNOWN, ONE_PAIR, NO_CHANGE], ids=["unknown", "one pair", "no change"])
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_curves_without_values_or_width_still_draw(case: dict[str, Any], mode: str) -> None:
    card = charts.curve_card(case, NAMES, mode, WORDS)
    card.to_dict(validate=True)
    charts.change_strip(case, mode, WORDS).to_dict(validate=True)
    guess = charts.guess_chart(None, case, mode, WORDS)
    guess.to_dict(validate=True)
    if case is UNKNOWN:
        assert texts(card).count("–") == 2
        assert "–" in texts(guess)


# -- the ledger --------------------------------------------------------------------------------------------------------


def test_ledger_stacks_accounts_in_order_and_sums_them() -> None:
    chart = charts.ledger_chart([ledger_row("static", 10), ledger_row("continuous", 66)], "light", WORDS)
    bars = [row for row in rows(chart, "account", "start", mark="rect") if row["name"] == "static"]
    assert [row["account"] for row in bars[:4]] == ["weights", "kv_used", "kv_free", "other"]
    assert [(row["start"], row["end"]) for row in bars[:4]] == [(0, 257), (257, 267), (267, 317), (317, 517)]
    assert bars[0]["exact"] == f"257 MiB = {257 * MIB:,} B"
    assert {"517 MiB", "573 MiB", "static", "continuous"} <= set(texts(chart))
    assert [row["start"] for row in rows(chart, "foot", mark="tick")] == [257, 257]


def test_ledger_names_only_accounts_it_shows() -> None:
    spec = charts.ledger_chart([ledger_row("static", None)], "dark", WORDS).to_dict()
    domain = spec["layer"][0]["encoding"]["fill"]["scale"]["domain"]
    assert domain == ["<weights>", "<kv_free>", "<other>", "<boundary>"]
    charts.ledger_chart([], "light", WORDS).to_dict(validate=True)


# -- the timeline ------------------------------------------------------------------------------------------------------


def test_timeline_has_one_segment_each_and_both_arms_apart() -> None:
    chart = charts.timeline_chart([arm("static", 3), arm("continuous", 5, None)], "light", WORDS)
    assert len(rows(chart, "request", mark="rect")) == 2 * 8  # decode and prefill
    assert len(rows(chart, "request", mark="rule")) == 2 * 8  # queue and held
    height = chart.to_dict()["height"]
    lanes = {name: [row["y"] for row in rows(chart, "request") if row["arm"] == name] for name in NAMES}
    assert 0 < max(lanes["static"]) < min(lanes["continuous"]) and max(lanes["continuous"]) < height
    assert "<last_token> 9.50 s" in texts(chart)
    assert {"3 by arrival", "5 by arrival"} <= set(texts(chart))


def test_timeline_of_many_requests_says_that_it_shows_the_first() -> None:
    chart = charts.timeline_chart([arm("static", 60), arm("continuous", 48)], "light", WORDS)
    assert {"first 48 of 60", "48 by arrival"} <= set(texts(chart))
    assert len({row["request"] for row in rows(chart, "request") if row["arm"] == "static"}) == 48
    empty = {"name": "static", "segments": [], "last_token_s": None}
    charts.timeline_chart([empty, empty], "dark", WORDS).to_dict(validate=True)


# -- the block map -----------------------------------------------------------------------------------------------------


def test_block_map_has_a_cell_a_block_with_its_state_and_letter() -> None:
    chart = charts.block_map(blocks(273), "abc".__getitem__, "light", WORDS)
    cells = rows(chart, "kind", "start", mark="rect")[:273]
    kinds = ["block_free", "block_full", "block_filling", "block_reserved"]
    assert [cell["kind"] for cell in cells[:4]] == kinds
    assert [cell["letter"] for cell in cells[:4]] == ["", "a", "b", "c"]
    assert max(cell["start"] for cell in cells) == 38
    assert len(texts(chart)) == sum(cell["letter"] != "" for cell in cells)


def test_block_map_shows_cached_blocks_that_nobody_owns() -> None:
    made = {**blocks(8), "cached": [0, 4]}
    cells = rows(charts.block_map(made, "abc".__getitem__, "light", WORDS), "kind", "start", mark="rect")[:8]
    assert [cell["kind"] for cell in cells] == ["block_cached", "block_full", "block_filling", "block_reserved"] * 2


def test_block_map_drops_letters_then_groups() -> None:
    single = charts.block_map(blocks(2000), "abc".__getitem__, "light", WORDS)
    assert len(rows(single, "fill", mark="rect")) == len(rows(single, "stroke", mark="rect")) == 2000
    assert not texts(single)
    grouped = charts.block_map(blocks(7000), "abc".__getitem__, "light", WORDS)
    assert texts(grouped) == ["4 a cell"]
    cells = rows(grouped, "kind", mark="rect")[:1750]
    assert cells[0]["block"] == "0–3" and cells[0]["tokens"] == "21 / 64"
    charts.block_map(blocks(0), "abc".__getitem__, "dark", WORDS).to_dict(validate=True)


# -- the trace ---------------------------------------------------------------------------------------------------------


def cell(first: int, last: int, start: float, end: float, state: str = "running", number: int = 0) -> dict[str, Any]:
    request = None if state == "cached" else f"r{number:02d}"
    place = {"first": first, "last": last, "start_s": start, "end_s": end}
    return {**place, "state": state, "request": request, "number": -1 if state == "cached" else number}


def kinds(t_s: float, **sizes: float) -> dict[str, float]:
    names = ("used", "held", "internal", "reserved_ahead", "reserved_unused", "cached", "free", "external")
    return {"t_s": t_s, **dict.fromkeys(names, 0.0), **{name: size * MIB for name, size in sizes.items()}}


def test_block_timeline_has_a_rectangle_a_cell_paler_when_held_and_names_whose_it_is() -> None:
    cells = [cell(0, 9, 0, 5), cell(10, 19, 0, 5, "held", 1), cell(20, 20, 2, 5, "cached")]
    chart = charts.block_timeline(cells, 40, 8.0, "light", WORDS)
    drawn = rows(chart, "low", "high", mark="rect")
    assert [(row["low"], row["high"], row["opacity"]) for row in drawn] == [(0, 10, 1), (10, 20, 0.4), (20, 21, 1)]
    assert len({row["fill"] for row in drawn}) == 3
    assert [row["block"] for row in drawn] == ["0–9", "10–19", "20"]
    spec = chart.to_dict()
    assert spec["layer"][1]["encoding"]["y"]["scale"]["domain"] == [0, 40]
    assert (
        "y" in spec["layer"][0]["encoding"] and "value" in spec["layer"][0]["encoding"]["y"]
    )  # leaves y to the blocks


def test_block_timeline_names_only_states_it_is_told_and_draws_nothing_too() -> None:
    chart = charts.block_timeline([], 40, 8.0, "dark", WORDS, states={"running"})
    entries = chart.to_dict()["layer"][0]["encoding"]["fill"]["scale"]["domain"]
    assert entries == ["<running_cell>", "<free_cell>"]


def test_kinds_are_stacked_in_mib_and_the_free_part_in_pieces_lies_above_its_line() -> None:
    series = [kinds(0.5, used=10, internal=2, free=52), kinds(1.5, used=20, reserved_unused=12, free=32, external=8)]
    chart = charts.kinds_chart(series, 64 * MIB, 2.0, "light", WORDS)
    areas = rows(chart, "high", "low", "t", mark="area")
    assert [(row["low"], row["high"]) for row in areas[:2]] == [(0, 10), (0, 20)]
    assert (12.0, 12.0) in [(row["low"], row["high"]) for row in areas]  # nothing reserved at first
    assert [row["low"] for row in rows(chart, "low", mark="line")] == [64, 56]
    (tip, _) = rows(chart, "text_used", mark="rule")
    assert (tip["text_used"], tip["text_external"]) == ("10 MiB", "0 MiB")


def test_kinds_legend_names_what_is_there_or_what_it_is_told() -> None:
    series = [kinds(0.5, used=10, free=54)]
    own = charts.kinds_chart(series, 64 * MIB, 1.0, "dark", WORDS).to_dict()
    told = charts.kinds_chart(series, 64 * MIB, 1.0, "dark", WORDS, {"used", "cached", "free", "external"}).to_dict()
    entries = [spec["layer"][0]["encoding"]["fill"]["scale"]["domain"] for spec in (own, told)]
    assert entries == [
        ["<kind_used>", "<kind_free>"],
        ["<kind_used>", "<kind_cached>", "<kind_free>", "<kind_external>"],
    ]


def latency(row: int, **parts: float) -> dict[str, Any]:
    names = ("queue_s", "prefill_s", "decode_s", "overhead_s", "stalled_s", "unexplained_s")
    found = {**dict.fromkeys(names, 0.0), **parts}
    return {"request": f"r{row:02d}", "row": row, "e2e_s": sum(found.values()), **found}


def test_waterfall_bars_end_at_the_latency_and_leave_out_parts_of_nothing() -> None:
    made = [latency(0, queue_s=1, prefill_s=0.5, decode_s=2), latency(1, decode_s=4, unexplained_s=0.25)]
    chart = charts.waterfall_chart(made, 4.25, "light", WORDS)
    bars = rows(chart, "part", mark="rect")
    assert [(bar["part"], bar["start"], bar["end"]) for bar in bars] == [
        ("queue_s", 0, 1), ("prefill_s", 1, 1.5), ("decode_s", 1.5, 3.5),
        ("decode_s", 0, 4), ("unexplained_s", 4, 4.25),
    ]  # fmt: skip
    assert "2 by arrival" in texts(chart)


def test_waterfall_of_many_requests_says_that_it_shows_the_first_and_of_none_draws_axes() -> None:
    chart = charts.waterfall_chart([latency(row, decode_s=1) for row in range(60)], 1.0, "dark", WORDS)
    assert "first 48 of 60" in texts(chart)
    assert len(rows(chart, "part", mark="rect")) == 48
    charts.waterfall_chart([], 1.0, "light", WORDS).to_dict(validate=True)


# -- what runs ---------------------------------------------------------------------------------------------------------


def test_progress_fills_what_is_done() -> None:
    chart = charts.progress_chart(live(), NAMES, "light", WORDS)
    parts = rows(chart, "done", mark="rect")[:10]
    assert [part["done"] for part in parts] == pytest.approx([1, 1, 1, 1, 1, 0.25, 0, 0, 0, 0])
    assert parts[0]["shown"] == "203 tokens/s"
    assert set(texts(chart)) == {"repeat 1", "2", "repeat 3", "4", "5"}


@pytest.mark.parametrize(("phase", "done"), [("loading", 0), ("warmup", 0), ("quality", 1), ("done", 1)])
def test_progress_before_and_after_the_runs(phase: str, done: int) -> None:
    state = live(phase=phase, arm=0, repeat=1, repeats=2, fraction=0.0, repeats_so_far=[])
    chart = charts.progress_chart(state, NAMES, "dark", WORDS)
    assert [part["done"] for part in rows(chart, "done", mark="rect")[:4]] == [done] * 4


def test_rate_skips_unknown_points_and_names_both_lines() -> None:
    chart = charts.rate_chart(series(None, 300.0, 500.0), series(200.0, 100.0), NAMES[::-1], True, "light", WORDS)
    assert [row["rate"] for row in rows(chart, "rate", mark="line")] == [200, 100, 300, 500]
    assert set(texts(chart)) == {"continuous, now", "static, finished"}
    assert chart.to_dict()["layer"][0]["encoding"]["y"]["scale"]["domain"][0] == 0
    charts.rate_chart(series(), None, NAMES, False, "dark", WORDS).to_dict(validate=True)


@pytest.mark.parametrize("values", [[], [0, 0], [5], [None, 1.5, 3.0]])
def test_spark_takes_any_values(values: list[float | None]) -> None:
    chart = charts.spark(values, "light")
    known = [value for value in values if value is not None]
    assert [row["y"] for row in rows(chart, "y", mark="area")] == known
    assert [row["y"] for row in rows(chart, "y", mark="point")] == known[-1:]


# -- formats, words, theme ---------------------------------------------------------------------------------------------


def test_numbers() -> None:
    assert [number(v) for v in (433.2, 12345.6, 0.13249, 0, None, math.nan)] == [
        "433",
        "12,346",
        "0.132",
        "0",
        "–",
        "–",
    ]
    assert number(9.996) == "10.0"
    assert number(61.7, 3, "%") == "61.7 %"
    assert exact(-0.25, "s") == "−0.25 s"
    assert [percent(v) for v in (107.2, -0.31, 0.0, -0.04, None)] == ["+107 %", "−0.3 %", "0 %", "0 %", "–"]


def test_ticks_enclose_and_are_round() -> None:
    assert ticks(0, 589, 6) == [0, 100, 200, 300, 400, 500, 600]
    assert ticks(-89, 0, 4) == [-100, -75, -50, -25, 0]
    assert ticks(0, 0) == [0, 0.2, 0.4, 0.6, 0.8, 1]


def test_word_keys_are_exactly_those_the_charts_look_up() -> None:
    looked_up, text = set(), ""
    for path in sorted((ROOT / "app" / "charts").glob("*.py")):
        source = path.read_text("utf-8")
        text += source.replace("'", '"')
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.Subscript) or ast.unparse(node.value) != "words":
                continue
            if isinstance(node.slice, ast.Constant):
                looked_up.add(node.slice.value)
    assert looked_up <= set(charts.WORD_KEYS)
    of_the_curve = {"measured", "computed", "simulated"}
    assert [key for key in charts.WORD_KEYS if key not in of_the_curve and f'"{key}"' not in text] == []
    assert len(set(charts.WORD_KEYS)) == len(charts.WORD_KEYS)


def test_no_text_below_eleven_pixels() -> None:
    made = [
        charts.change_strip(curve(), "light", WORDS),
        charts.block_map(blocks(273), "abc".__getitem__, "light", WORDS),
        charts.timeline_chart([arm("static", 3), arm("continuous", 5)], "light", WORDS),
        charts.progress_chart(live(), NAMES, "light", WORDS),
        charts.block_timeline([cell(0, 9, 0, 5)], 40, 8.0, "light", WORDS),
        charts.waterfall_chart([latency(0, decode_s=1)], 1.0, "light", WORDS),
    ]
    for chart in made:
        spec = chart.to_dict()
        sizes = [layer["mark"].get("fontSize", 12.5) for layer in spec["layer"] if layer["mark"]["type"] == "text"]
        assert min(sizes) >= 11
        assert spec["autosize"] == {"type": "fit-x", "contains": "padding"}


def test_streamlit_theme_has_the_colours_of_the_charts() -> None:
    theme = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text("utf-8"))["theme"]
    for mode in ("light", "dark"):
        t, page = TOKENS[mode], theme[mode]
        assert page["primaryColor"] == t["primary"]
        assert page["backgroundColor"] == t["bg"]
        assert page["secondaryBackgroundColor"] == t["bg2"]
        assert page["textColor"] == t["text"]
        assert page["borderColor"] == t["border"]
        assert (page["greenTextColor"], page["greenBackgroundColor"]) == (t["better"], t["better_ground"])
        assert (page["orangeTextColor"], page["orangeBackgroundColor"]) == (t["worse"], t["worse_ground"])
        assert (page["violetTextColor"], page["violetBackgroundColor"]) == (t["simulated"], t["simulated_ground"])
        assert (page["grayTextColor"], page["grayBackgroundColor"]) == (t["muted"], t["bg2"])
        assert page["sidebar"]["backgroundColor"] == t["bg2"]
