"""Options that verbs take in groups: one dataclass of annotated fields in a verb's signature is all of its options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints


def grouped(verb: Callable[..., Any]) -> Callable[..., Any]:
    """`verb` as typer reads it: a parameter whose type is a dataclass is one option for each of its fields.

    Its default is an instance, which gives every option its default; the verb gets an instance of what was typed.
    """
    hints = get_type_hints(verb, include_extras=True)
    groups: dict[str, Any] = {}
    flat: list[Parameter] = []
    for name, parameter in signature(verb).parameters.items():
        if not is_dataclass(hints[name]):
            flat.append(parameter.replace(annotation=hints[name]))
            continue
        kind = groups[name] = hints[name]
        own = get_type_hints(kind, include_extras=True)
        flat += [
            parameter.replace(
                name=field.name, default=getattr(parameter.default, field.name), annotation=own[field.name]
            )
            for field in fields(kind)
        ]

    @wraps(verb)
    def read(**typed: Any) -> Any:
        made = {
            name: kind(**{field.name: typed.pop(field.name) for field in fields(kind)}) for name, kind in groups.items()
        }
        return verb(**typed, **made)

    read.__signature__ = Signature(flat)  # type: ignore[attr-defined]
    read.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return read
