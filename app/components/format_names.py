"""How a format is called on the page: by what it changes of the baseline."""

from __future__ import annotations

from collections.abc import Mapping

from app.state import t
from core_engine.variables import W4A16, Value

NAMED = ("weights", "weight_group", "weight_symmetric", "head_weights", "kv_dtype", "kv_key_axis", "kv_protect")
FOLLOWS = ("prefix_cache",)  # held because a format needs it


def format_name(changed: Mapping[str, Value], group: str, dtype: str) -> str:
    """W4A16 AWQ g64, KV INT8, ...; the baseline by its number format."""
    if not changed:
        return t("quant.baseline_name", dtype=_dtype(dtype))
    parts = []
    if "weights" in changed:
        parts.append(weights_name(str(changed["weights"])))
    if changed.get("weights") in W4A16:
        parts[-1] += f" g{group}"
    if changed.get("weight_symmetric") == "off":
        parts.append(t("quant.asymmetric"))
    if "head_weights" in changed:
        parts.append(t("quant.head_int8"))
    if "kv_dtype" in changed:
        parts.append(f"KV {str(changed['kv_dtype']).upper()}")
    parts += [t(f"quant.{name}_{changed[name]}") for name in ("kv_key_axis", "kv_protect") if name in changed]
    known = (*NAMED, *(FOLLOWS if parts else ()))
    parts += [f"{name}={value}" for name, value in changed.items() if name not in known]
    return ", ".join(parts)


def weights_name(value: str) -> str:
    """A value of the variable `weights` as it is written."""
    if value == "as-stored":
        return t("quant.as_stored")
    return value.replace("-", " ").upper()


def _dtype(name: str) -> str:
    return t("quant.auto_dtype") if name == "auto" else name.upper()
