"""What the tests of all charts read out of a chart."""

from __future__ import annotations

from typing import Any

import altair as alt


def rows(chart: alt.LayerChart, *fields: str, mark: str | None = None) -> list[dict[str, Any]]:
    """The inline rows of all layers (of one mark) that have every one of `fields`; validates the whole chart."""
    spec = chart.to_dict(validate=True)
    found = []
    for layer in spec["layer"]:
        values = layer["data"]["values"]
        if mark is None or layer["mark"]["type"] == mark:
            found += [row for row in values if all(field in row for field in fields)]
    return found


def texts(chart: alt.LayerChart) -> list[str]:
    return [row["text"] for row in rows(chart, "text", mark="text")]
