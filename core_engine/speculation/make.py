"""The proposer that a configuration asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from core_engine.config import EngineConfig
from core_engine.model.loader import LoadedModel
from core_engine.speculation.ngram import NgramProposer
from core_engine.speculation.proposer import Proposer

# Forms that need nothing but the tokens; all others read a trained file.
LOOK_UPS: Mapping[str, Callable[[], Proposer]] = {"ngram": NgramProposer}


def make_proposer(config: EngineConfig, loaded: LoadedModel) -> Proposer | None:
    """None with speculation=off. InputError or CannotRunError where a form can't run with this model."""
    if config.speculation in LOOK_UPS:
        return LOOK_UPS[config.speculation]()
    if config.speculation != "off":
        from core_engine.speculation.load_draft import load_draft  # reads files: only where one is asked for

        return load_draft(config, loaded)
    return None
