"""The live ledger: what was predicted for an engine's settings beside what it holds now, account by account.

On a CPU the whole is the process's resident memory, on CUDA what NVML says of the process; formulas are the ledger's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from core_engine.executor.torch_executor import most_drafts
from core_engine.kv.format import KVFormat
from core_engine.memory_readings import device_memory, process_peak_bytes, process_rss_bytes
from core_engine.parallel.executor import ParallelExecutor
from core_engine.parallel.told import predicted_of_ranks, rank_accounts, runtime_of_all
from core_engine.sizes import deep_bytes
from ledger.memory import MemoryLedger, predict_ledger
from ledger.reconcile import Reading, reconcile
from ledger.step_kernels import StepKernels

if TYPE_CHECKING:
    from core_engine.answer_cache import AnswerCaches
    from core_engine.engine import Engine

MIB = 1024**2
SAMPLE = 8  # steps and requests whose size is taken for all of their kind


def predicted_ledger(engine: Engine) -> MemoryLedger:
    """What the engine's settings say, and the reading taken before its weights were read."""
    config, weights = engine.config, engine.loaded.weights
    if isinstance(engine.executor, ParallelExecutor):
        return predicted_of_ranks(engine.executor, config, engine.loaded.runtime_bytes)
    beside = 0 if config.chunked_prefill == "on" else config.max_num_seqs  # a whole prompt beside running decodes
    return predict_ledger(
        engine.loaded.spec,
        dtype_bytes=weights.dtype.itemsize,
        kv_pool_bytes=config.kv_memory_mib * MIB,
        kv=KVFormat.from_config(config, weights.dtype).blocks,
        max_num_batched_tokens=config.max_num_batched_tokens + beside,
        max_num_seqs=config.max_num_seqs,
        block_size=config.block_size,
        kernels=replace(
            StepKernels.of_run(config.settings(), engine.environment), formats=engine.loaded.decoder.formats
        ),
        runtime_bytes=engine.loaded.runtime_bytes if weights.device.type == "cpu" else None,
        most_drafts=most_drafts(config),
    )


def memory_accounts(engine: Engine, predicted: MemoryLedger) -> dict[str, Any]:
    """`ledger.reconcile`'s JSON of a running engine, with "process_peak_bytes" and, on CUDA, torch's own two sums."""
    executor, loaded = engine.executor, engine.loaded
    padding = executor.padding_bytes()
    measured = {
        "weights": Reading(loaded.weights.num_bytes(), "sum of the tensors held"),
        "kv_pool": Reading(executor.kv_pool_bytes(), "the cache tensor, written once at the start"),
        "padding_block": Reading(padding, "the cache tensor's last block"),
        "activation_peak": Reading(
            executor.activation_peak_bytes() - padding,
            "tensors alive together in the largest steps, run at the start",
        ),
    }
    if tails := executor.kv_tail_bytes():
        measured["kv_tail"] = Reading(tails, "the tensor of the slots")
    if (proposer := engine.speculation.proposer) is not None:
        measured["draft_weights"] = Reading(proposer.weights_bytes(), "the proposer's own tensors")
        measured["draft_cache"] = Reading(proposer.cache_bytes(), "what it keeps of the running requests")
    if isinstance(captured := engine.environment.get("captured"), dict):
        measured["graphs"] = Reading(captured["num_bytes"], "memory that captured steps keep for themselves")
    device = device_memory(loaded.weights.device)
    if device is not None:
        measured["context"] = Reading(device.context, "NVML, less what torch's allocator has reserved")
        whole = device.device_used if device.process is None else device.process
        found = reconcile(predicted, measured, whole)
        return {**found, "allocated_bytes": device.allocated, "reserved_bytes": device.reserved}
    measured |= {
        "runtime": Reading(_runtime_bytes(engine), "the same reading: interpreter, libraries, tokenizer"),
        "history": Reading(
            history_bytes(engine),
            "steps and requests kept, from the sizes of a few; it grows with the run, up to a bound",
            "estimated",
        ),
    }
    if engine.caches is not None:
        read = "stored answers, from the sizes of a few, question vectors and the encoder"
        measured["answer_cache"] = Reading(cache_bytes(engine.caches), read, "estimated")
    if engine.beside_bytes:
        measured["other_models"] = Reading(engine.beside_bytes, "weights of the comparison's other model")
    return {**reconcile(predicted, measured, resident_bytes(engine)), "process_peak_bytes": process_peak_bytes()}


def resident_bytes(engine: Engine) -> int | None:
    """Resident memory of this process, and of the ranks where there are some."""
    own = process_rss_bytes()
    if own is None or not isinstance(engine.executor, ParallelExecutor):
        return own
    return own + sum(account["process_rss_bytes"] or 0 for account in rank_accounts(engine.executor))


def _runtime_bytes(engine: Engine) -> int | None:
    if isinstance(engine.executor, ParallelExecutor):
        return runtime_of_all(engine.executor, engine.loaded.runtime_bytes)
    return engine.loaded.runtime_bytes


def history_bytes(engine: Engine) -> int:
    """Bytes of the steps and requests that are kept for the record, from the sizes of a few of each."""
    steps, requests = engine.trace.steps, engine.sessions.all_requests()
    logs = [[vars(request.log), request.tokens, request.blocks, request.block_keys] for request in _few(requests)]
    return _all(_few(steps), len(steps)) + _all(logs, len(requests))


def cache_bytes(caches: AnswerCaches) -> int:
    """Bytes of the stored answers and their keys, from the sizes of a few of each, and of what finds them."""
    stored = caches.stored()
    answers = list({id(answer): answer for _, answer in stored}.values())  # both tiers may hold the same one
    held = [[answer.token_ids, answer.logprobs] for answer in _few(answers)]
    return _all(held, len(answers)) + _all((key for key, _ in _few(stored)), len(stored)) + caches.vector_bytes()


def _few(items: Sequence[Any]) -> list[Any]:
    count = len(items)
    return [items[place * count // SAMPLE] for place in range(SAMPLE)] if count > SAMPLE else list(items)


def _all(sample: Iterable[Any], count: int) -> int:
    sizes = [deep_bytes(item) for item in sample]
    return round(sum(sizes) / len(sizes) * count) if sizes else 0
