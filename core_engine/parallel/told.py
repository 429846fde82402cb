"""What a run on ranks tells of them: the record's `parallel`, the environment, and each rank's memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from core_engine.config import EngineConfig
from core_engine.parallel.executor import ParallelExecutor
from ledger.memory import MemoryLedger
from ledger.parallel import imbalance, part_block_bytes, part_weight_bytes, predict_ranks, together
from ledger.step_kernels import StepKernels


def describe_ranks(executor: ParallelExecutor) -> dict[str, Any]:
    """What the environment of a run says of its ranks."""
    model = executor.model
    threads = [loaded.threads for loaded in model.loaded]
    return {
        "threads": sum(threads),
        "ranks": {
            "count": len(threads),
            "threads_each": threads[0],
            "backend": model.backend,
            "cpus": [list(loaded.cpus) for loaded in model.loaded],
        },
    }


def parallel_record(executor: ParallelExecutor) -> dict[str, Any]:
    """The split, its imbalance, what every rank holds, and what steps handed over and waited for."""
    model, told = executor.model, executor.counters.to_json()
    counted = told.pop("ranks")
    held = rank_accounts(executor)
    return {
        "tensor_parallel": model.tp,
        "pipeline_parallel": model.pp,
        "backend": model.backend,
        "imbalance": {
            "query_heads": imbalance(len(part.heads.query) for part in model.parts[: model.tp]),
            "mlp_columns": imbalance(len(part.inner) for part in model.parts[: model.tp]),
            "layers": imbalance(len(part.layers) for part in model.parts[:: model.tp]),
        },
        **told,
        "ranks": [
            {"rank": rank, **part.to_json(), **held[rank], **counted[rank]} for rank, part in enumerate(model.parts)
        ],
        "provenance": "measured",
    }


def rank_accounts(executor: ParallelExecutor) -> list[dict[str, Any]]:
    """Bytes of each rank: what it holds beside what the ledger says of its part, and its process's resident memory."""
    model, spec = executor.model, executor.spec
    element, form, size = model.weights.dtype.itemsize, executor.form.blocks, executor.block_size
    return [
        {
            "weights_bytes": loaded.weights_bytes,
            "weights_predicted_bytes": part_weight_bytes(spec, part, element),
            "kv_pool_bytes": opened.pool_bytes,
            "kv_pool_predicted_bytes": executor.num_blocks * part_block_bytes(spec, part, form, size),
            "kv_tail_bytes": opened.tail_bytes,
            "padding_block_bytes": opened.padding_bytes,
            "activation_peak_bytes": peak,
            "runtime_bytes": loaded.runtime_bytes,
            "process_rss_bytes": _rss_bytes(pid),
        }
        for part, loaded, opened, peak, pid in zip(
            model.parts, model.loaded, executor.opened, executor.activation_peaks, model.ranks.pids, strict=True
        )
    ]


def runtime_of_all(executor: ParallelExecutor, own: int | None) -> int | None:
    """What was resident before any weights, here and in the ranks; None where the system does not say."""
    found = [own, *(loaded.runtime_bytes for loaded in executor.model.loaded)]
    return None if None in found else sum(bytes_ for bytes_ in found if bytes_ is not None)


def predicted_of_ranks(executor: ParallelExecutor, config: EngineConfig, own: int | None) -> MemoryLedger:
    """What the ledger says of all ranks together."""
    beside = 0 if config.chunked_prefill == "on" else config.max_num_seqs
    return together(
        predict_ranks(
            executor.spec,
            executor.parts,
            dtype_bytes=executor.model.weights.dtype.itemsize,
            num_blocks=executor.num_blocks,
            kv=executor.form.blocks,
            block_size=config.block_size,
            max_num_batched_tokens=config.max_num_batched_tokens + beside,
            max_num_seqs=config.max_num_seqs,
            kernels=StepKernels(fused=executor.options.fused_ops, flash=executor.options.flash),
            most_drafts=executor.most_drafts,
        ),
        runtime_of_all(executor, own),
    )


def _rss_bytes(pid: int) -> int | None:
    """Resident memory of a process; None where the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
