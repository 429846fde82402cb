"""The memory charts: the ledger as one bar an arm, and the map of KV blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import altair as alt

from app.charts.common import (
    Swatch,
    arm_colour,
    boxes,
    data,
    exact,
    finish,
    label,
    legend,
    number,
    outlines,
    px,
    text_px,
    tick_axis,
    ticks,
    tooltip,
    x_scale,
)
from app.theme import TOKENS

MIB = 2**20
ACCOUNTS = ("weights", "kv_used", "kv_reserved", "kv_free", "activations", "other")
LEDGER_ROW = 64
BAR_TOP, BAR_HEIGHT = 20, 26

BLOCKS_A_ROW = 39
BLOCK_STEP = 16.5
SMALL_BLOCKS_A_ROW = 100
SMALL_BLOCK_STEP = 8.0
MOST_LETTERED = 1200
MOST_SINGLE = 5000
CELLS_GROUPED = 2000


def ledger_chart(rows: Sequence[Mapping[str, Any]], mode: str, words: Mapping[str, str]) -> alt.LayerChart:
    """One stacked bar a row, in MiB, with the predicted boundaries as ticks with a triangle below.

    A row: name, is_candidate, segments [{account, bytes}] and predicted_boundaries [bytes from 0]; a segment or
    boundary of None is left out. Words: weights, kv_used, kv_reserved, kv_free, activations, other, boundary, arm,
    account, memory.
    """
    t = TOKENS[mode]
    height = float(LEDGER_ROW * len(rows))
    segments = [segment for index, row in enumerate(rows) for segment in _segments(index, row, t, words)]
    totals = [_total(index, row) for index, row in enumerate(rows)]
    bounds = [bound for index, row in enumerate(rows) for bound in _boundaries(index, row, words)]
    furthest = max([1.0, *(row["mib"] for row in totals), *(row["start"] for row in bounds)])
    shown = ticks(0, furthest, 6)
    x = alt.X("start:Q", axis=tick_axis(shown, "MiB"), scale=x_scale(0, shown[-1]))
    used = [account for account in ACCOUNTS if any(segment["account"] == account for segment in segments)]
    swatches = [Swatch(words[account], *_paint(account, t)) for account in used]
    if bounds:
        swatches.append(Swatch(words["boundary"], t["text"], t["text"], "triangle-up"))
    tips = tooltip(name=words["arm"], title=words["account"], exact=words["memory"])
    layers = [
        legend(swatches, height),
        boxes(segments, height, x).encode(tooltip=tips),
        outlines(segments, height, x, tooltip=None),
        _inside_numbers(segments, shown[-1], height, x, tips),
        *_boundary_marks(bounds, t, height, x, tips),
        *_headings(rows, totals, mode, height),
    ]
    return finish(layers, mode, height)


def _paint(account: str, t: Mapping[str, str]) -> tuple[str, str]:
    """Fill and outline of an account; what is pale has an outline."""
    if account == "kv_reserved":
        return t["kv_reserved"], t["kv_used"]
    if account == "kv_free":
        return t["card"], t["queue_base"]
    return t[account], t["base"] if account == "other" else t[account]


def _segments(
    index: int, row: Mapping[str, Any], t: Mapping[str, str], words: Mapping[str, str]
) -> list[dict[str, Any]]:
    start, placed = 0.0, []
    top = LEDGER_ROW * index + BAR_TOP
    known = {segment["account"]: segment["bytes"] for segment in row["segments"] if segment["bytes"]}
    for account in (account for account in ACCOUNTS if account in known):
        mib = known[account] / MIB
        fill, stroke = _paint(account, t)
        placed.append(
            {
                "name": row["name"],
                "account": account,
                "title": words[account],
                "start": start,
                "end": start + mib,
                "mib": mib,
                "text": number(mib),
                "exact": _exact_memory(known[account]),
                "top": top,
                "bottom": top + BAR_HEIGHT,
                "y": top + BAR_HEIGHT / 2,
                "fill": fill,
                "stroke": stroke,
                "colour": t["in_fill"] if account in ("weights", "kv_used", "activations") else t["text"],
            }
        )
        start += mib
    return placed


def _exact_memory(count: int) -> str:
    return f"{exact(round(count / MIB, 3), 'MiB')} = {count:,} B"


def _total(index: int, row: Mapping[str, Any]) -> dict[str, Any]:
    mib = sum(segment["bytes"] or 0 for segment in row["segments"]) / MIB
    return {"mib": mib, "text": number(mib, 3, "MiB"), "y": LEDGER_ROW * index + 9}


def _boundaries(index: int, row: Mapping[str, Any], words: Mapping[str, str]) -> list[dict[str, Any]]:
    top = LEDGER_ROW * index + BAR_TOP
    return [
        {
            "name": row["name"],
            "title": words["boundary"],
            "start": bound / MIB,
            "exact": _exact_memory(bound),
            "y": top + BAR_HEIGHT / 2,
            "foot": top + BAR_HEIGHT + 6,
        }
        for bound in row.get("predicted_boundaries") or ()
        if bound is not None
    ]


def _inside_numbers(
    segments: list[dict[str, Any]], furthest: float, height: float, x: alt.X, tips: list[alt.Tooltip]
) -> alt.Chart:
    """The numbers of segments that are at least 20 px wide and wide enough for them."""
    placed = [{**row, "start": (row["start"] + row["end"]) / 2, "need": text_px(row["text"]) + 2} for row in segments]
    wide = f"datum.mib / {furthest} * width >= max(20, datum.need)"
    chart = label(placed, height, x, align="center", fontWeight=600)
    return chart.encode(tooltip=tips).transform_filter(wide)


def _boundary_marks(
    bounds: list[dict[str, Any]], t: Mapping[str, str], height: float, x: alt.X, tips: list[alt.Tooltip]
) -> list[alt.Chart]:
    chart = alt.Chart(data(bounds))
    tick = chart.mark_tick(thickness=1.6, height=32, color=t["text"], opacity=1, orient="vertical")
    foot = chart.mark_point(shape="triangle-up", size=40, filled=True, color=t["text"], opacity=1)
    return [
        tick.encode(x=x, y=px("y", height), tooltip=tips),
        foot.encode(x=x, y=px("foot", height), tooltip=tips),
    ]


def _headings(
    rows: Sequence[Mapping[str, Any]], totals: list[dict[str, Any]], mode: str, height: float
) -> list[alt.Chart]:
    """The arm's name at the left and its total at the right, above its bar."""
    names = [
        {"text": row["name"], "y": total["y"], "colour": arm_colour(mode, row["is_candidate"], "text")}
        for row, total in zip(rows, totals, strict=True)
    ]
    reserve = max((text_px(total["text"]) for total in totals), default=0) + 10
    limit = alt.ExprRef(f"width - {reserve:.0f}")
    return [
        label(names, height, alt.value(0), align="left", fontWeight=600, limit=limit),
        label(
            totals,
            height,
            alt.value(alt.ExprRef("width")),
            colour=TOKENS[mode]["text"],
            align="right",
            fontWeight=600,
        ),
    ]


