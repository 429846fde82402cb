"""Engine: glue between requests, scheduler, executor and text. Plain Python, usable without the rest of the project.

engine = Engine(config, load_model(config))
engine.generate(["The capital of France is"], SamplingParams(max_tokens=8))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from core_engine.admission import admission_policy
from core_engine.blocks import BlockPool
from core_engine.clock import Clock, MonotonicClock
from core_engine.config import EngineConfig
from core_engine.environment import describe
from core_engine.executor.base import Executor
from core_engine.executor.torch_executor import MIB, TorchExecutor
from core_engine.model.loader import LoadedModel
from core_engine.plan import StepPlan, StepResult
from core_engine.request import Request, RequestLog, SamplingParams
from core_engine.scheduler import Scheduler
from core_engine.text import TextStream
from core_engine.trace import Trace
from ledger.errors import CannotRunError, InputError


@dataclass(frozen=True)
class Output:
    """What one step brought one request."""

    request_id: str
    token_ids: list[int]
    text: str
    finished: bool
    finish_reason: str | None


@dataclass(frozen=True)
class Completion:
    """A finished request. token_ids are all generated ones, the one that ended it included."""

    request_id: str
    text: str
    token_ids: list[int]
    finish_reason: str
    prompt_tokens: int


class Engine:
    """One model, one KV pool, one scheduler. Not thread-safe: add, abort and step from one thread."""

    def __init__(
        self,
        config: EngineConfig,
        loaded: LoadedModel,
        *,
        clock: Clock | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.config = config
        self.loaded = loaded
        self.tokenizer = loaded.tokenizer
        self.clock = clock or MonotonicClock()
        self.executor = executor or _torch_executor(config, loaded)
        self.pool = BlockPool(self.executor.num_blocks, config.block_size)
        self.scheduler = Scheduler(
            self.pool, admission_policy(config), config.max_num_batched_tokens, chunked=config.chunked_prefill == "on"
        )
        self.trace = Trace()
        self.requests: dict[str, Request] = {}
        self._texts: dict[str, TextStream] = {}
        self.environment = describe(loaded.weights.embedding.device, loaded.weights.embedding.dtype)

    # -- requests ------------------------------------------------------------------------------------------------

    def add(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        arrival_ns: int | None = None,
    ) -> str:
        """Queue a prompt (text or token ids) and return its id.

        arrival_ns is the time the schedule says, now by default. InputError when it can never fit or the queue is full.
        """
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        return self._enqueue(ids, params or SamplingParams(), request_id, arrival_ns, score_start=None)

    def _enqueue(
        self,
        ids: list[int],
        params: SamplingParams,
        request_id: str | None,
        arrival_ns: int | None,
        score_start: int | None,
    ) -> str:
        self._refuse_unfit(ids, params, scoring=score_start is not None)
        now = self.clock.now_ns()
        index = len(self.requests)
        request_id = request_id if request_id is not None else f"r{index:02d}"
        if request_id in self.requests:
            raise InputError("request_id", request_id, "an id that is not in use")
        # Requests without a seed get distinct ones, the same in every run of the same schedule.
        seed = params.seed if params.seed is not None else (self.config.seed * 1_000_003 + index) % 2**63
        request = Request(
            request_id,
            index,
            ids,
            len(ids),
            params,
            seed,
            RequestLog(now if arrival_ns is None else arrival_ns, now),
            score_start=score_start,
        )
        self.requests[request_id] = request
        self._texts[request_id] = TextStream(self.tokenizer.decode, params.stop)
        self.scheduler.add(request)
        return request_id

    def _refuse_unfit(self, ids: list[int], params: SamplingParams, *, scoring: bool) -> None:
        vocab, limit = self.loaded.spec.vocab_size, self.loaded.decoder.spec.max_position
        capacity = self.pool.num_blocks * self.pool.block_size
        if not ids:
            raise InputError("prompt", "", "at least one token")
        if any(not 0 <= token < vocab for token in ids):
            raise InputError("prompt", "token ids", f"ids from 0 to {vocab - 1}")
        if len(ids) + (not scoring) > limit:
            raise InputError("prompt", f"{len(ids)} tokens", f"fewer than the model's {limit} positions")
        if len(ids) > capacity:
            raise InputError(
                "prompt",
                f"{len(ids)} tokens",
                f"at most {capacity}, which is what kv_memory_mib={self.config.kv_memory_mib} holds",
            )
        if self.config.chunked_prefill == "off" and len(ids) > self.config.max_num_batched_tokens:
            raise InputError(
                "prompt",
                f"{len(ids)} tokens",
                f"at most max_num_batched_tokens={self.config.max_num_batched_tokens} with chunked_prefill=off",
            )
        if len(self.scheduler.waiting) >= self.config.max_queue:
            raise InputError(
                "max_queue", len(self.scheduler.waiting) + 1, f"at most {self.config.max_queue} waiting requests"
            )

    def abort(self, request_id: str) -> None:
        """Drop a request at any time; one that has ended is left alone."""
        self.scheduler.abort(self._request(request_id), self.clock.now_ns())

    def _request(self, request_id: str) -> Request:
        if request_id not in self.requests:
            raise InputError("request_id", request_id, "the id of a request")
        return self.requests[request_id]

    def expect_more_arrivals(self, more: bool) -> None:
        """Tell static and dynamic batching whether anyone else is scheduled to come."""
        self.scheduler.more_arrivals = more

    def has_unfinished(self) -> bool:
        """Whether a step would have work, now or after a wait."""
        return self.scheduler.has_unfinished()

    # -- stepping ------------------------------------------------------------------------------------------------

    def step(self) -> list[Output]:
        """One step: plan, execute, commit. An empty list also when admission waits for more requests."""
        timer = self.trace.begin(self.clock)
        plan = self.scheduler.plan(timer.plan_start_ns)
        if not plan.rows:
            return []
        timer.used_blocks = self.pool.num_used
        try:
            timer.execute_start_ns = self.clock.now_ns()
            result = self.executor.execute(plan)
            timer.execute_end_ns = self.clock.now_ns()
        except BaseException:
            self.scheduler.rollback(plan)
            raise
        outputs = self._commit(plan, result, timer.execute_end_ns)
        self.trace.end(timer, plan, self.scheduler, self.clock.now_ns())
        return outputs

    def _commit(self, plan: StepPlan, result: StepResult, now_ns: int) -> list[Output]:
        outputs = []
        for request, token in self.scheduler.commit(plan, result):
            text = self._texts[request.id]
            if token not in self.tokenizer.eos_token_ids or request.params.ignore_eos:
                text.push(token)
            request.log.emissions.append((now_ns, 1))
            reason = self._finish_reason(request, token, text)
            if reason:
                self.scheduler.finish(request, reason, now_ns)
            outputs.append(Output(request.id, [token], text.take(final=reason is not None), reason is not None, reason))
        for row in plan.rows:
            request = self.requests[row.request_id]
            if request.score_start is not None and request.num_pending == 0:
                self.scheduler.finish(request, "score", now_ns)
        return outputs

    def _finish_reason(self, request: Request, token: int, text: TextStream) -> str | None:
        """The first reason in token order: a stop beats the length limit that falls on the same token."""
        if (token in self.tokenizer.eos_token_ids and not request.params.ignore_eos) or text.stopped:
            return "stop"
        capacity = self.pool.num_blocks * self.pool.block_size
        limits = (request.max_total_tokens, self.loaded.decoder.spec.max_position, capacity + 1)
        return "length" if len(request.tokens) >= min(limits) else None

    # -- whole answers -------------------------------------------------------------------------------------------

    def generate(
        self, prompts: Sequence[str | Sequence[int]], params: SamplingParams | None = None
    ) -> list[Completion]:
        """Answer all prompts and return when the last is done, in the order of the prompts."""
        self.expect_more_arrivals(False)
        ids = [self.add(prompt, params) for prompt in prompts]
        while self.has_unfinished():
            self.step()
        return [self.completion(request_id) for request_id in ids]

    def stream(self, prompt: str | Sequence[int], params: SamplingParams | None = None) -> Iterator[Output]:
        """Yield the outputs of one prompt as they come; closing the iterator aborts the request."""
        self.expect_more_arrivals(False)
        request_id = self.add(prompt, params)
        try:
            while self.has_unfinished():
                yield from (output for output in self.step() if output.request_id == request_id)
        finally:
            self.abort(request_id)

    def completion(self, request_id: str) -> Completion:
        """The answer of a finished request."""
        request = self._request(request_id)
        if request.finish_reason is None:
            raise InputError("request_id", request_id, "a request that has finished")
        return Completion(
            request_id,
            self._texts[request_id].text,
            request.output_token_ids,
            request.finish_reason,
            request.num_prompt_tokens,
        )

    def score(self, token_ids: Sequence[int], start: int) -> list[float]:
        """Log-probability (natural) of each of token_ids[start:] given all before, through this engine's KV path."""
        if not 1 <= start < len(token_ids):
            raise InputError("start", start, f"a whole number from 1 to {len(token_ids) - 1}")
        self.expect_more_arrivals(False)
        request_id = self._enqueue(list(token_ids), SamplingParams(max_tokens=1), None, None, score_start=start)
        while self.requests[request_id].finish_reason is None:
            self.step()
        return list(self.requests[request_id].scores)

    # -- what is known about the run -----------------------------------------------------------------------------

    def derived(self) -> dict[str, int]:
        """What follows from the settings, listed in comparisons as changed because of the variable."""
        return {
            "num_kv_blocks": self.pool.num_blocks,
            "kv_pool_bytes": self.executor.kv_pool_bytes(),
            "weights_bytes": self.loaded.weights.num_bytes(),
            "activation_peak_bytes": self.executor.activation_peak_bytes(),
        }

    def snapshot(self) -> dict[str, Any]:
        """The live state for a page: queue, blocks, requests and the memory ledger. Cheap enough for 4 a second."""
        from core_engine.live import snapshot

        return snapshot(self)

    def record(self) -> dict[str, Any]:
        """Raw events of everything so far; times in ns on the engine's clock."""
        from core_engine.live import record

        return record(self)


def _torch_executor(config: EngineConfig, loaded: LoadedModel) -> TorchExecutor:
    try:
        executor = TorchExecutor(
            loaded.decoder, block_size=config.block_size, kv_memory_bytes=config.kv_memory_mib * MIB
        )
        sizes = (executor.num_blocks, config.block_size, config.max_num_seqs, config.max_num_batched_tokens)
        known = loaded.activation_peaks.get(sizes)
        loaded.activation_peaks[sizes] = executor.measure_activations(*sizes[2:]) if known is None else known
        executor.set_activation_peak(loaded.activation_peaks[sizes])
    except (MemoryError, RuntimeError) as error:
        if "memory" not in str(error).lower() and not isinstance(error, MemoryError):
            raise
        raise CannotRunError(
            f"kv_memory_mib: {config.kv_memory_mib} MiB of KV cache can't be allocated here; use less"
        ) from None
    return executor
