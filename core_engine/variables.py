"""The registry of every variable a user can change: one entry each, read by the engine, the command line and the page.

Owns names, types, choices, defaults and what each variable is expected to move. Knows nothing of how a mechanism works.
Adding an optimisation means writing the mechanism and one entry here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ledger.errors import InputError

Value = str | int | float


@dataclass(frozen=True)
class Variable:
    """One setting of the engine.

    kind is one of "choice", "int", "float", "path"; minimum and maximum are inclusive; unit is for display.
    derives names what follows from it (listed in results as changed because of it), moves the curves it should move,
    peers the flag that does the same elsewhere, requires the values of other variables that a value of it needs.
    """

    name: str
    kind: str
    default: Value
    help: str
    group: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    unit: str = ""
    derives: tuple[str, ...] = ()
    moves: tuple[str, ...] = ()
    peers: Mapping[str, str] = field(default_factory=dict)
    requires: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)

    def accepted(self) -> str:
        """What this variable accepts, in words, for error messages."""
        if self.kind == "choice":
            return ", ".join(self.choices)
        if self.kind == "path":
            return "embedded, or the path of a model directory or .gguf file"
        kind = "a whole number" if self.kind == "int" else "a number"
        return f"{kind} from {self.minimum:g} to {self.maximum:g}{' ' + self.unit if self.unit else ''}"


def _entries() -> tuple[Variable, ...]:
    return (
        Variable(
            "batching",
            "choice",
            "continuous",
            group="scheduling",
            choices=("continuous", "dynamic", "static"),
            moves=("ttft_s", "output_tokens_per_s", "itl_s"),
            help="When waiting requests may join: at every step, or only when a whole batch has ended.",
        ),
        Variable(
            "max_num_seqs",
            "int",
            8,
            group="scheduling",
            minimum=1,
            maximum=1024,
            moves=("ttft_s", "itl_s", "output_tokens_per_s"),
            derives=("activation_peak_bytes",),
            peers={
                "vLLM": "--max-num-seqs",
                "SGLang": "--max-running-requests",
                "TensorRT-LLM": "--max_batch_size",
                "llama.cpp": "--parallel",
            },
            help="Most requests that are computed together.",
        ),
        Variable(
            "max_wait_ms",
            "float",
            200.0,
            group="scheduling",
            minimum=0,
            maximum=60_000,
            unit="ms",
            moves=("ttft_s",),
            help="Dynamic batching only: longest time the oldest request waits for a full batch.",
        ),
        Variable(
            "max_num_batched_tokens",
            "int",
            256,
            group="scheduling",
            minimum=1,
            maximum=65_536,
            unit="tokens",
            moves=("ttft_s", "itl_s"),
            derives=("activation_peak_bytes",),
            peers={
                "vLLM": "--max-num-batched-tokens",
                "SGLang": "--chunked-prefill-size",
                "TensorRT-LLM": "--max_num_tokens",
                "llama.cpp": "--batch-size",
            },
            help="Most tokens computed in one step, prefill and decode together.",
        ),
        Variable(
            "chunked_prefill",
            "choice",
            "on",
            group="scheduling",
            choices=("on", "off"),
            moves=("itl_s", "ttft_s"),
            peers={"vLLM": "--enable-chunked-prefill", "SGLang": "--chunked-prefill-size"},
            help="Whether a long prompt may be computed over several steps beside running decodes.",
        ),
        Variable(
            "max_queue",
            "int",
            4096,
            group="scheduling",
            minimum=1,
            maximum=1_000_000,
            unit="requests",
            moves=("ttft_s",),
            help="Most requests that may wait; one more is refused.",
        ),
        Variable(
            "kv_layout",
            "choice",
            "paged",
            group="memory",
            choices=("paged", "contiguous"),
            moves=("ttft_s", "output_tokens_per_s"),
            requires={"contiguous": {"prefix_cache": "off"}},
            help="Blocks as tokens come, or one run of memory for the longest an answer may become.",
        ),
        Variable(
            "block_size",
            "int",
            16,
            group="memory",
            minimum=1,
            maximum=1024,
            unit="tokens",
            derives=("num_kv_blocks",),
            peers={"vLLM": "--block-size", "SGLang": "--page-size"},
            help="Tokens in one block of the paged KV cache.",
        ),
        Variable(
            "kv_memory_mib",
            "int",
            256,
            group="memory",
            minimum=1,
            maximum=1_048_576,
            unit="MiB",
            derives=("num_kv_blocks",),
            moves=("output_tokens_per_s", "ttft_s"),
            peers={"vLLM": "--kv-cache-memory-bytes", "SGLang": "--max-total-tokens", "llama.cpp": "--ctx-size"},
            help="Memory given to the KV cache.",
        ),
        Variable(
            "kv_watermark",
            "float",
            0.01,
            group="memory",
            minimum=0,
            maximum=0.5,
            moves=("ttft_s",),
            help="Share of the KV blocks kept free when a request is admitted, so that running ones can grow.",
        ),
        Variable(
            "prefix_cache",
            "choice",
            "on",
            group="memory",
            choices=("on", "off"),
            moves=("ttft_s", "output_tokens_per_s"),
            peers={
                "vLLM": "--enable-prefix-caching",
                "SGLang": "--disable-radix-cache",
                "TensorRT-LLM": "enable_block_reuse",
                "llama.cpp": "--cache-prompt",
            },
            help="Whether the KV of a prompt's beginning is reused when an earlier request began alike.",
        ),
        Variable(
            "model",
            "path",
            "embedded",
            group="model",
            moves=("ttft_s", "itl_s", "output_tokens_per_s", "quality"),
            derives=("num_kv_blocks",),
            help="The embedded SmolLM2-135M-Instruct, or a local directory (config.json, safetensors) or GGUF file.",
        ),
        Variable(
            "device",
            "choice",
            "auto",
            group="model",
            choices=("auto", "cpu", "cuda"),
            moves=("ttft_s", "itl_s", "output_tokens_per_s"),
            help="Where the model runs; auto takes CUDA when present.",
        ),
        Variable(
            "dtype",
            "choice",
            "auto",
            group="model",
            choices=("auto", "fp32", "bf16", "fp16"),
            moves=("ttft_s", "itl_s", "output_tokens_per_s", "quality"),
            derives=("num_kv_blocks",),
            peers={"vLLM": "--dtype", "SGLang": "--dtype", "llama.cpp": "--cache-type-k"},
            help="Number format of weights, activations and KV; auto is bf16 where the processor has it, else fp32.",
        ),
        Variable(
            "threads",
            "int",
            0,
            group="model",
            minimum=0,
            maximum=512,
            moves=("itl_s", "output_tokens_per_s"),
            peers={"llama.cpp": "--threads"},
            help="CPU threads; 0 takes every core this process may use.",
        ),
        Variable(
            "seed",
            "int",
            0,
            group="sampling",
            minimum=0,
            maximum=2**63 - 1,
            peers={"vLLM": "--seed"},
            help="Seed of the requests that bring none of their own.",
        ),
    )


VARIABLES: dict[str, Variable] = {entry.name: entry for entry in _entries()}


def variable(name: str) -> Variable:
    """The entry called `name`; InputError when there is none."""
    if name not in VARIABLES:
        raise InputError("variable", name, ", ".join(VARIABLES))
    return VARIABLES[name]


def parse_value(name: str, text: Any) -> Value:
    """Turn text (or an already typed value) into a valid value of variable `name`; InputError otherwise."""
    entry = variable(name)
    if entry.kind == "choice":
        if text not in entry.choices:
            raise InputError(name, text, entry.accepted())
        return str(text)
    if entry.kind == "path":
        if not str(text).strip():
            raise InputError(name, text, entry.accepted())
        return str(text)
    return _parse_number(entry, text)


def _parse_number(entry: Variable, text: Any) -> Value:
    try:
        number = int(str(text)) if entry.kind == "int" else float(str(text))
    except ValueError:
        raise InputError(entry.name, text, entry.accepted()) from None
    low, high = entry.minimum, entry.maximum
    if low is None or high is None:
        raise TypeError(f"variable {entry.name} has no range")  # a fault of the registry, not of the user
    if not low <= number <= high:  # also refuses NaN, which compares false
        raise InputError(entry.name, text, entry.accepted())
    return number


def parse_setting(text: str) -> tuple[str, Value]:
    """Parse "NAME=VALUE"; InputError names the field and what is accepted."""
    name, separator, value = text.partition("=")
    if not separator:
        raise InputError("--set", text, "NAME=VALUE")
    return name.strip(), parse_value(name.strip(), value.strip())
