"""Colours and the chart configuration of the pages, for the light and the dark mode. `.streamlit/config.toml` repeats
the page's own colours, since Streamlit reads them from there only."""

from __future__ import annotations

from typing import Any

_TABLE = """
bg             #FFFFFF  #0F141B
bg2            #F6F7F9  #171D26
card           #FFFFFF  #121821
border         #E3E6EB  #29313D
border2        #C9CFD8  #3B4656
grid           #ECEEF2  #1F2732
text           #1A2230  #E6EAF0
muted          #566172  #9BA7B6
base           #7F8A9B  #7E8B9C
base_strong    #3F4A5A  #C3CBD6
cand           #2563C9  #6BA4FF
cand_strong    #143E86  #A9CBFF
cand_soft      #EDF3FD  #16243B
primary        #2563C9  #2F6FDB
queue_base     #8A94A4  #667385
queue_cand     #6592DC  #4B78BD
better         #0B7547  #4FC48B
better_ground  #E7F4EC  #12291F
worse          #A8480A  #E58A3C
worse_ground   #FCF0E6  #2E2115
simulated      #6B4FB3  #B8A2F0
simulated_ground #F2EEFB #231D38
weights        #45546B  #8695AB
kv_used        #2563C9  #6BA4FF
kv_reserved    #BCD1F4  #2C4F86
activations    #8F78C4  #A893DB
other          #C9CFD8  #465163
cached         #2C9C95  #2C857E
in_fill        #FFFFFF  #0F141B
"""
_ROWS = [line.split() for line in _TABLE.strip().splitlines()]

TOKENS: dict[str, dict[str, str]] = {
    "light": {name: light for name, light, _ in _ROWS},
    "dark": {name: dark for name, _, dark in _ROWS},
}
"""mode -> token -> colour. A `*_ground` is what its colour is written on; `in_fill` is text inside a filled mark."""

_TEN = "#EAF1FC #D3E2F8 #BAD1F3 #9CBDED #7BA5E4 #5A8CD9 #3D74CD #2563C9 #1C4FA5 #143E86"
_HEAT = _TEN.split()
HEAT: dict[str, list[str]] = {"light": _HEAT, "dark": _HEAT[::-1]}
"""mode -> the ten colours of a heat map, from little to much."""

REQUESTS: dict[str, list[str]] = {
    "light": ["#2563C9", "#A0527E", "#6592DC", "#7A7F2E", "#45546B", "#8F78C4", "#143E86", "#9A7B3A"],
    "dark": ["#6BA4FF", "#A9B16A", "#8695AB", "#CDB679", "#4B78BD", "#A893DB", "#A9CBFF", "#D08BB4"],
}
"""mode -> colours by which neighbouring requests are told apart, also by readers with a colour vision deficiency; they
come round again after eight. The second is also that of a third arm, beside `base` and `cand`."""

FONT = "Source Sans, Noto Sans SC, sans-serif"


def chart_config(mode: str) -> dict[str, Any]:
    """The Vega-Lite configuration of every chart, for `chart.configure(**chart_config(mode))`.

    Given per chart and not as a global Altair theme, which all sessions of the server would share.
    """
    t = TOKENS[mode]
    return {
        "background": "transparent",
        "font": FONT,
        "padding": {"left": 0, "top": 4, "right": 4, "bottom": 0},
        "view": {"stroke": None},
        "axis": {
            "labelFontSize": 12,
            "labelColor": t["muted"],
            "labelPadding": 6,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titleColor": t["muted"],
            "gridColor": t["grid"],
            "gridWidth": 1,
            "domain": False,
            "ticks": False,
            "tickCount": 5,
            "labelFlush": True,
            "labelOverlap": "greedy",
        },
        "axisY": {"grid": False},
        "title": {
            "anchor": "start",
            "fontSize": 15,
            "fontWeight": 600,
            "color": t["text"],
            "subtitleFontSize": 13,
            "subtitleColor": t["muted"],
            "offset": 10,
        },
        "legend": {
            "orient": "top",
            "direction": "horizontal",
            "labelFontSize": 13,
            "labelColor": t["muted"],
            "symbolType": "square",
            "symbolSize": 110,
            "columnPadding": 16,
            "offset": 8,
        },
        "bar": {"height": 10, "cornerRadiusEnd": 2},
        "line": {"strokeWidth": 2.2, "strokeCap": "round"},
        "rule": {"color": t["border2"], "strokeWidth": 1},
        "text": {"font": FONT, "fontSize": 12.5, "color": t["text"]},
        "range": {"category": [t["base"], t["cand"]]},
        "scale": {"bandPaddingInner": 0.35},
        "numberFormat": ",.3~g",
    }