def block_map(
    blocks: Mapping[str, Any], letters: Callable[[int], str], mode: str, words: Mapping[str, str]
) -> alt.LayerChart:
    """One cell a KV block with the letter of the request that owns it; 39 a row, narrower where the page is.

    Above 1,200 blocks the cells are small and have no letters; above 5,000 a cell stands for several blocks and a line
    says so. Words: block_full, block_filling, block_reserved, block_cached, block_free, block, owner, tokens, state,
    blocks_per_cell with {n}.
    """
    t = TOKENS[mode]
    group = math.ceil(blocks["total"] / CELLS_GROUPED) if blocks["total"] > MOST_SINGLE else 1
    lettered = blocks["total"] <= MOST_LETTERED
    cells = _cells(blocks, group, letters if lettered else None, words)
    columns, step = (BLOCKS_A_ROW, BLOCK_STEP) if lettered else (SMALL_BLOCKS_A_ROW, SMALL_BLOCK_STEP)
    note = 20 if group > 1 else 0
    for index, cell in enumerate(cells):
        cell["start"], top = index % columns, note + step * (index // columns)
        cell |= {"end": cell["start"] + 1, "top": top, "bottom": top + step, "y": top + step / 2}
        cell |= _block_paint(cell["kind"], t)
    height = note + step * max(1, math.ceil(len(cells) / columns))
    return finish(_block_layers(cells, columns, step, height, group, lettered, t, words), mode, height)


def _block_layers(
    cells: list[dict[str, Any]],
    columns: int,
    step: float,
    height: float,
    group: int,
    lettered: bool,
    t: Mapping[str, str],
    words: Mapping[str, str],
) -> list[alt.Chart]:
    gap = 1.2 if lettered else 0.5
    span = alt.Scale(domain=[0, columns], range=[0, alt.ExprRef(f"min(width, {columns * step})")], nice=False)
    x = alt.X("start:Q", axis=None, scale=span)
    tips = tooltip(block=words["block"], owner=words["owner"], tokens=words["tokens"], state=words["state"])
    kinds = ["block_full", "block_filling", "block_reserved", "block_cached", "block_free"]
    if all(cell["kind"] != "block_cached" for cell in cells):
        kinds.remove("block_cached")
    swatches = [Swatch(words[kind], *(_block_paint(kind, t)[key] for key in ("fill", "stroke"))) for kind in kinds]
    # Half the gap at each side; the outline is drawn inside it.
    inset = {"xOffset": gap, "yOffset": gap, "x2Offset": -gap, "y2Offset": -gap, "cornerRadius": 2.5 if lettered else 0}
    owned = [{**cell, "start": cell["start"] + 0.5, "text": cell["letter"]} for cell in cells if cell["letter"]]
    letter = label(owned, height, x, align="center", fontSize=11.5, fontWeight=600)
    note = [{"text": words["blocks_per_cell"].format(n=group), "y": 8}] if group > 1 else []
    return [
        legend(swatches, height),
        boxes(_without(cells, "y", "colour", "stroke"), height, x, **inset).encode(tooltip=tips),
        outlines(_only(cells, "start", "end", "top", "bottom", "stroke"), height, x, tooltip=None, **inset),
        letter.encode(tooltip=tips).transform_filter(f"width >= {columns * 11}"),
        label(note, height, alt.value(0), colour=t["muted"], align="left", fontSize=12),
    ]


def _only(cells: list[dict[str, Any]], *fields: str) -> list[dict[str, Any]]:
    return [{field: cell[field] for field in fields} for cell in cells]


def _without(cells: list[dict[str, Any]], *fields: str) -> list[dict[str, Any]]:
    """Of thousands of cells a browser is told what is drawn and nothing more."""
    return [{field: value for field, value in cell.items() if field not in fields} for cell in cells]


def _block_paint(kind: str, t: Mapping[str, str]) -> dict[str, str]:
    return {
        "block_full": {"fill": t["cand"], "stroke": t["cand"], "colour": t["in_fill"]},
        "block_filling": {"fill": t["kv_reserved"], "stroke": t["cand"], "colour": t["text"]},
        "block_reserved": {"fill": t["card"], "stroke": t["cand"], "colour": t["cand"]},
        "block_cached": {"fill": t["cached"], "stroke": t["cached"], "colour": t["in_fill"]},
        "block_free": {"fill": t["card"], "stroke": t["queue_base"], "colour": t["muted"]},
    }[kind]


def _cells(
    blocks: Mapping[str, Any], group: int, letters: Callable[[int], str] | None, words: Mapping[str, str]
) -> list[dict[str, Any]]:
    owners, fill, size = blocks["owners"], blocks["fill"], blocks["block_size"]
    cached = set(blocks.get("cached") or ())
    cells = []
    for first in range(0, len(owners), group):
        held = range(first, min(first + group, len(owners)))
        owned = [block for block in held if owners[block] >= 0]
        tokens = sum(fill[block] for block in owned)
        kind = _block_kind(len(owned), tokens, size * len(held), not cached.isdisjoint(held))
        names = sorted({owners[block] for block in owned})
        cells.append(
            {
                "block": str(first) if group == 1 else f"{held[0]}–{held[-1]}",
                "letter": letters(names[0]) if letters and names else "",
                "owner": _owner_text(names, letters),
                "tokens": f"{tokens:,} / {size * len(held):,}",
                "kind": kind,
                "state": words[kind],
            }
        )
    return cells


def _owner_text(names: list[int], letters: Callable[[int], str] | None) -> str:
    if not names:
        return "–"
    shown = [letters(name) if letters else f"#{name}" for name in names[:6]]
    return ", ".join(shown) + (" …" if len(names) > 6 else "")


def _block_kind(owned: int, tokens: int, room: int, cached: bool) -> str:
    if not owned:
        return "block_cached" if cached else "block_free"
    if not tokens:
        return "block_reserved"
    return "block_full" if tokens >= room else "block_filling"
