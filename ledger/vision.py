"""Parameters of the vision (and audio) part of a multimodal config: what params_total has beyond the text model.

Knows ModelSpec and the tables of towers. A tower without a table has no count (None), never a guess.
"""

from __future__ import annotations

from math import prod

from ledger.class_defaults import with_defaults
from ledger.errors import InputError
from ledger.families import TEXT_SECTIONS
from ledger.fields import Fields
from ledger.model_spec import ModelSpec
from ledger.tensors.towers import TOWERS, Tower, gemma4_audio

MAX_TOWER_LAYERS = 1_000
ALWAYS_MULTIMODAL = ("phi4_multimodal",)  # flat configs whose class builds encoders that have no table here
SECTIONS = ("vision_config", "audio_config", "vision_tower", "visual", "mm_vision_tower", "vit_config")


def vision_parameter_shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]] | None:
    """Name -> shape of every parameter outside the text model; empty for a text model, None for an unknown tower.

    InputError for a tower's field that is missing or no positive integer.
    """
    outer = Fields(spec.outer_config)
    kind = outer.text("model_type")
    tower = TOWERS.get(kind)
    parts = [name for name in (*TEXT_SECTIONS, *SECTIONS) if outer.has(name)]
    if tower is None:
        return None if parts or kind in ALWAYS_MULTIMODAL else {}
    if not parts:
        return {}
    section = _section(outer, tower)
    shapes = {} if section is None else dict(tower.build(section, outer, spec.hidden_size))
    audio = outer.section("audio_config")
    if audio is not None:
        if outer.text("model_type") != "gemma4":
            return None
        complete = Fields(with_defaults("gemma4_audio", audio.values, nested=True), audio.where)
        shapes |= dict(gemma4_audio(_bounded(complete), spec.hidden_size))
    return shapes


def vision_parameter_count(spec: ModelSpec) -> int | None:
    """Parameters outside the text model: 0 for a text model, None for a tower that is not known."""
    shapes = vision_parameter_shapes(spec)
    return None if shapes is None else sum(prod(shape) for shape in shapes.values())


def vision_label(spec: ModelSpec) -> str:
    """Why there is no count, in words; empty when there is one."""
    if vision_parameter_shapes(spec) is not None:
        return ""
    kind = Fields(spec.outer_config).text("model_type") or "this config"
    return f"the vision or audio part of {kind[:60]} is not known: text model only"


def _section(outer: Fields, tower: Tower) -> Fields | None:
    given = outer.section("vision_config")
    if given is None and tower.absent is None:
        return None
    values = dict(given.values if given is not None else tower.absent or {})
    kind = tower.section_type or Fields(values, "vision_config.").text("model_type")
    if not kind:
        kind = str((tower.absent or {}).get("model_type", "siglip_vision_model"))
    if "in_chans" in values:
        values.setdefault("in_channels", values["in_chans"])
    fields = Fields(with_defaults(kind, {**values, "model_type": kind}, nested=True), "vision_config.")
    return _bounded(fields)


def _bounded(fields: Fields) -> Fields:
    for name in ("num_hidden_layers", "depth", "num_global_layers"):
        layers = fields.optional_integer(name, default=0, minimum=0) or 0
        if layers > MAX_TOWER_LAYERS:
            raise InputError(fields.where + name, layers, f"at most {MAX_TOWER_LAYERS:,} layers")
    return fields
