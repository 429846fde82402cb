"""Where each request's latency went: a bar a request, stacked by the parts that make it up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from app.charts.common import (
    Swatch,
    boxes,
    exact,
    finish,
    label,
    legend,
    number,
    text_px,
    tick_axis,
    ticks,
    tooltip,
    x_scale,
)
from app.theme import TOKENS

MOST_BARS = 48
# part -> fill token and word, in the order of the bar: first waiting, then the executor, then what is lost beside it.
PARTS = {
    "queue_s": ("other", "part_queue_s"),
    "prefill_s": ("cand_strong", "part_prefill_s"),
    "transfer_s": ("cached", "part_transfer_s"),
    "decode_s": ("cand", "part_decode_s"),
    "stalled_s": ("queue_base", "part_stalled_s"),
    "overhead_s": ("activations", "part_overhead_s"),
    "unexplained_s": ("text", "part_unexplained_s"),
}
HEAD = 22
NAME_PX = 11.5


def waterfall_chart(
    rows: Sequence[Mapping[str, Any]], end_s: float, mode: str, words: Mapping[str, str]
) -> alt.LayerChart:
    """A stacked bar a request, in order of arrival; more than 48: the first 48, which is said.

    A row: request, row, e2e_s and each of PARTS in s; transfer_s only where prefill and decode are apart. end_s ends
    the axis, so that two charts can share it. Words: part_queue_s, part_prefill_s, part_transfer_s, part_decode_s,
    part_stalled_s, part_overhead_s, part_unexplained_s, request, phase, duration, whole, by_arrival with {n},
    first_n with {n} and {total}.
    """
    t = TOKENS[mode]
    shown = list(rows)[:MOST_BARS]
    step = round(max(6.0, min(14.0, 260 / max(1, len(shown)))), 1)
    height = HEAD + step * max(1, len(shown)) + 4
    across = ticks(0, end_s, 6)
    room = max((text_px(row["request"], NAME_PX) for row in shown), default=0) + 8
    x = alt.X("start:Q", axis=tick_axis(across, "s"), scale=x_scale(0, across[-1], left=room))
    bars = [bar for row in shown for bar in _bars(row, step, t, words)]
    tips = tooltip(request=words["request"], phase=words["phase"], took=words["duration"], whole=words["whole"])
    note = words["by_arrival" if len(rows) <= MOST_BARS else "first_n"].format(n=len(shown), total=len(rows))
    names = [
        {"text": row["request"], "y": HEAD + step * (row["row"] + 0.5)} for row in shown if _named(row["row"], step)
    ]
    used = [part for part in PARTS if part == "unexplained_s" or any(row.get(part, 0) > 0 for row in rows)]
    swatches = [Swatch(words[word], t[token], t[token]) for token, word in (PARTS[part] for part in used)]
    layers = [
        legend(swatches, height),
        boxes(bars, height, x).encode(tooltip=tips),
        label(names, height, alt.value(0), colour=t["muted"], align="left", fontSize=NAME_PX),
        label([{"text": note, "y": 8}], height, alt.value(0), colour=t["muted"], align="left", fontSize=12),
    ]
    return finish(layers, mode, height)


def _named(row: int, step: float) -> bool:
    """Every row where names have room, else every so many."""
    every = 1 if step >= 12 else 2 if step >= 8 else 4
    return row % every == 0


def _bars(row: Mapping[str, Any], step: float, t: Mapping[str, str], words: Mapping[str, str]) -> list[dict[str, Any]]:
    placed, start = [], 0.0
    top = HEAD + step * row["row"] + 0.1 * step
    for part, (token, word) in PARTS.items():
        length = max(0.0, row.get(part, 0.0))
        placed.append(
            {
                "request": row["request"],
                "phase": words[word],
                "part": part,
                "took": exact(round(length, 6), "s"),
                "whole": number(row["e2e_s"], 4, "s"),
                "start": start,
                "end": start + length,
                "top": top,
                "bottom": top + 0.8 * step,
                "fill": t[token],
            }
        )
        start += length
    return [bar for bar in placed if bar["end"] > bar["start"]]
