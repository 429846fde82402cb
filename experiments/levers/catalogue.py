"""The levers: which variable each is, what it stands at before and after, and which of cost's factors it works on.

Cost = tokens computed x device time a token / requests at once. A lever works on "tokens" (fewer are computed), on
"device" (the same tokens take less of it) or on "concurrency" (more requests share it).
"""

from __future__ import annotations

from dataclasses import dataclass

from core_engine.variables import Value, parse_value
from ledger.errors import InputError, unknown_name

TOKENS, DEVICE, CONCURRENCY = "tokens", "device", "concurrency"


@dataclass(frozen=True)
class Lever:
    """`variable` goes from `off` to `on`. needs_text: nothing of it can be simulated."""

    name: str
    variable: str
    off: Value
    on: Value
    works_on: str
    needs_text: bool = False

    def value(self, given: str | Value | None) -> Value:
        """What it goes to: its own value, or a valid one of the variable that is given; InputError otherwise."""
        if given is None:
            return self.on
        found = parse_value(self.variable, given)
        if found == self.off:
            raise InputError(f"lever {self.name}", given, f"another {self.variable} than {self.off}, where it begins")
        return found


LEVERS: dict[str, Lever] = {
    lever.name: lever
    for lever in (
        Lever("prefix_cache", "prefix_cache", "off", "on", TOKENS),
        Lever("answer_cache", "exact_cache", "off", "on", TOKENS, needs_text=True),
        Lever("semantic_cache", "semantic_cache", "off", "on", TOKENS, needs_text=True),
        Lever("compression", "prompt_compression", "off", "on", TOKENS, needs_text=True),
        Lever("routing", "router", "off", "small-first", TOKENS, needs_text=True),
        Lever("weights", "weights", "none", "w8a16", DEVICE),
        Lever("kv", "kv_dtype", "auto", "int8", DEVICE),
        Lever("batching", "batching", "static", "continuous", DEVICE),
        Lever("concurrency", "max_num_seqs", 2, 8, CONCURRENCY),
    )
}
# Without a choice. The semantic cache takes packages of its own; KV in INT8 pays where the pool is full, which a
# workload of short requests does not show.
USUAL = ("prefix_cache", "answer_cache", "compression", "routing", "weights", "batching", "concurrency")
SIMULATED = tuple(name for name in USUAL if not LEVERS[name].needs_text)


def lever(name: str) -> Lever:
    """The lever of a name; InputError when there is none."""
    if name not in LEVERS:
        raise unknown_name("lever", name, LEVERS)
    return LEVERS[name]
