"""What the engine refuses at the door, with the reason: a request that could never be answered."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

from core_engine.config import EngineConfig
from core_engine.request import SamplingParams
from ledger.errors import InputError


def whole_ids(prompt: Sequence[int]) -> list[int]:
    """Token ids as plain ints, from a list, an array or a tensor of whole numbers; InputError for anything else."""
    ids = prompt.tolist() if hasattr(prompt, "tolist") else list(prompt)
    if not isinstance(ids, list) or any(isinstance(token, bool) or not isinstance(token, Integral) for token in ids):
        raise InputError("prompt", "token ids", "a sequence of whole numbers")
    return [int(token) for token in ids]


def refuse_prompt(
    ids: Sequence[int],
    params: SamplingParams,
    config: EngineConfig,
    *,
    vocab_size: int,
    max_position: int,
    capacity: int,
    scoring: bool = False,
) -> None:
    """InputError when a prompt can never be computed. capacity: tokens that the KV pool holds."""
    if not ids:
        raise InputError("prompt", "", "at least one token")
    if any(not 0 <= token < vocab_size for token in ids):
        raise InputError("prompt", "token ids", f"ids from 0 to {vocab_size - 1}")
    if params.min_tokens and len(set(params.stop_token_ids)) >= vocab_size:
        raise InputError("stop_token_ids", f"{vocab_size} ids", "fewer than all, since min_tokens asks for another one")
    if len(ids) + (not scoring) > max_position:
        raise InputError("prompt", f"{len(ids)} tokens", f"fewer than the model's {max_position} positions")
    if len(ids) > capacity:
        raise InputError(
            "prompt",
            f"{len(ids)} tokens",
            f"at most {capacity}, which is what kv_memory_mib={config.kv_memory_mib} holds",
        )
    if config.chunked_prefill == "off" and len(ids) > config.max_num_batched_tokens:
        raise InputError(
            "prompt",
            f"{len(ids)} tokens",
            f"at most max_num_batched_tokens={config.max_num_batched_tokens} with chunked_prefill=off",
        )


class RateLimit:
    """A bucket of permissions, `per_s` new ones a second, at most a second's worth and at least one; 0 is no limit."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._most = max(1.0, per_s)
        self._left = self._most
        self._at_ns: int | None = None

    def take(self, now_ns: int) -> None:
        """Use one permission; InputError when there is none."""
        if not self._per_s:
            return
        if self._at_ns is not None:
            self._left = min(self._most, self._left + (now_ns - self._at_ns) / 1e9 * self._per_s)
        self._at_ns = now_ns
        if self._left < 1:
            raise InputError("rate_limit_rps", "one request more", f"at most {self._per_s:g} a second")
        self._left -= 1


def refuse_full_queue(waiting: int, new: int, max_queue: int) -> None:
    """InputError when `new` more requests would make more than `max_queue` wait."""
    if waiting + new > max_queue:
        raise InputError("max_queue", waiting + new, f"at most {max_queue} waiting requests")
