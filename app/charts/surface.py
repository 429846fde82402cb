"""Context x concurrency: which sequences a device holds, as a heat map with a frontier for each KV precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from app.charts.common import boxes, data, exact, finish, label, px, tooltip, x_scale
from app.theme import HEAT, TOKENS

GIB = 2**30
CELL = 23
LEFT = 34
FOOT = 24
IN_FILL_FROM = {"light": 6, "dark": 3}  # from this colour of the ten on, text is written as inside a fill
DASHES = {16: [1, 0], 32: [1, 0], 8: [6, 3], 4: [2, 3], 2: [1, 4]}


def surface_chart(
    cells: Sequence[Mapping[str, Any]],
    lengths: Sequence[int],
    concurrencies: Sequence[int],
    frontiers: Sequence[Mapping[str, Any]],
    chosen: tuple[int, int],
    mode: str,
    words: Mapping[str, str],
) -> alt.LayerChart:
    """A cell a (length, concurrency): its KV in GiB where it fits, else the precision that would make it fit.

    A cell: seq_len, concurrency, kv_bytes, share (of the room for KV; None: no limit known), fits, and with, the name
    of a precision that fits (None: none does). A frontier: name, bits, is_chosen and `rows`, how many of the
    concurrencies fit at each length. chosen: (length, concurrency) of the marked cell. Words: seq_len, concurrency,
    kv_cache, verdict, cell_fits, cell_with with {name}, cell_never, none_fit.
    """
    t = TOKENS[mode]
    columns = {length: place for place, length in enumerate(lengths)}
    rows = {count: len(concurrencies) - 1 - place for place, count in enumerate(concurrencies)}
    grid = float(CELL * len(concurrencies))
    height = grid + FOOT
    x = alt.X("start:Q", axis=None, scale=x_scale(0, len(lengths), left=LEFT, right=2))
    placed = [_cell(cell, columns[cell["seq_len"]], rows[cell["concurrency"]], mode, words) for cell in cells]
    tips = tooltip(length=words["seq_len"], count=words["concurrency"], size=words["kv_cache"], said=words["verdict"])
    wide = f"(width - {LEFT}) / {len(lengths)} >= 31"
    layers = [
        boxes(placed, height, x, stroke=t["card"], strokeWidth=1.2).encode(tooltip=tips),
        label([{**cell, "start": cell["start"] + 0.5} for cell in placed if cell["text"]], height, x, align="center",
              fontSize=11).encode(tooltip=tips).transform_filter(wide),
        *(_frontier(item, len(concurrencies), t, height, x) for item in frontiers),
        *_none_fit(placed, len(lengths), t, height, x, words),
        *_chosen_mark(columns[chosen[0]], rows[chosen[1]], t, height, x),
        *_axes(columns, rows, chosen, grid, t, height, x),
    ]  # fmt: skip
    return finish(layers, mode, height)


def _cell(cell: Mapping[str, Any], column: int, row: int, mode: str, words: Mapping[str, str]) -> dict[str, Any]:
    t, size = TOKENS[mode], cell["kv_bytes"] / GIB
    shade = min(9, int(10 * cell["share"])) if cell["share"] is not None else 4
    if cell["fits"]:
        fill, text, said = HEAT[mode][shade], _gib(size), words["cell_fits"]
        colour = t["in_fill"] if shade >= IN_FILL_FROM[mode] else t["text"]
    else:
        name = cell["with"]
        fill, text, colour = t["bg2"], name or "", t["muted"]
        said = words["cell_with"].format(name=name) if name else words["cell_never"]
    return {
        "start": column,
        "end": column + 1,
        "top": CELL * row,
        "bottom": CELL * (row + 1),
        "y": CELL * (row + 0.5),
        "fill": fill,
        "colour": colour,
        "text": text,
        "length": f"{cell['seq_len']:,}",
        "count": f"{cell['concurrency']:,}",
        "size": f"{exact(round(size, 4), 'GiB')}",
        "said": said,
    }


def _frontier(item: Mapping[str, Any], rows: int, t: Mapping[str, str], height: float, x: alt.X) -> alt.Chart:
    """Steps on cell edges: below and left of the line it fits."""
    points = []
    for column, fitting in enumerate(item["rows"]):
        y = CELL * (rows - fitting)
        points += [{"start": column, "y": y}, {"start": column + 1, "y": y}]
    points.append({"start": len(item["rows"]), "y": CELL * rows})
    placed = [{**point, "order": order} for order, point in enumerate(points)]
    width = 2.4 if item["is_chosen"] else 1.6
    line = alt.Chart(data(placed)).mark_line(
        strokeWidth=width, strokeDash=DASHES[item["bits"]], color=t["text"], strokeCap="butt", tooltip=None
    )
    return line.encode(x=x, y=px("y", height), order=alt.Order("order:Q"))


def _none_fit(
    placed: Sequence[Mapping[str, Any]],
    columns: int,
    t: Mapping[str, str],
    height: float,
    x: alt.X,
    words: Mapping[str, str],
) -> list[alt.Chart]:
    """A note in the upper right corner, where that is empty: no precision fits there."""
    corner = [cell for cell in placed if cell["start"] >= columns - 7 and cell["top"] < 3 * CELL]
    if not corner or any(cell["said"] != words["cell_never"] for cell in corner):
        return []
    note = [{"start": columns - 3.5, "y": 1.5 * CELL, "text": words["none_fit"]}]
    return [label(note, height, x, colour=t["muted"], align="center", fontSize=12.5)]


def _chosen_mark(column: int, row: int, t: Mapping[str, str], height: float, x: alt.X) -> list[alt.Chart]:
    """A white line inside a dark one, so that it shows on every colour."""
    place = [{"start": column, "end": column + 1, "top": CELL * row, "bottom": CELL * (row + 1)}]
    inset = {"xOffset": 1.5, "yOffset": 1.5, "x2Offset": -1.5, "y2Offset": -1.5}
    inside = boxes([{**place[0], "fill": t["in_fill"]}], height, x, filled=False, strokeWidth=2, tooltip=None, **inset)
    outside = boxes([{**place[0], "fill": t["text"]}], height, x, filled=False, strokeWidth=1.6, tooltip=None)
    return [inside, outside]


def _axes(
    columns: Mapping[int, int],
    rows: Mapping[int, int],
    chosen: tuple[int, int],
    grid: float,
    t: Mapping[str, str],
    height: float,
    x: alt.X,
) -> list[alt.Chart]:
    across = [
        {
            "start": place + 0.5,
            "y": grid + 11,
            "text": tokens_text(length),
            "colour": t["text"] if length == chosen[0] else t["muted"],
            "place": place,
        }
        for length, place in columns.items()
    ]
    up = [
        {"y": CELL * (row + 0.5), "text": f"{count:,}", "colour": t["text"] if count == chosen[1] else t["muted"]}
        for count, row in rows.items()
    ]
    near = columns[chosen[0]]
    roomy = f"(width - {LEFT}) / {len(columns)} >= 30"
    # Where labels would touch, every third one from the chosen one on.
    sparse = f"{roomy} || abs(datum.place - {near}) % 3 == 0"
    return [
        label(across, height, x, align="center", fontSize=11.5).transform_filter(sparse),
        label(up, height, alt.value(LEFT - 7), align="right", fontSize=11.5),
    ]


def _gib(size: float) -> str:
    """Two decimals below 10, then one, then none: what a cell has room for."""
    return f"{size:,.{2 if size < 9.995 else 1 if size < 99.95 else 0}f}"


def tokens_text(tokens: int) -> str:
    """A length as engineers write it: 4k for 4,096, 1.5k for 1,536; what is no multiple of 512 in full."""
    if tokens < 1024 or tokens % 512:
        return f"{tokens:,}"
    return f"{tokens // 1024:,}k" if tokens % 1024 == 0 else f"{tokens / 1024:,.1f}k"
