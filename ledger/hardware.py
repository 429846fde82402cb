"""The accelerator catalogue: memory, bandwidth and dense rates of cards, from hardware.toml and the user's own file.

Owns reading and validation of such files. Measures nothing: the calibration of "this machine" is passed in.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from ledger.errors import CannotRunError, InputError, unknown_name

MIB, GIB = 2**20, 2**30
THIS = ("this", "this machine")
MAX_FILE_BYTES = 2**20
MAX_NUMBER = 1e9  # in the file's units: GB/s, TFLOPS, MiB, W
# What numbers of a dtype can be widened to, for an accelerator that has no fast path of their own.
WIDER = {
    "fp4": ("fp8", "bf16", "fp16", "fp32"),
    "int4": ("int8", "bf16", "fp16", "fp32"),
    "fp8": ("bf16", "fp16", "fp32"),
    "int8": ("bf16", "fp16", "fp32"),
    "bf16": ("fp16", "fp32"),
    "fp16": ("bf16", "fp32"),
    "fp32": (),
}
DTYPES = tuple(WIDER)
MAKERS = ("nvidia", "amd", "intel", "google")  # drivers print them before a card's name, people do not
KEYS = ("label", "vendor", "aliases", "memory_mib", "memory_gib", "bandwidth", "dense", "link", "link_name", "power_w")

MemorySource = Literal["driver", "nominal", "system"]
Provenance = Literal["datasheet", "user", "measured"]


@dataclass(frozen=True)
class Accelerator:
    """One device. Rates are dense; `link_bytes_per_s` is one direction.

    `memory_source` says whether the bytes are what the driver reports, the vendor's nominal figure in GiB (the driver
    reports somewhat less), or the memory of the system. `provenance`: datasheet, user (from the user's file), measured.
    """

    name: str
    label: str
    vendor: str
    memory_bytes: int
    memory_source: MemorySource
    bandwidth_bytes_per_s: float
    flops_per_s: Mapping[str, float]
    link_bytes_per_s: float | None
    power_w: float | None
    sources: tuple[str, ...]
    provenance: Provenance
    link_name: str = ""
    aliases: tuple[str, ...] = ()

    def rate(self, dtype: str) -> tuple[str, float]:
        """(dtype it runs in, operations/s): the dtype itself, or a wider one where that is faster or the only one.

        InputError for an unknown dtype, or one with no rate and no wider dtype here.
        """
        if dtype not in WIDER:
            raise InputError("dtype", dtype, ", ".join(DTYPES))
        able = [name for name in (dtype, *WIDER[dtype]) if name in self.flops_per_s]
        if not able:
            raise InputError("dtype", dtype, f"one that {self.label} has a rate for: {', '.join(self.flops_per_s)}")
        fastest = max(able, key=lambda name: self.flops_per_s[name])  # the narrowest of equals
        return fastest, self.flops_per_s[fastest]

    def ridge(self, dtype: str) -> float:
        """FLOP/B above which an operator of this dtype is bound by compute: rate / bandwidth."""
        return self.rate(dtype)[1] / self.bandwidth_bytes_per_s

    def to_json(self) -> dict[str, Any]:
        """Every field, plain."""
        return {
            "name": self.name,
            "label": self.label,
            "vendor": self.vendor,
            "memory_bytes": self.memory_bytes,
            "memory_source": self.memory_source,
            "bandwidth_bytes_per_s": self.bandwidth_bytes_per_s,
            "flops_per_s": dict(self.flops_per_s),
            "link_bytes_per_s": self.link_bytes_per_s,
            "link_name": self.link_name,
            "power_w": self.power_w,
            "sources": list(self.sources),
            "provenance": self.provenance,
        }


def catalogue(*, with_own: bool = True) -> dict[str, Accelerator]:
    """Name -> accelerator: those shipped with the workbench, then the user's own, which win over a shipped name.

    InputError when the user's file is wrong.
    """
    own = user_file() if with_own else None
    return _shipped() | (read_hardware(own) if own is not None else {})


def user_file() -> Path | None:
    """The user's hardware file: $TRILEMMA_HARDWARE, else ~/.config/trilemma/hardware.toml when it exists."""
    named = os.environ.get("TRILEMMA_HARDWARE")
    if named:
        return Path(named)
    usual = Path.home() / ".config" / "trilemma" / "hardware.toml"
    return usual if usual.is_file() else None


def accelerator(name_or_path: str, this: Accelerator | None = None) -> Accelerator:
    """The accelerator of a name or alias (any letter case), or of a TOML file: PATH, or PATH:NAME with several in it.

    "this" is `this`, the calibration of this machine; CannotRunError when there is none. InputError for an unknown
    name or a file that is wrong.
    """
    wanted = name_or_path.strip()
    if wanted.lower() in THIS:
        if this is None:
            raise CannotRunError("hardware: this machine is not calibrated yet; run `trilemma calibrate` (20 s)")
        return this
    path, _, name = wanted.rpartition(":") if ".toml:" in wanted else (wanted, "", "")
    if path.endswith(".toml"):
        return _of_file(Path(path), name)
    found = _by_any_name(catalogue()).get(_key(wanted))
    if found is None:
        accepted = f"this, a .toml file, or one of {', '.join(catalogue())}"
        raise unknown_name("gpu", name_or_path[:60], catalogue(), accepted)
    return found


def read_hardware(path: Path) -> dict[str, Accelerator]:
    """The accelerators of a TOML file, in the form of hardware.toml. InputError names the file, entry and field."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError("hardware file", str(path), "a TOML file of at most 1 MiB")
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("hardware file", str(path), "a readable TOML file") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError("hardware file", str(path), f"valid TOML ({str(error)[:80]})") from error
    return _accelerators(tables, "user", f"{path.name}: ")


@cache
def _shipped() -> dict[str, Accelerator]:
    text = files("ledger").joinpath("hardware.toml").read_text(encoding="utf-8")
    return _accelerators(tomllib.loads(text), "datasheet", "hardware.toml: ")


def _of_file(path: Path, name: str) -> Accelerator:
    found = read_hardware(path)
    if name:
        known = _by_any_name(found)
        if _key(name) in known:
            return known[_key(name)]
    elif len(found) == 1:
        return next(iter(found.values()))
    raise InputError("gpu", f"{path.name}:{name}" if name else path.name, f"{path.name}:NAME of {', '.join(found)}")


def _by_any_name(found: Mapping[str, Accelerator]) -> dict[str, Accelerator]:
    """Every name, alias and label -> accelerator; a name wins over an alias."""
    names = {_key(alias): item for item in found.values() for alias in (item.label, *item.aliases)}
    return names | {_key(name): item for name, item in found.items()}


def _key(name: str) -> str:
    """What two spellings of one card share: "NVIDIA GeForce RTX 4090", "rtx-4090" and "RTX4090" are one."""
    words = name.lower().replace("_", " ").replace("-", " ").split()
    return "".join(word for word in words if word not in MAKERS)


def _accelerators(tables: Mapping[str, Any], provenance: Provenance, where: str) -> dict[str, Accelerator]:
    texts = tables.get("sources", {})
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise InputError(f"{where}sources", repr(texts)[:60], "a table of strings")
    found = {}
    for name, table in tables.items():
        if name == "sources":
            continue
        if not isinstance(table, dict):
            raise InputError(f"{where}{name}", repr(table)[:60], f"a table [{name}]")
        found[name] = _parse(name, _Table(table, f"{where}{name}."), texts, provenance)
    if not found:
        raise InputError(f"{where}entries", "none", "at least one [name] table")
    return found


def _parse(name: str, table: _Table, texts: Mapping[str, str], provenance: Provenance) -> Accelerator:
    strange = sorted(set(table.values) - {*KEYS, "sources"})
    if strange:
        raise InputError(table.where + strange[0], "unknown", f"the fields {', '.join((*KEYS, 'sources'))}")
    stated = [key for key in ("memory_mib", "memory_gib") if key in table.values]
    if len(stated) != 1:
        raise InputError(
            table.where + "memory_mib", "missing" if not stated else "given twice", "memory_mib (driver) or memory_gib"
        )
    unit = MIB if stated[0] == "memory_mib" else GIB
    dense = _Table(table.mapping("dense"), f"{table.where}dense.")
    unknown = sorted(set(dense.values) - set(DTYPES))
    if unknown or not dense.values:
        raise InputError(table.where + "dense", ", ".join(unknown) or "empty", f"rates by dtype: {', '.join(DTYPES)}")
    return Accelerator(
        name=name,
        label=table.text("label", name),
        vendor=table.text("vendor"),
        memory_bytes=round(table.number(stated[0]) * unit),
        memory_source="driver" if unit == MIB else "nominal",
        bandwidth_bytes_per_s=table.number("bandwidth") * 1e9,
        flops_per_s={dtype: dense.number(dtype) * 1e12 for dtype in dense.values},
        link_bytes_per_s=table.number("link") * 1e9 if "link" in table.values else None,
        power_w=table.number("power_w") if "power_w" in table.values else None,
        sources=tuple(texts.get(source, source) for source in table.texts("sources")),
        provenance=provenance,
        link_name=table.text("link_name"),
        aliases=table.texts("aliases"),
    )


@dataclass(frozen=True)
class _Table:
    """A TOML table with typed access whose errors name the field."""

    values: Mapping[str, Any]
    where: str

    def number(self, name: str) -> float:
        value = self.values.get(name)
        # nan fails the comparison too
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_NUMBER:
            raise InputError(self.where + name, "missing" if value is None else repr(value)[:60], "a number above 0")
        return float(value)

    def text(self, name: str, default: str = "") -> str:
        value = self.values.get(name, default)
        if not isinstance(value, str):
            raise InputError(self.where + name, repr(value)[:60], "a string")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.values.get(name, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise InputError(self.where + name, repr(value)[:60], "a list of strings")
        return tuple(value)

    def mapping(self, name: str) -> Mapping[str, Any]:
        value = self.values.get(name)
        if not isinstance(value, dict):
            raise InputError(self.where + name, "missing" if value is None else repr(value)[:60], "a table of rates")
        return value
