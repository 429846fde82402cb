"""The proposer that a configuration asks for."""

from __future__ import annotations

from core_engine.config import EngineConfig
from core_engine.model.loader import LoadedModel
from core_engine.speculation.ngram import NgramProposer
from core_engine.speculation.proposer import Proposer


def make_proposer(config: EngineConfig, loaded: LoadedModel) -> Proposer | None:
    """None with speculation=off. InputError or CannotRunError where a form can't run with this model."""
    if config.speculation == "ngram":
        return NgramProposer()
    if config.speculation != "off":
        from core_engine.speculation.load_draft import load_draft  # reads files: only where one is asked for

        return load_draft(config, loaded)
    return None
