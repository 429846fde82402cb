"""The points of a plane that no other point beats in both directions."""

from __future__ import annotations

from collections.abc import Sequence


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Places of the points that no other beats (at least as large in both numbers, larger in one), by the first."""
    order = sorted(range(len(points)), key=lambda place: (-points[place][0], -points[place][1]))
    found: list[int] = []
    for place in order:
        if not found or points[place][1] > points[found[-1]][1] or points[place] == points[found[-1]]:
            found.append(place)
    return found[::-1]
