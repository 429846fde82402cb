"""Any OpenAI-compatible server as a target, over HTTP with streaming.

What the server can do is asked before anything is counted (dialect.py), and everything that makes a figure less than
exact is said in the record: how tokens were counted, whose answer lengths these are, how caches were emptied.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from core_engine.config import EngineConfig
from experiments.endpoint_fields import split_model
from experiments.loadgen import no_garbage_collection
from experiments.quality.agreement import MOST_REQUESTS, Agreement, text_agreement, unknown
from experiments.rig import STABLE_WITHIN, WARM_UP_REQUESTS, WARM_UP_RUNS, WARM_UP_TOKENS, WarmUp, draw_workload
from experiments.spec import BenchSpec
from experiments.targets.client import Attempt, Client, FailedRequestError
from experiments.targets.dialect import Dialect, find_dialect, find_model, same_tokens
from experiments.targets.drive import Clock, Drive, Driven, RealClock, answer_ids_of
from experiments.targets.endpoint_record import counters_of, endpoint_record
from experiments.targets.salt import NUM_WORDS, new_salt, salt_tokens
from experiments.targets.server_metrics import busy_requests, parse_metrics
from experiments.targets.target import OnPart, OnProgress, ShouldCancel, Target
from experiments.workloads import Due, Workload
from ledger.errors import CannotRunError

T = TypeVar("T")
# vLLM (when it serves for development) and ours; SGLang.
RESETS = ("/reset_prefix_cache", "/flush_cache")
# Texts that tokenizers cut differently: code, numbers, Chinese, an emoji, odd spaces.
PROBES = (
    "def area(r):\n    return 3.14159 * r ** 2  # 1234567890\n",
    "The quick brown fox's 42 réseaux — naïve, isn't it?   Yes!!",
    "一次只改一个变量,其余保持不变。🙂 ok",
)
# Enough to see two models part; the longest answers would take as long as a run.
MOST_ANSWER_TOKENS = 64


class EndpointTarget:
    """One server at `spec.endpoint`; `config` names the model whose tokenizer cuts the prompts."""

    def __init__(
        self, spec: BenchSpec, config: EngineConfig, *, clock: Clock | None = None, tokenizer: Any = None
    ) -> None:
        address, model = split_model(spec.endpoint or "")
        self.address = address
        self._spec = spec
        self._model = model or spec.endpoint_model
        self._config = config
        self._clock = clock or RealClock()
        self._tokenizer = tokenizer
        self._dialect: Dialect | None = None
        self._listed: dict[str, Any] = {}
        self._same_tokens: str | None = None
        self._salt: str | None = None
        self._warmed: WarmUp | None = None
        self._drive: Drive | None = None

    # -- the interface ------------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "endpoint",
            "url": self.address,
            **({} if self._dialect is None else self._dialect.describe()),
            "owned_by": self._listed.get("owned_by"),
            "same_tokenizer": self._same_tokens,
            "timeout_s": self._spec.timeout_s,
            "retries": self._spec.retries,
        }

    def draw(self, spec: BenchSpec) -> Workload:
        return draw_workload(spec, self._own_tokenizer())

    def warm_up(self, workload: Workload, should_cancel: ShouldCancel | None = None) -> WarmUp:
        self._wait_for(self._connect())
        roots = [request for request in workload.requests if request.parent is None][:WARM_UP_REQUESTS]
        piece = replace(
            workload,
            requests=tuple(
                replace(request, output_tokens=min(request.output_tokens, WARM_UP_TOKENS), arrival_ns=0)
                for request in roots
            ),
            concurrency=None,
        )
        least, most = WARM_UP_RUNS
        durations: list[int] = []
        stable = False
        while len(durations) < most and not stable:
            start_ns = self._clock.now_ns()
            self._require_answers(self._wait_for(self._driven(piece, None, should_cancel)))
            durations.append(self._clock.now_ns() - start_ns)
            stable = len(durations) >= least and abs(durations[-1] - durations[-2]) <= STABLE_WITHIN * durations[-2]
        self._warmed = WarmUp(len(durations), stable)
        return self._warmed

    def reset(self) -> str:
        return self._wait_for(self._reset())

    def run(
        self, workload: Workload, *, on_progress: OnProgress | None = None, should_cancel: ShouldCancel | None = None
    ) -> dict[str, Any]:
        self._wait_for(self._connect())
        before = self._wait_for(self._samples())
        with no_garbage_collection():
            driven = self._wait_for(self._driven(workload, on_progress, should_cancel))
        after = self._wait_for(self._samples())
        record = endpoint_record(driven, workload, tokenizer=self._own_tokenizer() if self._same_tokens else None)
        return {
            **record,
            "config": {key: value for key, value in self.describe().items() if key != "kind"},
            "environment": {"python": platform.python_version(), "platform": platform.platform(), "device": "server"},
            "counters": counters_of(before, after, record["requests"]),
            "warm_up": None if self._warmed is None else {"runs": self._warmed.runs, "stable": self._warmed.stable},
            "others_before": busy_requests(before),
            "salt_tokens": 0 if self._salt is None else len(salt_tokens(self._salt, self._own_tokenizer())),
        }

    def snapshot(self) -> dict[str, Any]:
        drive = self._drive
        return {
            "output_tokens": 0 if drive is None else drive.chunks(),
            "running": 0 if drive is None else drive.in_flight,
            "waiting": None,
            "step_s": None,
            "blocks": {"used": None},
        }

    def agreement(
        self,
        candidate: Target,
        workloads: tuple[Workload, Workload],
        records: tuple[dict[str, Any], dict[str, Any]],
        on_part: OnPart = lambda arm, fraction: None,
    ) -> Agreement:
        """How far both servers' greedy answers to the same prompts begin alike, asked one at a time after the runs."""
        if not isinstance(candidate, EndpointTarget):
            return unknown("text of a server is compared with that of servers alone")
        first, again = self._wait_for(self._greedy(workloads[0], 2, lambda done: on_part(0, done)))
        (other,) = candidate._wait_for(candidate._greedy(workloads[1], 1, lambda done: on_part(1, done)))
        return text_agreement(first, again, other)

    # -- asking the server ---------------------------------------------------------------------------------------------

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(work)

    def _client(self) -> Client:
        key = None
        if self._spec.key_env is not None:
            key = os.environ.get(self._spec.key_env)
            if not key:
                raise CannotRunError(f"key_env: the environment has no {self._spec.key_env}")
        return Client(self.address, key=key, timeout_s=self._spec.timeout_s, now_ns=self._clock.now_ns)

    def _own_tokenizer(self) -> Any:
        if self._tokenizer is None:
            from core_engine.model.loader import open_model

            self._tokenizer = open_model(self._config).tokenizer()
        return self._tokenizer

    async def _connect(self) -> None:
        """Find out once what the server is and takes; CannotRunError when it isn't there."""
        if self._dialect is not None:
            return
        tokenizer = self._own_tokenizer()
        async with self._client() as client:
            model, listed = await find_model(client, self._model)
            self._listed = dict(listed)
            probes = {text: tokenizer.encode(text) for text in PROBES}
            self._same_tokens = await same_tokens(client, model, probes)
            ids = probes[PROBES[0]] if self._same_tokens else None
            self._dialect = await find_dialect(client, self._spec.endpoint_api, model, text=PROBES[0], token_ids=ids)

    async def _reset(self) -> str:
        async with self._client() as client:
            for path in RESETS:
                try:
                    status, _ = await client.call("POST", path)
                except FailedRequestError as error:
                    raise CannotRunError(f"endpoint: {self.address} does not answer: {error}") from None
                if status == 200:
                    self._salt = None
                    return f"the server's prefix cache was emptied (POST {path})"
        self._salt = new_salt()
        return f"the server can't be told to; each prompt begins with {NUM_WORDS} words that no earlier run had"

    async def _samples(self) -> dict[str, float] | None:
        """The server's own counters; None where it shows none."""
        async with self._client() as client:
            try:
                status, text = await client.call("GET", "/metrics")
            except FailedRequestError:
                return None
            return parse_metrics(text) if status == 200 and isinstance(text, str) else None

    async def _driven(
        self, workload: Workload, on_progress: OnProgress | None, should_cancel: ShouldCancel | None
    ) -> Driven:
        async with self._client() as client:
            drive = Drive(workload, client, self._clock, self._send, answer_ids_of(self._own_tokenizer()))
            self._drive = drive
            try:
                return await drive.run(on_progress, should_cancel)
            finally:
                self._drive = None

    async def _send(self, client: Client, due: Due) -> Attempt:
        dialect = self._dialect
        assert dialect is not None  # warm_up and run connect first
        body = dialect.body(self._worded(due.prompt_token_ids), due.request.output_tokens, exact=True)
        return await client.stream(dialect.path, body, retries=self._spec.retries)

    def _worded(self, token_ids: Sequence[int], *, salted: bool = True) -> str | list[int]:
        """A prompt as the server takes it, behind the run's salt."""
        tokenizer = self._own_tokenizer()
        salt = self._salt if salted else None
        if self._dialect is None or not self._dialect.takes_ids:
            return (salt or "") + tokenizer.decode(token_ids)
        begins = tokenizer.encode("")
        place = len(begins) if list(token_ids[: len(begins)]) == begins else 0
        inside = () if salt is None else salt_tokens(salt, tokenizer)
        return [*token_ids[:place], *inside, *token_ids[place:]]

    async def _greedy(
        self, workload: Workload, passes: int, on_done: Callable[[float], None]
    ) -> list[list[str | None]]:
        """Greedy answers to the first prompts, asked one at a time without salt, so many times over."""
        dialect = self._dialect
        assert dialect is not None
        roots = [request for request in workload.requests if request.parent is None][:MOST_REQUESTS]
        found: list[list[str | None]] = []
        on_done(0.0)
        async with self._client() as client:
            for each in range(passes):
                answers: list[str | None] = []
                for number, request in enumerate(roots):
                    prompt = self._worded(request.prompt_token_ids, salted=False)
                    limit = min(request.output_tokens, MOST_ANSWER_TOKENS)
                    attempt = await client.stream(dialect.path, dialect.body(prompt, limit, exact=False))
                    answers.append(attempt.answer.text if attempt.error is None else None)
                    on_done((each * len(roots) + number + 1) / (passes * len(roots)))
                found.append(answers)
        return found

    def _require_answers(self, driven: Driven) -> None:
        """CannotRunError when not one request of a warm-up was answered: nothing is counted then."""
        errors = [sent.attempt.error if sent.attempt else sent.error for sent in driven.sent]
        if errors and None not in errors:
            raise CannotRunError(f"endpoint: {self.address} answered no request of the warm-up: {errors[0]}")
