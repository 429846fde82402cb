"""Launch lines of a plan for vLLM, SGLang and TensorRT-LLM, each with the memory fraction in that engine's own meaning.

Only options that the engines' documentation names: docs.vllm.ai (engine arguments, NixlConnector usage guide),
docs.sglang.io (server arguments, PD disaggregation), nvidia.github.io/TensorRT-LLM (trtllm-serve, disaggregated
serving, KvCacheConfig). The fraction is the one that leaves the KV pool that was simulated, by ledger/engines.py, and
at most the engine's default. $MODEL stands for the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import floor
from typing import Any

from experiments.planner.candidates import Candidate
from ledger.capacity import Deployment, kv_room_bytes
from ledger.engines import engine_rule
from ledger.weight_formats import AS_STORED

GIB = 2**30
BOOTSTRAP_PORT = 8998  # SGLang's default
STEPS = 100  # fractions are tried in hundredths
PROXY = "python tests/v1/kv_connector/nixl_integration/toy_proxy_server.py"
NIXL = """'{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_load_failure_policy":"fail"}'"""
WITHOUT_FLAG = {
    "bf16": "a 16-bit checkpoint",
    "fp16": "a 16-bit checkpoint",
    AS_STORED: "the checkpoint as its config.json describes it",
}


@dataclass(frozen=True)
class _Engine:
    name: str
    fractions: Callable[[float], str]
    base: Callable[[Candidate, int], str]
    weights: dict[str, tuple[str, str]]  # format -> (flags, what $MODEL has to be)
    kv: dict[str, tuple[str, str]]  # format -> (flags, line of a file that they name)


def launch_lines(candidate: Candidate, deployment: Deployment, kv_bytes: int, replicas: int) -> list[dict[str, Any]]:
    """[{"engine","lines","files","model","memory","notes"}]; lines None where the engine can't run the plan, with the
    reason in notes. deployment: of the plan's replica; kv_bytes: of the simulated pool, on the fullest rank."""
    return [_of(engine, candidate, deployment, kv_bytes, replicas) for engine in _ENGINES]


def fraction_for(engine: str, deployment: Deployment, kv_bytes: int) -> float:
    """The least fraction, in hundredths, under which the engine's own rule leaves so many bytes for KV; its default,
    rounded down, where none of those does."""
    default = engine_rule(engine).memory_fraction
    other = _under(engine, deployment)
    for hundredths in range(1, floor(default * STEPS) + 1):
        if (kv_room_bytes(replace(other, memory_fraction=hundredths / STEPS)) or 0) >= kv_bytes:
            return hundredths / STEPS
    return floor(default * STEPS) / STEPS


def _under(engine: str, deployment: Deployment) -> Deployment:
    return replace(deployment, engine=engine, memory_fraction=None)


def _of(engine: _Engine, candidate: Candidate, deployment: Deployment, kv_bytes: int, replicas: int) -> dict[str, Any]:
    rule = engine_rule(engine.name)
    found: dict[str, Any] = {"engine": rule.label, "lines": None, "files": {}, "model": "", "memory": None, "notes": []}
    for name, value, known in (("weights", candidate.weights, engine.weights), ("KV", candidate.kv_dtype, engine.kv)):
        if value not in known:
            return found | {"notes": [f"{rule.label} documents no option for {name} in {value}"]}
    fraction = fraction_for(engine.name, deployment, kv_bytes)
    room = kv_room_bytes(replace(_under(engine.name, deployment), memory_fraction=fraction)) or 0
    weight_flags, model = engine.weights[candidate.weights]
    kv_flags, kv_yaml = engine.kv[candidate.kv_dtype]
    parts = [engine.base(candidate, deployment.seq_len), engine.fractions(fraction), weight_flags, kv_flags]
    line = " ".join(filter(None, parts))
    memory = {
        "flag": rule.flag, "fraction": fraction, "rule": rule.rule, "how": rule.how,
        "kv_room_bytes": room, "simulated_kv_bytes": kv_bytes, "provenance": "computed",
    }  # fmt: skip
    notes = []
    if room < kv_bytes:
        notes.append(f"leaves {room / GIB:.1f} GiB a card for KV, {kv_bytes / GIB:.1f} were simulated")
    if replicas > 1:
        notes.append(f"{replicas} of {'these groups' if candidate.is_apart else 'these'}, behind a router")
    files = {"extra.yaml": kv_yaml} if kv_yaml else {}
    lines = [line]
    if candidate.is_apart:
        lines, files, told = _APART[engine.name](line, candidate, kv_yaml, deployment.seq_len)
        notes.append(told)
    return found | {"lines": lines, "files": files, "model": model, "memory": memory, "notes": notes}


