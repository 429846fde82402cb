"""The steps of the ladder as data: which variables each changes, what it costs to take, what it should move, its trap.

The order and the ranks are the article's: first continuous batching with paging, then KV quantization, W8A8, W4 and
speculation, disaggregation last. Texts in two languages are in words.py, under the step's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from core_engine.variables import W4A16, Value, parse_value, variable
from ledger.errors import InputError, unknown_name

# Hours of somebody who knows the service, assumed: a flag and a restart; a day for a checkpoint or a draft that has to
# be made and evaluated; a week for a deployment of another shape.
EFFORT_HOURS: Mapping[str, float] = {"config": 1.0, "code": 8.0, "architecture": 40.0}
EFFORT_PROVENANCE = "assumed"
# The foot of the ladder: how engines served before the first step.
FOOT: Mapping[str, Value] = {"batching": "static", "kv_layout": "contiguous", "prefix_cache": "off"}
ACCEPTED_STEP = "VARIABLE=VALUE, or NAME:VARIABLE=VALUE,VARIABLE=VALUE"


@dataclass(frozen=True)
class Step:
    """One change, of one variable or of a named bundle that only makes sense together.

    effort is a key of EFFORT_HOURS. rank: its place in the article's order of return (two may share one), None where
    the article ranks it nowhere. moves: the curves it should move. there: values of a variable beside its own that
    already are this step or beyond it. simulate: options of `trilemma simulate` that ask for it where it can't run.
    """

    name: str
    changes: Mapping[str, Value]
    effort: str
    moves: tuple[str, ...]
    rank: int | None = None
    there: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    simulate: str = ""

    @property
    def hours(self) -> float:
        """The assumed cost of taking it."""
        return EFFORT_HOURS[self.effort]

    def is_there(self, settings: Mapping[str, Value]) -> bool:
        """Whether complete settings have it already."""
        return all(settings[name] in (value, *self.there.get(name, ())) for name, value in self.changes.items())


def _steps() -> tuple[Step, ...]:
    tokens, ttft, itl = "output_tokens_per_s", "ttft_s", "itl_s"
    return (
        Step(
            "continuous-paged",
            {"batching": "continuous", "kv_layout": "paged"},
            "config",
            (tokens, ttft),
            rank=1,
        ),
        Step(
            "kv-int8",
            {"kv_dtype": "int8"},
            "config",
            (tokens, ttft),
            rank=2,
            there={"kv_dtype": ("int4", "int2")},
            simulate="--kv-dtype int8",
        ),
        Step(
            "w8a8",
            {"weights": "w8a8"},
            "code",
            (itl, tokens),
            rank=3,
            there={"weights": W4A16},
            simulate="--weights w8a8",
        ),
        Step(
            "w4a16",
            {"weights": "w4a16-awq"},
            "code",
            (itl,),
            there={"weights": W4A16},
            simulate="--weights w4a16",
        ),
        Step(
            "speculation",
            {"speculation": "ngram"},
            "code",
            (itl, tokens),
            rank=4,
            there={"speculation": ("draft", "medusa", "eagle", "self")},
            simulate="--set speculation=draft --acceptance 0.7",
        ),
        Step(
            "pd",
            {"disaggregation": "on"},
            "architecture",
            (itl,),
            rank=4,
            simulate="--prefill-replicas 1 --replicas 1",
        ),
        Step("prefix-cache", {"prefix_cache": "on"}, "config", (ttft, tokens)),
        Step("chunked-prefill", {"chunked_prefill": "on"}, "config", (itl,)),
        Step("flash", {"attention": "flash"}, "config", (ttft, itl)),
        Step("graph", {"graph": "on"}, "config", (itl, tokens)),
        Step("draft", {"speculation": "eagle"}, "code", (itl, tokens), there={"speculation": ("medusa", "self")}),
        Step("queue-limit", {"max_queue": 8}, "config", (ttft,)),
        Step("rate-limit", {"rate_limit_rps": 1.0}, "config", (ttft,)),
    )


STEPS: dict[str, Step] = {step.name: step for step in _steps()}
LADDER = ("continuous-paged", "kv-int8", "w8a8", "w4a16", "speculation", "pd")


def get_step(name: str) -> Step:
    """A step of the playbook; InputError when there is none of that name."""
    if name not in STEPS:
        raise unknown_name("--steps", name, STEPS)
    return STEPS[name]


def own_step(name: str, changes: Mapping[str, object], taken: Sequence[str] = ()) -> Step:
    """A step of somebody's own, taken as a flag and a restart; InputError for an unknown variable or value, or a name
    of `taken`."""
    if not name.strip() or name in taken:
        raise InputError("--step", name, f"a name of its own, none of {', '.join(taken)}")
    if not changes:
        raise InputError("--step", name, ACCEPTED_STEP)
    checked = {variable(key).name: parse_value(key, value) for key, value in changes.items()}
    moves = tuple(dict.fromkeys(curve for key in checked for curve in variable(key).moves if curve != "quality"))
    return Step(name.strip(), checked, "config", moves)


def parse_step(text: str) -> tuple[str, dict[str, str]]:
    """A `--step` option as (name, variable -> value); without a name it is called as it is written."""
    head, colon, rest = text.partition(":")
    name, pairs = (head.strip(), rest) if colon and "=" not in head else (text.strip(), text)
    found = {}
    for part in filter(None, (piece.strip() for piece in pairs.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key or not value:
            raise InputError("--step", text, ACCEPTED_STEP)
        found[key] = value
    if not found:
        raise InputError("--step", text, ACCEPTED_STEP)
    return name, found
