"""What is read from a run's result, by a path: `points[value=8].metrics.ttft_s.p95`, `arms[0].value`, `curves[*].name`.

A step of a path is a key, with `[N]` the Nth item of a list, `[KEY=VALUE]` the item whose KEY is VALUE, `[*]` the rest
of the path for every item. A null on the way makes the whole null; a key that is not there is an error of the lab.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ledger.errors import CannotRunError, InputError

_STEP = re.compile(r"(?P<key>[^.\[\]]+)(?P<chosen>(?:\[[^\]]+\])*)(?:\.|$)")
_ACCEPTED = "KEY.KEY[N].KEY[NAME=VALUE].KEY[*].KEY"


def check_path(path: str) -> None:
    """InputError for what is no path."""
    _steps(path)


def look_up(result: Mapping[str, Any], path: str) -> Any:
    """The value at a path of a run's result. CannotRunError, one line, when the result has no such place."""
    return _follow(result, _steps(path), path)


def _steps(path: str) -> list[str]:
    """Keys and bracketed choices one after another, the latter with their opening bracket."""
    steps: list[str] = []
    at = 0
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            raise InputError("path", path, _ACCEPTED)
        steps.append(found["key"])
        steps += [f"[{inner}" for inner in re.findall(r"\[([^\]]+)\]", found["chosen"])]
        at = found.end()
    if not steps:
        raise InputError("path", path, _ACCEPTED)
    return steps


def _follow(value: Any, steps: Sequence[str], path: str) -> Any:
    for place, step in enumerate(steps):
        if value is None:
            return None
        if step == "[*":
            return [_follow(item, steps[place + 1 :], path) for item in _items(value, path)]
        value = _one(value, step, path)
    return value


def _one(value: Any, step: str, path: str) -> Any:
    if not step.startswith("["):
        if not isinstance(value, Mapping) or step not in value:
            raise CannotRunError(f"the run's result has no {path} (at {step})")
        return value[step]
    key, equals, wanted = step[1:].partition("=")
    items = _items(value, path)
    if not equals:
        if not key.lstrip("-").isdigit() or not -len(items) <= int(key) < len(items):
            raise CannotRunError(f"the run's result has no {path} (at [{key}])")
        return items[int(key)]
    for item in items:
        if isinstance(item, Mapping) and str(item.get(key)) == wanted:
            return item
    raise CannotRunError(f"the run's result has no {path} (at [{key}={wanted}])")


def _items(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise CannotRunError(f"the run's result has no list in {path}")
    return list(value)
