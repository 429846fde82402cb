"""What an experiment with answer caches is asked to do: which pairs are judged, and which traffic is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from core_engine.variables import Value
from experiments.caching.pairs import HALVES, LANGUAGES
from experiments.spec import BenchSpec, refuse_unknown, whole
from ledger.errors import InputError

WORKLOAD, REPEATS, MOST_REPEATS = "repetitive", 3, 20
ARMS: tuple[tuple[str, dict[str, Value]], ...] = (
    ("no cache", {}),
    ("exact", {"exact_cache": "on"}),
    ("exact and semantic", {"exact_cache": "on", "semantic_cache": "on"}),
)
VARIED = ("exact_cache", "semantic_cache")


@dataclass(frozen=True)
class CacheSpec(BenchSpec):
    """languages and half: of the pairs that are judged; "held" is the half on which nothing was fixed.

    traffic: whether the workload is run as well, without a cache, with the exact one and with both.
    """

    workload: str = WORKLOAD
    languages: tuple[str, ...] = LANGUAGES
    half: str = "held"
    traffic: bool = True
    repeats: int = REPEATS

    @classmethod
    def from_dict(cls, spec: Mapping[str, Any]) -> CacheSpec:
        """Validate a spec; InputError names the first field that is wrong. Missing fields take their defaults."""
        refuse_unknown(cls, spec)
        of_a_run = {item.name for item in fields(BenchSpec)}
        common = asdict(BenchSpec.from_dict({"workload": WORKLOAD, **{k: v for k, v in spec.items() if k in of_a_run}}))
        if common["endpoint"] is not None:
            raise InputError("--endpoint", common["endpoint"], "none: the arms are settings of the engine")
        for name in VARIED:
            if name in common["settings"]:
                raise InputError("--set", name, f"any variable but {', '.join(VARIED)}, which the arms vary")
        languages = _languages(spec.get("languages", LANGUAGES))
        half = spec.get("half", "held")
        if half not in HALVES:
            raise InputError("half", half, " or ".join(HALVES))
        traffic = spec.get("traffic", True)
        if not isinstance(traffic, bool):
            raise InputError("traffic", traffic, "true or false")
        repeats = whole("repeats", spec.get("repeats", REPEATS), 1, MOST_REPEATS, f"1 to {MOST_REPEATS}")
        made = cls(**common, languages=languages, half=half, traffic=traffic, repeats=repeats)
        for one in made.specs():
            one.config()
        return made

    def to_dict(self) -> dict[str, Any]:
        """The spec as JSON."""
        return {**asdict(self), "languages": list(self.languages)}

    def specs(self) -> list[BenchSpec]:
        """Each arm as a spec of its own."""
        common = {item.name: getattr(self, item.name) for item in fields(BenchSpec)}
        return [BenchSpec(**{**common, "settings": {**self.settings, **settings}}) for _, settings in ARMS]

    def names(self) -> list[str]:
        """How the arms are called."""
        return [name for name, _ in ARMS]

    def threshold(self) -> float:
        """The similarity threshold that is judged."""
        return self.config().semantic_threshold


def _languages(given: Any) -> tuple[str, ...]:
    found = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list | tuple) else ()
    if not found or any(language not in LANGUAGES for language in found):
        raise InputError("language", given, " or ".join(LANGUAGES))
    return tuple(dict.fromkeys(found))
