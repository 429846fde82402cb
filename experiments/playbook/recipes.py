"""The article's scenario recipes as starting points: which steps, in which order, on which kind of traffic.

A recipe fills in what its user leaves open; workload, objectives, settings and steps that were given win over it.
"""

from __future__ import annotations

from dataclasses import dataclass

from experiments.playbook.steps import LADDER
from ledger.errors import unknown_name

FOOT_OF_LADDER, DEFAULTS = "foot", "defaults"
STARTS = (FOOT_OF_LADDER, DEFAULTS)


@dataclass(frozen=True)
class Recipe:
    """first and then: names of steps, what the article puts first and second for this scenario.

    aim: the curve by which return is counted, None for goodput under objectives, else throughput. start: what the
    settings begin from, the foot of the ladder or the engine's defaults. concurrency: clients in a closed loop.
    """

    name: str
    workload: str
    first: tuple[str, ...]
    then: tuple[str, ...] = ()
    aim: str | None = None
    start: str = FOOT_OF_LADDER
    concurrency: int | None = None

    @property
    def steps(self) -> tuple[str, ...]:
        """All of them, in order."""
        return (*self.first, *self.then)


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("rollout", "mixed", LADDER),
        Recipe("short-questions", "chat", ("continuous-paged", "w8a8"), ("kv-int8", "graph")),
        Recipe(
            "long-documents",
            "long-doc",
            ("kv-int8", "flash", "continuous-paged"),
            ("prefix-cache", "chunked-prefill"),
            aim="ttft_s",
        ),
        Recipe("slow-tokens", "chat", ("draft", "speculation"), ("w8a8",), aim="itl_s", start=DEFAULTS, concurrency=1),
        Recipe("single-card", "mixed", ("w4a16",), ("kv-int8",), start=DEFAULTS),
        Recipe("jitter", "long-prompts", ("pd",), ("rate-limit", "queue-limit"), aim="itl_s", start=DEFAULTS),
    )
}
# The five scenarios of the article; the roll-out ladder is not one of them.
SCENARIOS = tuple(name for name in RECIPES if name != "rollout")


def get_recipe(name: str) -> Recipe:
    """InputError when there is none of that name."""
    if name not in RECIPES:
        raise unknown_name("--recipe", name, RECIPES)
    return RECIPES[name]