def _vllm(candidate: Candidate, seq_len: int) -> str:
    return (
        f'vllm serve "$MODEL" --tensor-parallel-size {candidate.tp} --pipeline-parallel-size {candidate.pp}'
        f" --max-num-seqs {candidate.max_num_seqs} --max-num-batched-tokens {candidate.max_num_batched_tokens}"
        f" --max-model-len {seq_len}"
    )


def _sglang(candidate: Candidate, seq_len: int) -> str:
    return (
        f'python -m sglang.launch_server --model-path "$MODEL" --tp-size {candidate.tp} --pp-size {candidate.pp}'
        f" --max-running-requests {candidate.max_num_seqs} --chunked-prefill-size {candidate.max_num_batched_tokens}"
        f" --context-length {seq_len}"
    )


def _tensorrt(candidate: Candidate, seq_len: int) -> str:
    return (
        f'trtllm-serve "$MODEL" --backend pytorch --tp_size {candidate.tp} --pp_size {candidate.pp}'
        f" --max_batch_size {candidate.max_num_seqs} --max_num_tokens {candidate.max_num_batched_tokens}"
        f" --max_seq_len {seq_len} --enable_chunked_prefill"
    )


_PLAIN = {name: ("", text) for name, text in WITHOUT_FLAG.items()}
_STORED_4 = ("", "a 4-bit AWQ or GPTQ checkpoint")
_ONLINE_8 = ("--quantization fp8", "a 16-bit checkpoint, quantized when it is loaded")
_AUTO: dict[str, tuple[str, str]] = {"bf16": ("", ""), "fp16": ("", "")}

_ENGINES = (
    _Engine(
        "vllm",
        lambda fraction: f"--gpu-memory-utilization {fraction:g}",
        _vllm,
        _PLAIN | {"fp8": _ONLINE_8, "w4a16": _STORED_4},
        _AUTO | {"fp8": ("--kv-cache-dtype fp8", "")},
    ),
    _Engine(
        "sglang",
        lambda fraction: f"--mem-fraction-static {fraction:g}",
        _sglang,
        _PLAIN | {"fp8": _ONLINE_8, "w4a16": _STORED_4},
        _AUTO | {"fp8": ("--kv-cache-dtype fp8_e4m3", "")},
    ),
    _Engine(
        "tensorrt-llm",
        lambda fraction: f"--kv_cache_free_gpu_memory_fraction {fraction:g}",
        _tensorrt,
        _PLAIN | {"fp8": ("", "an FP8 checkpoint"), "w4a16": ("", "a 4-bit AWQ checkpoint")},
        _AUTO | {"fp8": ("--config extra.yaml", "kv_cache_config:\n  dtype: fp8\n")},
    ),
)


