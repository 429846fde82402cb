"""A request and its life: tokens, how far they are computed, its blocks and its event log."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from core_engine.plan import RowSampling, TokenLogprobs, Watch
from core_engine.sampling_params import SamplingParams
from core_engine.speculation.proposer import NO_DRAFT, Draft

__all__ = ["Request", "RequestLog", "SamplingParams", "State"]


class State(Enum):
    """Where a request is. HELD: finished under static batching, its slot and blocks kept until the whole batch ends."""

    WAITING = "waiting"
    RUNNING = "running"
    HELD = "held"
    FINISHED = "finished"


@dataclass
class RequestLog:
    """Raw events; all metrics derive from these. Times in ns on the engine's clock."""

    arrival_ns: int
    send_ns: int
    admit_ns: int | None = None
    steps: list[tuple[int, str, int]] = field(default_factory=list)  # (step index, "prefill" | "decode", tokens)
    emissions: list[tuple[int, int]] = field(default_factory=list)  # (time, tokens)
    drafts: list[tuple[int, int, int]] = field(default_factory=list)  # (step index, drafted, accepted)
    preemptions: list[list[int | None]] = field(default_factory=list)  # [out, back in]
    prefix_hit_tokens: int = 0  # found in the prefix cache when it was admitted
    prefix_asked_tokens: int = 0  # looked up then
    uncompressed_tokens: int | None = None  # of the prompt that was sent, where it was shortened
    cache: dict[str, Any] | None = None  # which stored answer it was given, see core_engine.answer_cache
    finish_ns: int | None = None
    release_ns: int | None = None


@dataclass(eq=False)  # compared by identity: the queue is searched for one
class Request:
    """One sequence. `tokens` is prompt and output; the engine's one rule is that `num_computed` catches up with it."""

    id: str
    index: int  # order of arrival, also the letter on the page
    tokens: list[int]
    num_prompt_tokens: int
    params: SamplingParams
    seed: int
    log: RequestLog
    group: str = ""  # the id its caller knows: its own, or what the samples of one prompt share
    sample_index: int = 0
    end_token_ids: tuple[int, ...] = ()  # tokens that end the answer
    namespace: str = ""  # of the prefix cache: KV is shared within one only
    score_start: int | None = None  # a scoring request: log-probabilities of tokens[score_start:], nothing is sampled
    watch: Watch | None = None  # of a scoring request: sees the distribution of every token that is scored
    num_computed: int = 0
    blocks: tuple[int, ...] = ()  # a tuple, so that a step's rows hold it as it is
    block_keys: list[bytes] = field(default_factory=list)  # of the full blocks, as far as they were needed
    slot: int = -1  # its own number below max_num_seqs while it runs
    num_published: int = 0  # blocks offered to the prefix index
    state: State = State.WAITING
    finish_reason: str | None = None
    error: str | None = None
    scores: list[float] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    sampling: RowSampling | None = None  # kept by core_engine.rows where it is the same at every step
    draft: Draft = NO_DRAFT  # proposed for the next step, to follow the newest token

    @property
    def num_output_tokens(self) -> int:
        """Tokens generated so far."""
        return len(self.tokens) - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> list[int]:
        """Generated token ids."""
        return self.tokens[self.num_prompt_tokens :]

    @property
    def num_pending(self) -> int:
        """Tokens whose KV is not yet computed."""
        return len(self.tokens) - self.num_computed

    @property
    def max_total_tokens(self) -> int:
        """Longest this request can become."""
        return self.num_prompt_tokens + (0 if self.score_start is not None else self.params.max_tokens)

    @property
    def most_shared_tokens(self) -> int:
        """Tokens whose KV may come from somebody else: not those whose logits are still wanted."""
        return len(self.tokens) - 1 if self.score_start is None else self.score_start - 1

    def to_record(self) -> dict[str, Any]:
        """The JSON form of the run record's `requests` entries."""
        log = self.log
        return {
            "id": self.id,
            "group": self.group,
            "sample_index": self.sample_index,
            "prompt_token_ids": self.tokens[: self.num_prompt_tokens],
            "prompt_tokens": self.num_prompt_tokens,
            "max_tokens": self.params.max_tokens,
            "params": _changed(self.params),
            "arrival_ns": log.arrival_ns,
            "send_ns": log.send_ns,
            "admit_ns": log.admit_ns,
            "steps": [list(step) for step in log.steps],
            "emissions": [list(emission) for emission in log.emissions],
            "preemptions": log.preemptions,
            "prefix_hit_tokens": log.prefix_hit_tokens,
            **({} if log.cache is None else {"cache": log.cache}),
            **({} if log.uncompressed_tokens is None else {"uncompressed_tokens": log.uncompressed_tokens}),
            "finish_ns": log.finish_ns,
            "release_ns": log.release_ns,
            "finish_reason": self.finish_reason,
            "error": self.error,
            "output_token_ids": self.output_token_ids,
        }


def _changed(params: SamplingParams) -> dict[str, Any]:
    """The parameters that differ from their defaults."""
    given = ((item.name, getattr(params, item.name), item.default) for item in fields(params))
    return {name: value for name, value, default in given if value != default}
