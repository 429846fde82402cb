"""The engines, what each is started with, and the settings that are tried one after another to find its best."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.threads import worker_environment
from peer_engines.contestants import Contestant
from peer_engines.model_files import path_of
from peer_engines.venvs import REPOSITORY, python_of

MOST_SEQUENCES = 32
CONTEXTS = {"1": 2304, "8": 256, "32": 256}  # 2,048 in and a few out; 128 in and 128 out


@dataclass(frozen=True)
class Change:
    """One thing to try: options of the child and environment variables that replace the ones so far."""

    label: str
    options: tuple[tuple[str, Any], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Kind:
    """An engine. `peer` is the name of its environment, None for this project's own; `form` is the model's form."""

    script: str
    peer: str | None
    form: str
    options: tuple[tuple[str, Any], ...]
    environment: tuple[tuple[str, str], ...] = ()
    changes: tuple[Change, ...] = ()


_IOMP = (("LD_PRELOAD", "{venv}/lib/libiomp5.so"),)

_OURS = Kind(
    "ours.py",
    None,
    "embedded",
    (("dtype", "bf16"), ("max_num_seqs", MOST_SEQUENCES), ("prefix_cache", "off")),
    changes=(
        Change("steps of 512 tokens", (("max_num_batched_tokens", 512),)),
        Change("steps of 2,048 tokens", (("max_num_batched_tokens", 2048),)),
    ),
)
_HF_OPTIONS = (("attention", "sdpa"), ("dtype", "bfloat16"))
_HF_CHANGES = (
    Change("libiomp5 preloaded", (), _IOMP),
    Change("attention eager", (("attention", "eager"),)),
    Change("static cache", (("generate", {"cache_implementation": "static", "disable_compile": True}),)),
    Change("torch.compile", (("compile", True),)),
)
_VLLM_OPTIONS = (
    ("dtype", "bfloat16"),
    ("max_model_len", CONTEXTS["1"]),
    ("max_num_seqs", MOST_SEQUENCES),
    ("max_num_batched_tokens", 4096),
    ("enable_prefix_caching", False),
)
_VLLM_VARIABLES = (
    *_IOMP,
    ("VLLM_CPU_OMP_THREADS_BIND", "{cores}"),
    ("VLLM_CPU_KVCACHE_SPACE", "1"),  # GiB: 32 sequences of 256 tokens need 0.2
    ("VLLM_NO_USAGE_STATS", "1"),
)
_VLLM_CHANGES = (
    Change("not compiled", (("enforce_eager", True),)),
    Change("threads bound by itself", (), (("VLLM_CPU_OMP_THREADS_BIND", "auto"),)),
    Change("libgomp", (), (("LD_PRELOAD", ""),)),
    Change("engine in the caller's process", (), (("VLLM_ENABLE_V1_MULTIPROCESSING", "0"),)),
    Change("steps of 1,024 tokens", (("max_num_batched_tokens", 1024),)),
    Change("blocks of 32", (("block_size", 32),)),
    Change("KV not split", (), (("VLLM_CPU_ATTN_SPLIT_KV", "0"),)),
    Change("KV space of 4 GiB", (), (("VLLM_CPU_KVCACHE_SPACE", "4"),)),
)
_LLAMA_OPTIONS = (
    ("n_batch", 2048),
    ("n_ubatch", 512),
    ("flash", True),
    ("kv", "f16"),
    ("unified", False),
    ("mmap", True),
    ("repack", True),
    ("contexts", CONTEXTS),
)
_LLAMA_CHANGES = (
    Change("flash attention off", (("flash", False),)),
    Change("n_ubatch 128", (("n_ubatch", 128),)),
    Change("n_ubatch 2048", (("n_ubatch", 2048),)),
    Change("weights not repacked", (("repack", False),)),
    Change("weights not mapped", (("mmap", False),)),
    Change("one KV buffer for all", (("unified", True),)),
    Change("KV in bf16", (("kv", "bf16"),)),
    Change("threads bound", (), (("OMP_PROC_BIND", "true"),)),
    Change("threads spin while they wait", (), (("OMP_WAIT_POLICY", "active"),)),
)


def _in_fp32(options: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, "float32" if name == "dtype" else value) for name, value in options)


def _in_few_bits(weights: str, **settings: str) -> Kind:
    return replace(_OURS, options=(*_OURS.options, ("weights", weights), *settings.items()))


KINDS = {
    "ours": _OURS,
    "llamacpp": Kind("llama_batches.py", "llamacpp", "bf16", _LLAMA_OPTIONS, (), _LLAMA_CHANGES),
    "vllm": Kind("vllm_cpu.py", "vllm", "hf-bf16", _VLLM_OPTIONS, _VLLM_VARIABLES, _VLLM_CHANGES),
    "transformers": Kind("hf_generate.py", "transformers", "hf-bf16", _HF_OPTIONS, (), _HF_CHANGES),
    # The same weights computed in fp32: faster where the processor has no bf16 products.
    "vllm-fp32": Kind("vllm_cpu.py", "vllm", "hf-bf16", _in_fp32(_VLLM_OPTIONS), _VLLM_VARIABLES, _VLLM_CHANGES),
    "transformers-fp32": Kind("hf_generate.py", "transformers", "hf-bf16", _in_fp32(_HF_OPTIONS), (), _HF_CHANGES),
    # Weights in few bits, with the head in 8 bits as llama.cpp's files have it (as-stored: the shipped file's own).
    "ours-as-stored": _in_few_bits("as-stored"),
    "ours-w8a16": _in_few_bits("w8a16", head_weights="int8"),
    "ours-w8a8": _in_few_bits("w8a8", head_weights="int8"),
    "ours-w4a16": _in_few_bits("w4a16-rtn", head_weights="int8"),
    **{
        f"llamacpp-{form}": Kind("llama_batches.py", "llamacpp", form, _LLAMA_OPTIONS, (), _LLAMA_CHANGES)
        for form in ("q8_0", "q4_0", "shipped")
    },
}


def contestant(
    name: str, root: Path, threads: int, options: dict[str, Any], environment: dict[str, str], label: str = ""
) -> Contestant:
    """An engine of KINDS with settings from `base` or the tuned ones. Nothing is started yet."""
    kind = KINDS[name]
    places = {"venv": str(root / (kind.peer or "")), "cores": f"0-{threads - 1}" if threads > 1 else "0"}
    variables = {key: value.format(**places) for key, value in environment.items()}
    given = dict(options)
    if kind.peer is None:
        variables = {**worker_environment(), "PYTHONPATH": str(REPOSITORY), **variables}
    else:
        given["model"] = str(path_of(root, kind.form))
        if kind.peer != "vllm":
            given["threads"] = threads
    logs = root / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    log_file = logs / f"{name}{'-' if label else ''}{label.replace(' ', '-').replace(',', '')}.log"
    python = Path(sys.executable) if kind.peer is None else python_of(root, kind.peer)
    return Contestant(label or name, python, kind.script, given, variables, log_file)


def base(name: str) -> tuple[dict[str, Any], dict[str, str]]:
    """(options, environment) before anything was tried."""
    return dict(KINDS[name].options), dict(KINDS[name].environment)


def tuned_file(root: Path) -> Path:
    """Where the best settings found on this machine are kept, with everything that was tried."""
    return root / "tuned.json"


def tuned(root: Path) -> dict[str, Any]:
    """{engine: {"options", "environment", "tried"}} as --tune left it; empty before."""
    try:
        return dict(json.loads(tuned_file(root).read_text("utf-8")))
    except (OSError, ValueError):
        return {}


def chosen(name: str, root: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """(options, environment) to measure with: the tuned ones, or where there are none the documented ones."""
    found = tuned(root).get(name)
    return base(name) if found is None else (found["options"], found["environment"])
