"""How each engine turns a card's memory into a KV cache: which fraction, of what, and what it covers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ledger.errors import InputError

Rule = Literal["of total", "of free at start", "of free after loading", "no fraction"]


@dataclass(frozen=True)
class EngineRule:
    """One engine's rule.

    memory_fraction   its default; 1.0 where the engine has no fraction
    covers            accounts that have to fit in the fraction; the others lie beside it ("of total" rules)
    flag              the option's name in that engine
    """

    name: str
    label: str
    rule: Rule
    memory_fraction: float
    flag: str
    covers: frozenset[str]
    how: str
    source: str


_MODEL = frozenset({"weights", "vision_weights", "kv_cache", "state"})

ENGINES: dict[str, EngineRule] = {
    rule.name: rule
    for rule in (
        EngineRule(
            "vllm",
            "vLLM",
            "of total",
            0.92,
            "--gpu-memory-utilization",
            _MODEL | {"activations", "workspace", "graph_pool", "communicator"},
            "fraction x total memory holds weights, profiled activation peak and KV cache; the device context, which "
            "is there before profiling starts, lies outside; graphs, captured later, are counted inside to be safe",
            "docs.vllm.ai, vllm.config.cache: gpu_memory_utilization 0.92 (0.9 before)",
        ),
        EngineRule(
            "sglang",
            "SGLang",
            "of free at start",
            0.88,
            "--mem-fraction-static",
            _MODEL,
            "fraction x memory free at start holds weights and KV pool; activations and graphs have to fit in the rest",
            "sglang server_args.py, model_runner.py: mem_fraction_static is derived from the card (0.87 on an H100); "
            "0.88 when the card is not known",
        ),
        EngineRule(
            "tensorrt-llm",
            "TensorRT-LLM",
            "of free after loading",
            0.9,
            "free_gpu_memory_fraction",
            frozenset({"kv_cache", "state"}),
            "fraction x memory that weights, activations and context leave free goes to the KV cache",
            "nvidia.github.io/TensorRT-LLM, KvCacheConfig: free_gpu_memory_fraction 0.9",
        ),
        EngineRule(
            "llama.cpp",
            "llama.cpp",
            "no fraction",
            1.0,
            "--ctx-size",
            frozenset(),
            "no fraction: the KV cache is allocated in full for the context of all slots at start",
            "llama.cpp server README: --ctx-size, --parallel",
        ),
        EngineRule(
            "trilemma",
            "Trilemma",
            "no fraction",
            1.0,
            "kv_memory_mib",
            frozenset(),
            "no fraction: the KV pool is as large as kv_memory_mib says",
            "this workbench",
        ),
    )
}


def engine_rule(name: str) -> EngineRule:
    """The rule of an engine, whatever the letter case. InputError for an unknown one."""
    found = ENGINES.get(str(name).strip().lower())
    if found is None:
        raise InputError("engine", str(name)[:60], ", ".join(ENGINES))
    return found