def _apart_vllm(line: str, candidate: Candidate, _yaml: str, _seq_len: int) -> tuple[list[str], dict[str, str], str]:
    count = candidate.prefill_replicas + candidate.decode_replicas
    ports = [8100 + place for place in range(count)]
    ranks = candidate.tp * candidate.pp
    lines = [
        f"VLLM_NIXL_SIDE_CHANNEL_PORT={5600 + 100 * place} {_cards(place, ranks)} {line} --port {port}"
        f" --kv-transfer-config {NIXL}"
        for place, port in enumerate(ports)
    ]
    first, rest = ports[: candidate.prefill_replicas], ports[candidate.prefill_replicas :]
    lines.append(
        f"{PROXY} --port 8192 --prefiller-hosts {_hosts(first)} --prefiller-ports {_all(first)}"
        f" --decoder-hosts {_hosts(rest)} --decoder-ports {_all(rest)}"
    )
    told = (
        "prefill and decode apart: NixlConnector (experimental in vLLM) moves the KV; which server prefills is decided "
        "by the proxy, an example script of vLLM's repository"
    )
    return lines, {}, told


def _apart_sglang(line: str, candidate: Candidate, _yaml: str, _seq_len: int) -> tuple[list[str], dict[str, str], str]:
    ranks, prefill = candidate.tp * candidate.pp, candidate.prefill_replicas
    lines, urls = [], []
    for place in range(prefill + candidate.decode_replicas):
        mode, port = ("prefill" if place < prefill else "decode"), 30000 + 10 * place
        # Decode finds a prefill server by its bootstrap port, which two on one machine can't share.
        boot = BOOTSTRAP_PORT + place if mode == "prefill" else None
        urls.append(f"--{mode} http://127.0.0.1:{port}{f' {boot}' if boot else ''}")
        lines.append(
            f"{line} --disaggregation-mode {mode} --disaggregation-transfer-backend nixl --port {port}"
            f" --base-gpu-id {place * ranks}{f' --disaggregation-bootstrap-port {boot}' if boot else ''}"
        )
    lines.append(f"python -m sglang_router.launch_router --pd-disaggregation {' '.join(urls)} --port 8000")
    return lines, {}, "prefill and decode apart: built into SGLang, with its router in front"


def _apart_tensorrt(line: str, candidate: Candidate, yaml: str, seq_len: int) -> tuple[list[str], dict[str, str], str]:
    ranks, prefill = candidate.tp * candidate.pp, candidate.prefill_replicas
    bare = line.replace(" --config extra.yaml", "")
    transfer = f"cache_transceiver_config:\n  backend: NIXL\n  max_tokens_in_buffer: {seq_len}\n"
    lines, urls = [], []
    for place in range(prefill + candidate.decode_replicas):
        file = "context.yaml" if place < prefill else "generation.yaml"
        urls.append(f"localhost:{8001 + place}")
        lines.append(f"{_cards(place, ranks)} {bare} --host localhost --port {8001 + place} --config {file}")
    lines.append("trtllm-serve disaggregated -c disaggregated.yaml")
    files = {
        "context.yaml": f"disable_overlap_scheduler: True\n{transfer}{yaml}",
        "generation.yaml": f"{transfer}{yaml}",
        "disaggregated.yaml": "hostname: localhost\nport: 8000\nbackend: pytorch\n"
        + _servers("context_servers", urls[:prefill])
        + _servers("generation_servers", urls[prefill:]),
    }
    return lines, files, "prefill and decode apart: context and generation servers behind trtllm-serve disaggregated"


def _servers(name: str, urls: list[str]) -> str:
    listed = "".join(f'      - "{url}"\n' for url in urls)
    return f"{name}:\n  num_instances: {len(urls)}\n  urls:\n{listed}"


def _cards(place: int, ranks: int) -> str:
    return f"CUDA_VISIBLE_DEVICES={','.join(str(place * ranks + rank) for rank in range(ranks))}"


def _hosts(ports: list[int]) -> str:
    return " ".join("localhost" for _ in ports)


def _all(ports: list[int]) -> str:
    return " ".join(map(str, ports))


_APART = {"vllm": _apart_vllm, "sglang": _apart_sglang, "tensorrt-llm": _apart_tensorrt}
