"""Every format of the KV cache as settings: number format x key axis x protection, where they go together."""

from __future__ import annotations

from core_engine.variables import KV_DTYPES, VARIABLES

ON_A_CPU = tuple(name for name in KV_DTYPES if name not in ("fp16", "fp8"))


def every_format() -> list[dict[str, str]]:
    """All combinations that are not refused; `prefix_cache` where a protection needs it off."""
    found: list[dict[str, str]] = []
    for name in ON_A_CPU:
        with_zero = name in ("int4", "int2")
        for axis in VARIABLES["kv_key_axis"].choices if with_zero else ("channel",):
            for protect in VARIABLES["kv_protect"].choices if with_zero else ("none",):
                needed = VARIABLES["kv_protect"].requires.get(protect, {})
                chosen = {"kv_dtype": name, "kv_key_axis": axis, "kv_protect": protect}
                found.append({**chosen, **{other: str(value) for other, value in needed.items()}})
    return found


def text_of(form: dict[str, str]) -> str:
    """A test's name."""
    return "-".join(form[name] for name in ("kv_dtype", "kv_key_axis", "kv_protect"))
