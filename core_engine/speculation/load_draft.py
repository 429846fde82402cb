"""From the variables `speculation` and `draft_model` to a trained draft beside a loaded model.

Owns which file is meant, and its refusal for another model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from core_engine.config import EngineConfig
from core_engine.kernels.choice import COMPILED
from core_engine.model.embedded import ENLARGED
from core_engine.model.loader import LoadedModel, OpenedModel, open_model
from core_engine.model.weights import model_digest
from core_engine.speculation.artefact import KINDS, Artefact, load, shipped
from core_engine.speculation.draft_model import early_exit, independent_draft, self_draft
from core_engine.speculation.eagle import eagle
from core_engine.speculation.medusa import medusa
from core_engine.speculation.proposer import Proposer
from core_engine.speculation.target_parts import tables_of
from ledger.errors import CannotRunError, InputError

SHIPPED = "shipped"


def load_draft(config: EngineConfig, loaded: LoadedModel) -> Proposer:
    """The proposer of speculation=draft, medusa, eagle or self.

    InputError for a file that is no such draft, or one for another model; CannotRunError without a shipped one, or on
    a device that drafts are not computed on.
    """
    if loaded.weights.device.type != "cpu":
        kind = config.speculation
        raise CannotRunError(f"speculation={kind}: trained drafts are computed on the CPU alone; use speculation=ngram")
    opened = open_model(config)
    artefact = load(_path(config))
    artefact.refuse_other(config.speculation, model_digest(opened.path))
    return proposer_of(artefact, loaded, opened)


def proposer_of(artefact: Artefact, loaded: LoadedModel, opened: OpenedModel) -> Proposer:
    """The proposer of a draft beside its model, which takes from the model's files what the two share."""
    spec, compiled = loaded.decoder.spec, _compiles(artefact, loaded)
    if artefact.kind == "draft":
        return independent_draft(artefact, spec.vocab_size, spec.max_position, compiled=compiled)
    if artefact.kind == "medusa":
        return medusa(artefact, *tables_of(opened))
    if artefact.about.get("exit_layers"):
        return early_exit(artefact, opened, compiled=compiled)
    make = eagle if artefact.kind == "eagle" else self_draft
    return make(artefact, *tables_of(opened), spec.max_position, compiled=compiled)


def training_of(config: EngineConfig) -> dict[str, Any] | None:
    """What training the draft of `config` took, as its file says; None for a form that is not trained."""
    if config.speculation not in KINDS:
        return None
    found: dict[str, Any] = load(_path(config)).about["cost"]
    return found


def _path(config: EngineConfig) -> Path:
    if config.draft_model != SHIPPED:
        return Path(config.draft_model).expanduser()
    if config.model not in ("embedded", ENLARGED):
        raise InputError(
            "draft_model",
            SHIPPED,
            f"the path of a draft for this model (trilemma train-draft {config.speculation} --set model=...); the "
            "shipped ones are for the embedded model",
        )
    path = shipped(config.speculation)
    if not path.is_file():
        raise CannotRunError(
            f"draft_model: no {config.speculation} draft comes with this installation; make one with "
            f"trilemma train-draft {config.speculation} and pass it with --set draft_model=FILE"
        )
    return path


def _compiles(artefact: Artefact, loaded: LoadedModel) -> bool:
    """Whether compiled kernels can run the draft's layers: where they run the model's, with heads of whole vectors."""
    shape = artefact.about["shape"]
    lanes = (loaded.kernels.vector_bits or 32) // 32
    return loaded.kernels.kernels == COMPILED and (shape is None or shape["head_dim"] % lanes == 0)
