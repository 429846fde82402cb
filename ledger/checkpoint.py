"""How a quantized checkpoint stores its weights, from `quantization_config`. Knows formats and module names only."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from ledger.block_formats import WEIGHT_FORMATS, WeightFormat
from ledger.errors import InputError
from ledger.fields import Fields
from ledger.model_spec import ModelSpec

MAX_PATTERNS = 20_000
MAX_PATTERN_LENGTH = 300
MAX_REPEATS = 5  # what a pattern of a config may cost: a nested repetition takes exponential time
IGNORE_NAMES = (
    "ignore", "modules_to_not_convert", "ignored_layers", "llm_int8_skip_modules", "exclude_modules",
)  # fmt: skip
_PREFIXES = re.compile(r"^(model\.)?language_model\.")


@dataclass(frozen=True)
class StoredScheme:
    """The format of quantized linear layers, and which modules stay as they were."""

    format: WeightFormat
    exact: frozenset[str] = frozenset()
    patterns: tuple[re.Pattern[str], ...] = ()
    experts_only: bool = False

    @property
    def by_layer(self) -> bool:
        """True when what is left out may differ from layer to layer."""
        return any(map(str.isdigit, "".join(self.exact))) or any(
            re.search(r"\d|\\d|\[", pattern.pattern) for pattern in self.patterns
        )

    def keeps(self, module: str) -> bool:
        """True when this module is not quantized: named in full, by a run of its dotted parts, or by a pattern."""
        parts = module.split(".")
        runs = (".".join(parts[i:j]) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1))
        return any(run in self.exact for run in runs) or any(pattern.match(module) for pattern in self.patterns)


def stored_scheme(spec: ModelSpec) -> StoredScheme | None:
    """The scheme of the checkpoint's `quantization_config`; None when the config has none.

    InputError for a method that is not known or settings that make no sense.
    """
    fields = Fields(spec.config).section("quantization_config")
    if fields is None:
        fields = Fields(spec.outer_config).section("quantization_config")
    if fields is None:
        return None
    method = fields.text("quant_method").lower().replace("_", "-")
    if method not in _READERS:
        accepted = f"{', '.join(_READERS)}, or a format given for the weights"
        raise InputError(fields.where + "quant_method", method[:60] or "missing", accepted)
    exact, patterns = _ignored(fields)
    found = _READERS[method](fields)
    return StoredScheme(found, exact, patterns, experts_only=method == "mxfp4")


def _gptq(fields: Fields) -> WeightFormat:
    bits = _bits(fields, "bits")
    return _integer(f"gptq-{bits}bit", bits, _group(fields), zero_point=True, column_bytes=4)


def _awq(fields: Fields) -> WeightFormat:
    bits = _bits(fields, "bits", "w_bit")
    return _integer(f"awq-{bits}bit", bits, _group(fields), zero_point=fields.boolean("zero_point", True))


def _fp8(fields: Fields) -> WeightFormat:
    block = fields.integers("weight_block_size", 2, minimum=1)
    if block is None:
        return replace(WEIGHT_FORMATS["fp8"], row_bytes=0, tensor_bytes=4)
    return replace(WEIGHT_FORMATS["fp8-block"], block=(block[0], block[1]))


def _mxfp4(fields: Fields) -> WeightFormat:
    return WEIGHT_FORMATS["mxfp4"]


def _bitsandbytes(fields: Fields) -> WeightFormat:
    if fields.boolean("load_in_8bit") or fields.boolean("_load_in_8bit"):
        return WeightFormat("bnb-8bit", 8, row_bytes=4, compute_dtype="int8")
    # Nested scales: one byte a group, and a float32 for every 256 of them.
    nested = fields.boolean("bnb_4bit_use_double_quant")
    return replace(WEIGHT_FORMATS["nf4"], name="bnb-4bit", group_bits=8 if nested else 32)


def _modelopt(fields: Fields) -> WeightFormat:
    inner = fields.section("quantization") or fields
    algorithm = inner.text("quant_algo").upper()
    if "FP4" in algorithm:
        return replace(WEIGHT_FORMATS["nvfp4"], group_size=inner.integer("group_size", default=16))
    if algorithm == "FP8":
        return replace(WEIGHT_FORMATS["fp8"], row_bytes=0, tensor_bytes=4)
    raise InputError(inner.where + "quant_algo", algorithm[:60] or "missing", "NVFP4 or FP8")


def _compressed_tensors(fields: Fields) -> WeightFormat:
    groups = fields.section("config_groups")
    if groups is None or not groups.values:
        raise InputError(fields.where + "config_groups", "missing", "at least one group of settings")
    first = groups.section(next(iter(groups.values)))
    weights = first.section("weights") if first else None
    if first is None or weights is None:
        raise InputError(groups.where + "weights", "missing", "the settings of the weights")
    bits = _bits(weights, "num_bits")
    activations = first.section("input_activations")
    is_float = weights.text("type", "int") == "float"
    strategy = weights.text("strategy", "group" if weights.has("group_size") else "channel")
    if is_float and bits == 4:
        return replace(WEIGHT_FORMATS["nvfp4"], group_size=weights.integer("group_size", default=16))
    eight = activations is not None and activations.optional_integer("num_bits") == 8
    compute = ("fp8" if is_float else "int8") if eight else "bf16"
    name = f"{'fp' if is_float else 'int'}{bits}-{strategy}"
    zero_point = not weights.boolean("symmetric", True)
    if strategy == "group":
        return replace(_integer(name, bits, _group(weights), zero_point=zero_point), compute_dtype=compute)
    if strategy == "block":
        block = weights.integers("block_structure", 2, minimum=1) or [128, 128]
        return WeightFormat(name, bits, block=(block[0], block[1]), block_bytes=4, compute_dtype=compute)
    if strategy == "tensor":
        return WeightFormat(name, bits, tensor_bytes=2, compute_dtype=compute)
    return WeightFormat(name, bits, row_bytes=2 + (1 if zero_point else 0), compute_dtype=compute)


_READERS: dict[str, Callable[[Fields], WeightFormat]] = {
    "gptq": _gptq,
    "awq": _awq,
    "fp8": _fp8,
    "fbgemm-fp8": lambda fields: WEIGHT_FORMATS["fp8"],
    "mxfp4": _mxfp4,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt,
    "modelopt-fp4": _modelopt,
}


def _integer(name: str, bits: int, group: int | None, *, zero_point: bool, column_bytes: int = 0) -> WeightFormat:
    """Integers with a 2-byte scale (and a packed zero point) a group, or a row where there are no groups."""
    zero = bits if zero_point else 0
    if group is None:
        return WeightFormat(name, bits, row_bytes=2 + -(-zero // 8), column_bytes=column_bytes)
    return WeightFormat(name, bits, group, 16 + zero, column_bytes=column_bytes)


def _bits(fields: Fields, *names: str) -> int:
    bits = fields.integer(*names)
    if bits not in (2, 3, 4, 8):
        raise InputError(fields.where + names[0], bits, "2, 3, 4 or 8")
    return bits


def _group(fields: Fields) -> int | None:
    """The group size; None for -1 (one scale a row)."""
    size = fields.integer("group_size", "q_group_size", default=128, minimum=-1)
    if size == 0:
        raise InputError(fields.where + "group_size", size, "-1, or an integer from 1 up")
    return None if size == -1 else size


def _ignored(fields: Fields) -> tuple[frozenset[str], tuple[re.Pattern[str], ...]]:
    """The modules that are left out, as names and as patterns ("re:..." or with a *)."""
    names = [str(name) for key in IGNORE_NAMES for name in _list(fields, key)]
    dynamic = fields.section("dynamic")  # GPTQModel: "-:pattern" takes modules out
    names += [f"re:{key[2:]}" for key in (dynamic.values if dynamic else {}) if key.startswith("-:")]
    exact, patterns = set(), []
    for name in names:
        if len(name) > MAX_PATTERN_LENGTH:
            accepted = f"at most {MAX_PATTERN_LENGTH} characters a name"
            raise InputError(fields.where + "ignore", name[:40] + "...", accepted)
        if name.startswith("re:") or "*" in name:
            if len(re.findall(r"[*+{]", name)) > MAX_REPEATS or re.search(r"\)\s*[*+{]", name):
                accepted = f"patterns of at most {MAX_REPEATS} repetitions, and none of a group"
                raise InputError(fields.where + "ignore", name[:60], accepted)
            glob = re.escape(name).replace(r"\*", ".*") + r"(\.|$)"
            try:
                patterns.append(re.compile(name[3:] if name.startswith("re:") else glob))
            except (re.error, OverflowError, RecursionError):
                raise InputError(fields.where + "ignore", name[:60], "regular expressions that compile") from None
        else:
            exact.add(_PREFIXES.sub("model.", name))
    return frozenset(exact), tuple(patterns)


def _list(fields: Fields, key: str) -> list[object]:
    value = fields.values.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > MAX_PATTERNS or not all(isinstance(name, str) for name in value):
        raise InputError(fields.where + key, type(value).__name__, f"a list of at most {MAX_PATTERNS:,} names")
    return value
