"""Child: llama.cpp through its batch interface: one decode a step for all sequences, the likeliest token of each."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import llama_cpp
import numpy as np
from protocol import serve

KV_TYPES = {"f16": 1, "bf16": 30}  # of ggml_type, which the Python package does not name in full


class LlamaCpp:
    """options: model (file), threads, n_batch, n_ubatch, flash, kv, unified, mmap, repack.

    contexts: tokens that a sequence may have, by the number of sequences; each gets a context of its own.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.use_mmap = options["mmap"]
        params.use_extra_bufts = options["repack"]
        params.n_gpu_layers = 0
        self._model = llama_cpp.llama_model_load_from_file(options["model"].encode(), params)
        if not self._model:
            raise RuntimeError(f"{options['model']} was not loaded")
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        self._batch = llama_cpp.llama_batch_init(options["n_batch"], 0, 1)
        self._contexts: dict[int, Any] = {}
        self._context(1)
        system = llama_cpp.llama_print_system_info().decode()
        self.about = {"llama_cpp_python": llama_cpp.__version__, "system": system.strip()}

    def _context(self, sequences: int) -> Any:
        """The context for so many sequences, kept for the next time; its cache is empty."""
        if sequences not in self._contexts:
            params, options = llama_cpp.llama_context_default_params(), self._options
            params.n_ctx, params.n_seq_max = sequences * options["contexts"][str(sequences)], sequences
            params.n_batch, params.n_ubatch = options["n_batch"], options["n_ubatch"]
            params.n_threads = params.n_threads_batch = options["threads"]
            params.flash_attn_type = int(options["flash"])
            params.type_k = params.type_v = KV_TYPES[options["kv"]]
            params.kv_unified, params.no_perf = options["unified"], True
            context = llama_cpp.llama_init_from_model(self._model, params)
            if not context:
                raise RuntimeError(f"no context for {sequences} sequences")
            self._contexts[sequences] = context
        context = self._contexts[sequences]
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), False)
        return context

    def generate(self, prompts: list[list[int]], new_tokens: int, took: Callable[[int, int], None]) -> None:
        context = self._context(len(prompts))
        last = [0] * len(prompts)
        waiting = [
            (token, place, index, place == len(prompt) - 1)
            for index, prompt in enumerate(prompts)
            for place, token in enumerate(prompt)
        ]
        for begin in range(0, len(waiting), self._options["n_batch"]):
            for index, token in self._decode(context, waiting[begin : begin + self._options["n_batch"]]):
                last[index] = token
                took(index, token)
        for made in range(1, new_tokens):
            rows = [(last[i], len(prompt) + made - 1, i, True) for i, prompt in enumerate(prompts)]
            for index, token in self._decode(context, rows):
                last[index] = token
                took(index, token)

    def _decode(self, context: Any, rows: list[tuple[int, int, int, bool]]) -> list[tuple[int, int]]:
        """(sequence, likeliest next id) of the rows (id, position, sequence, wanted) that are wanted."""
        batch = self._batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wanted
            batch.seq_id[i][0] = sequence
        code = llama_cpp.llama_decode(context, batch)
        if code:
            raise RuntimeError(f"llama_decode returned {code}")
        wanted = [sequence for _, _, sequence, asked in rows if asked]
        if not wanted:
            return []
        size = len(wanted) * self._vocab_size
        logits = llama_cpp.llama_get_logits(context)
        values = np.frombuffer((ctypes.c_float * size).from_address(ctypes.addressof(logits.contents)), np.float32)
        return list(zip(wanted, values.reshape(len(wanted), -1).argmax(axis=1).tolist(), strict=True))


if __name__ == "__main__":
    serve(LlamaCpp)
