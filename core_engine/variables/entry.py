"""What an entry of the registry says of a setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Value = str | int | float


@dataclass(frozen=True)
class Variable:
    """One setting of the engine.

    kind is one of "choice", "int", "float", "path"; minimum and maximum are inclusive; unit is for display;
    a "path" is one of its choices, or leads to what `paths` says.
    derives names what follows from it (listed in results as changed because of it), moves the curves it should move,
    peers the flag that does the same elsewhere, requires the values of other variables that a value of it needs,
    excludes those that it can't go with, alike those that a comparison holds in both arms unless somebody chose others
    (so that nothing else differs), acts_with those of which one is needed for it to change anything.
    """

    name: str
    kind: str
    default: Value
    help: str
    group: str
    choices: tuple[str, ...] = ()
    paths: str = ""
    minimum: float | None = None
    maximum: float | None = None
    unit: str = ""
    derives: tuple[str, ...] = ()
    moves: tuple[str, ...] = ()
    peers: Mapping[str, str] = field(default_factory=dict)
    requires: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    excludes: Mapping[str, Mapping[str, Value | tuple[Value, ...]]] = field(default_factory=dict)
    alike: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    acts_with: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)

    def ruled_out(self, value: Value) -> dict[str, tuple[Value, ...]]:
        """Values of other variables that `value` of this one can't go with."""
        found = self.excludes.get(str(value), {})
        return {other: values if isinstance(values, tuple) else (values,) for other, values in found.items()}

    def accepted(self) -> str:
        """What this variable accepts, in words, for error messages."""
        if self.kind == "choice":
            return ", ".join(self.choices)
        if self.kind == "path":
            return f"{', '.join(self.choices)}, or the path of {self.paths}"
        kind = "a whole number" if self.kind == "int" else "a number"
        ends = " to ".join(_end(value) for value in (self.minimum, self.maximum))
        return f"{kind} from {ends}{' ' + self.unit if self.unit else ''}"


def _end(value: float | None) -> str:
    """A bound as it is read: whole ones with separators, never as a power of ten."""
    number = float(value or 0)
    return f"{number:,.0f}" if number.is_integer() else f"{number:g}"
