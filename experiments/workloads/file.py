"""Workload files: TOML or YAML with the fields of WorkloadSpec, read once, with one-line errors.

requests = 64
prompt_tokens = { kind = "lognormal", median = 200, sigma = 0.8 }
output_tokens = { kind = "zipf", exponent = 1.1, low = 8, high = 512 }
max_tokens = 512                                   # the limit each request states; without it, its own length
text = "chat"                                      # TEXTS in spec.py
template = true                                    # through the model's chat template
arrivals = { kind = "gamma", rate = 4.0, cv = 2.0 }
prefixes = { groups = 8, tokens = 300, popularity = 1.0 }
sessions = { turns = { kind = "uniform", low = 1, high = 5 }, think_s = 2.0 }
closed = { clients = 8, think_s = { kind = "exponential", mean = 1.0 } }        # instead of arrivals
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.bounded import MOST_SETTINGS_BYTES, read_text
from experiments.workloads.arrivals import Burst, Think, parse_arrivals, parse_think
from experiments.workloads.fields import made, whole
from experiments.workloads.lengths import parse_lengths
from experiments.workloads.spec import MOST_REQUESTS, ClosedLoop, Prefixes, Sessions, WorkloadSpec
from ledger.errors import CannotRunError, InputError

SUFFIXES = (".toml", ".yaml", ".yml")
FIELDS = (
    "name", "description", "requests", "prompt_tokens", "output_tokens", "max_tokens", "text", "template", "arrivals",
    "prefixes", "sessions", "closed",
)  # fmt: skip


def read_workload_file(path: Path) -> WorkloadSpec:
    """The workload of a .toml, .yaml or .yml file. CannotRunError when it can't be read, InputError for its content."""
    return spec_of(_table(path), path)


def identity(path: Path) -> dict[str, str]:
    """Name and sha256 of a file, which say whether another run had the same."""
    try:
        with path.open("rb") as file:
            return {"file": path.name, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    except OSError as error:
        raise CannotRunError(f"workload: {path} can't be read ({error.strerror})") from None


def spec_of(table: Mapping[str, Any], path: Path) -> WorkloadSpec:
    """The workload of a table; files that it names are taken from the folder of `path`."""
    for name in table:
        if name not in FIELDS:
            raise InputError(f"workload.{name}", table[name], f"the fields {', '.join(FIELDS)}")
    for name in ("requests", "prompt_tokens", "output_tokens"):
        if name not in table:
            raise InputError(f"workload.{name}", "nothing", "a value: how many requests, and how long")
    if "arrivals" in table and "closed" in table:
        raise InputError("workload.closed", table["closed"], "either arrivals or closed, not both")
    template = table.get("template", False)
    if not isinstance(template, bool):
        raise InputError("workload.template", template, "true or false")
    fields = {
        "name": str(table.get("name", path.stem)),
        "description": str(table.get("description", "")),
        "num_requests": whole("workload.requests", table["requests"], 1, MOST_REQUESTS),
        "prompt_tokens": parse_lengths("workload.prompt_tokens", table["prompt_tokens"], path.parent),
        "output_tokens": parse_lengths("workload.output_tokens", table["output_tokens"], path.parent),
        "arrivals": parse_arrivals("workload.arrivals", table["arrivals"]) if "arrivals" in table else Burst(),
        "chat": template,
        "prefixes": made(Prefixes, "workload.prefixes", _mapping(table, "prefixes")) if "prefixes" in table else None,
        "sessions": _sessions(_mapping(table, "sessions"), path) if "sessions" in table else None,
        "closed": _closed(_mapping(table, "closed")) if "closed" in table else None,
    }
    return made(WorkloadSpec, "workload", {**fields, **{k: table[k] for k in ("max_tokens", "text") if k in table}})


def _sessions(table: Mapping[str, Any], path: Path) -> Sessions:
    _refuse_others("sessions", table, ("turns", "think_s"))
    turns = parse_lengths("workload.sessions.turns", table.get("turns"), path.parent)
    return Sessions(turns, _think("sessions", table))


def _closed(table: Mapping[str, Any]) -> ClosedLoop:
    _refuse_others("closed", table, ("clients", "think_s"))
    clients = whole("workload.closed.clients", table.get("clients", "nothing"), 1, MOST_REQUESTS)
    return ClosedLoop(clients, _think("closed", table))


def _think(field: str, table: Mapping[str, Any]) -> Think:
    return parse_think(f"workload.{field}.think_s", table.get("think_s", 0))


def _refuse_others(field: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in table:
        if name not in known:
            raise InputError(f"workload.{field}.{name}", table[name], f"the fields {', '.join(known)}")


def _mapping(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    if not isinstance(table[name], Mapping):
        raise InputError(f"workload.{name}", table[name], "a table")
    return table[name]


def _table(path: Path) -> Mapping[str, Any]:
    try:
        text = read_text("workload", path, MOST_SETTINGS_BYTES)
    except OSError as error:
        raise CannotRunError(f"workload: {path} can't be read ({error.strerror})") from None
    if path.suffix == ".toml":
        import tomllib

        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InputError("workload", str(path), f"TOML ({error})") from None
    import yaml

    try:
        # A dozen lines of names for names stand for more than any memory holds, once one of them is shown.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
            raise InputError("workload", str(path), "YAML without aliases (*NAME)")
        table = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError("workload", str(path), f"YAML ({' '.join(str(error).split())})") from None
    if not isinstance(table, Mapping):
        raise InputError("workload", str(path), "YAML with fields at its top")
    return table
