"""ModelSpec: the shape of a model, from any config.json, a preset or typed numbers. Knows no bytes and no tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ledger.errors import InputError
from ledger.families import family_of
from ledger.fields import CONFIG_SOURCES, MAX_LAYERS, Fields, read_config, short
from ledger.layer_rules import Shape
from ledger.layers import LayerSpec
from ledger.presets import nearest_presets, preset_config

__all__ = ["LayerSpec", "ModelSpec", "load_model_spec"]


@dataclass(frozen=True)
class ModelSpec:
    """A decoder's shape. `layers` has one entry a layer; the plain numbers are the config's (class defaults filled in).

    A size that nobody gave (typed fields) is 0, and functions that need it refuse. `config` is the section of the
    config.json that describes the text model, for the weight tables.
    """

    name: str
    model_type: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_position: int
    tie_embeddings: bool
    layers: tuple[LayerSpec, ...] = field(repr=False)
    assumed: str = ""  # says so when the architecture was not recognised and the caller asked for plain attention
    config: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)
    outer_config: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def from_config(cls, config: Mapping[str, object], name: str = "", *, plain_attention: bool = False) -> ModelSpec:
        """The spec of a Hugging Face config.json.

        InputError for a value that is no positive integer, a missing field, or an architecture that is not known;
        `plain_attention=True` treats an unknown one as full attention in every layer and labels the spec as assumed.
        """
        outer = Fields(config)
        family, fields, tied = family_of(outer, plain_attention)
        num_layers = family.num_layers(fields)
        if num_layers > MAX_LAYERS:
            raise InputError(fields.where + "num_hidden_layers", num_layers, f"at most {MAX_LAYERS:,} layers")
        heads = family.heads(fields)
        hidden = fields.integer("hidden_size", "n_embd", "d_model")
        head_dim = family.head_dim(fields, hidden, heads)
        kv_heads = family.kv_heads(fields, heads)
        return cls(
            name=short(name or fields.text("_name_or_path") or fields.text("model_type")),
            model_type=fields.text("model_type"),
            hidden_size=hidden,
            num_layers=num_layers,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            intermediate_size=family.intermediate(fields, hidden),
            vocab_size=fields.integer("vocab_size"),
            max_position=fields.optional_integer(*POSITION_NAMES) or 0,
            tie_embeddings=tied,
            layers=family.layout(fields, Shape(num_layers, heads, kv_heads, head_dim)),
            assumed=family.label,
            config=dict(fields.values),
            outer_config=dict(config),
        )

    @classmethod
    def from_fields(
        cls,
        *,
        layers: int,
        kv_heads: int,
        head_dim: int,
        num_heads: int | None = None,
        hidden_size: int = 0,
        intermediate_size: int = 0,
        vocab_size: int = 0,
        max_position: int = 0,
        name: str = "typed fields",
    ) -> ModelSpec:
        """A spec from typed numbers: `layers` full-attention layers of `kv_heads` x `head_dim`.

        InputError for a number that is not a positive integer. Sizes left at 0 are unknown; KV needs none.
        """
        given = Fields({"layers": layers, "kv_heads": kv_heads, "head_dim": head_dim, "num_heads": num_heads})
        count = given.integer("layers")
        if count > MAX_LAYERS:
            raise InputError("layers", count, f"at most {MAX_LAYERS:,} layers")
        kv, size = given.integer("kv_heads"), given.integer("head_dim")
        return cls(
            name=name,
            model_type="typed",
            hidden_size=hidden_size,
            num_layers=count,
            num_heads=given.integer("num_heads", default=kv) if num_heads is not None else kv,
            num_kv_heads=kv,
            head_dim=size,
            intermediate_size=intermediate_size,
            vocab_size=vocab_size,
            max_position=max_position,
            tie_embeddings=False,
            layers=(LayerSpec("full", kv, size, size),) * count,
        )


POSITION_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")


def load_model_spec(source: str | Path, *, plain_attention: bool = False) -> ModelSpec:
    """The spec of a config.json file, a model directory, a preset name, or standard input (`-`).

    A path that exists wins over a preset of the same name. InputError when it is none of these, or unreadable.
    """
    text = str(source)
    if text != "-" and not _exists(text):
        preset = preset_config(text)
        if preset is not None:
            return ModelSpec.from_config(preset[1], preset[0], plain_attention=plain_attention)
        if nearest := nearest_presets(text):
            raise InputError("config", text[:60], f"{CONFIG_SOURCES} ({', '.join(nearest)}, ...)")
    config = read_config(source)
    return ModelSpec.from_config(config, "" if text == "-" else _name_of(Path(text)), plain_attention=plain_attention)


def _name_of(path: Path) -> str:
    """A directory's name, or a file's without its suffix; a config.json is named after its directory."""
    folder = path if path.is_dir() else path.parent
    return path.stem if path.is_file() and path.stem != "config" else folder.resolve().name


def _exists(text: str) -> bool:
    try:
        return bool(text) and Path(text).exists()
    except (OSError, ValueError):
        return False
