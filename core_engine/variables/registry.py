"""All entries in one table, and what text becomes a value of one."""

from __future__ import annotations

from typing import Any

from core_engine.variables.answer_cache import CACHE_VARIABLES
from core_engine.variables.entry import Value, Variable
from core_engine.variables.kernels import KERNEL_VARIABLES
from core_engine.variables.memory import MEMORY_VARIABLES
from core_engine.variables.model import MODEL_VARIABLES
from core_engine.variables.parallel import PARALLEL_VARIABLES
from core_engine.variables.sampling import SAMPLING_VARIABLES
from core_engine.variables.saving import SAVING_VARIABLES
from core_engine.variables.scheduling import SCHEDULING_VARIABLES
from core_engine.variables.speculation import SPECULATION_VARIABLES
from ledger.errors import InputError, unknown_name

VARIABLES: dict[str, Variable] = {
    entry.name: entry
    for entry in (
        *SCHEDULING_VARIABLES,
        *MEMORY_VARIABLES,
        *MODEL_VARIABLES,
        *KERNEL_VARIABLES,
        *PARALLEL_VARIABLES,
        *SPECULATION_VARIABLES,
        *CACHE_VARIABLES,
        *SAVING_VARIABLES,
        *SAMPLING_VARIABLES,
    )
}


def variable(name: str) -> Variable:
    """The entry called `name`; InputError when there is none."""
    if name not in VARIABLES:
        raise unknown_name("variable", name, VARIABLES)
    return VARIABLES[name]


def parse_value(name: str, text: Any) -> Value:
    """Turn text (or an already typed value) into a valid value of variable `name`; InputError otherwise."""
    entry = variable(name)
    if entry.kind == "choice":
        if text not in entry.choices:
            raise unknown_name(name, text, entry.choices, entry.accepted())
        return str(text)
    if entry.kind == "path":
        if not str(text).strip():
            raise InputError(name, text, entry.accepted())
        return str(text)
    return _parse_number(entry, text)


def _parse_number(entry: Variable, text: Any) -> Value:
    try:
        number = int(str(text)) if entry.kind == "int" else float(str(text))
    except ValueError:
        raise InputError(entry.name, text, entry.accepted()) from None
    low, high = entry.minimum, entry.maximum
    if low is None or high is None:
        raise TypeError(f"variable {entry.name} has no range")  # a fault of the registry, not of the user
    if not low <= number <= high:  # also refuses NaN, which compares false
        raise InputError(entry.name, text, entry.accepted())
    return number


def parse_setting(text: str) -> tuple[str, Value]:
    """Parse "NAME=VALUE"; InputError names the field and what is accepted."""
    name, separator, value = text.partition("=")
    if not separator:
        raise InputError("--set", text, "NAME=VALUE")
    return name.strip(), parse_value(name.strip(), value.strip())
