"""The requests an engine knows: live ones, and those that ended and are kept for the record.

Owns ids, seeds, texts and when an answer ends. Memory is bounded: of the ended only the last `keep` stay. Knows no
scheduling.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from core_engine.model.tokenizer import Tokenizer
from core_engine.outputs import Completion, Output
from core_engine.plan import TokenLogprobs
from core_engine.request import Request, RequestLog, SamplingParams
from core_engine.text import ByteDetokenizer, Detokenizer, TextStream, WindowDetokenizer
from ledger.errors import InputError

KEPT = 10_000


@dataclass
class Session:
    """A request and its text."""

    request: Request
    text: TextStream
    unread: deque[Output] | None = None  # of whoever streams it

    def completion(self) -> Completion:
        """The whole answer; InputError while it is not finished."""
        request = self.request
        if request.finish_reason is None:
            raise InputError("request_id", request.id, "a request that has finished")
        return Completion(
            request.id,
            self.text.text,
            request.output_token_ids,
            request.finish_reason,
            request.num_prompt_tokens,
            request.sample_index,
            list(request.logprobs),
        )

    def push(self, token: int, most_tokens: int) -> str | None:
        """Take in the request's newest token; why the answer ends with it (None: it goes on).

        The first reason in token order counts: a stop beats the length limit that falls on the same token.
        most_tokens: the longest the sequence may become, prompt included.
        """
        request, text = self.request, self.text
        ends = token in request.end_token_ids
        if not ends:
            text.push(token)
        if ends or text.stopped or request.num_output_tokens == request.params.answer_tokens:
            return "stop"
        if len(request.tokens) >= min(request.max_total_tokens, most_tokens):
            return "length"
        return None

    def answered(self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs], reason: str) -> Output:
        """Take in a whole answer that was computed before, and the one output that gives it."""
        request = self.request
        for token in token_ids:
            request.tokens.append(token)
            self.push(token, len(request.tokens) + 1)
        request.logprobs += logprobs
        return self.output(len(token_ids), reason)

    def output(self, count: int, reason: str | None) -> Output:
        """The output for the newest `count` tokens, with which the answer ends for that reason."""
        request, ended = self.request, reason is not None
        delta, logprobs = self.text.take(final=ended), tuple(request.logprobs[-count:])
        return Output(request.id, request.tokens[-count:], delta, ended, reason, request.sample_index, logprobs)


class Sessions:
    """By id: live, ended, and the groups that the samples of one prompt form."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        seed: int,
        namespace: str,
        keep: int = KEPT,
    ) -> None:
        self.live: dict[str, Session] = {}
        self.ended: dict[str, Session] = {}
        self._tokenizer = tokenizer
        self._seed = seed
        self._namespace = namespace
        self._keep = keep
        self._groups: dict[str, list[str]] = {}
        self._num_groups = 0
        self._num_requests = 0

    def open(
        self,
        ids: list[int],
        params: SamplingParams,
        request_id: str | None,
        arrival_ns: int,
        now_ns: int,
        score_start: int | None = None,
    ) -> tuple[str, list[Request]]:
        """(id for the caller, one request a sample) of a prompt. InputError on an id that is in use."""
        group, number = self._name(request_id)
        names = [group] if params.n == 1 else [f"{group}.{index}" for index in range(params.n)]
        if any(self._in_use(name) for name in (group, *names)):
            raise InputError("request_id", group, "an id that is not in use")
        self._num_groups = number + 1
        # Requests without a seed get distinct ones, the same in every run of the same schedule.
        seed = params.seed if params.seed is not None else (self._seed * 1_000_003 + number) % 2**63
        ends = (() if params.ignore_eos else tuple(self._tokenizer.eos_token_ids)) + params.stop_token_ids
        first = Request(
            group,
            0,
            ids,
            len(ids),
            params,
            seed,
            RequestLog(arrival_ns, now_ns),
            group=group,
            end_token_ids=ends,
            namespace=self._namespace,
            score_start=score_start,
        )
        requests = [first] if params.n == 1 else [_sample(first, index, name) for index, name in enumerate(names)]
        self._groups[group] = names
        for request in requests:
            request.index = self._num_requests
            self._num_requests += 1
            self.live[request.id] = Session(request, self._text(params))
        return group, requests

    def take_in(self, request: Request) -> None:
        """A request that is known elsewhere, with what it has: text that was sent there is not sent again."""
        request.namespace = self._namespace
        text = self._text(request.params)
        for token in request.output_token_ids:
            text.push(token)
        text.take(final=False)
        self.live[request.id] = Session(request, text)

    def leave(self, request_id: str) -> None:
        """Forget an ended request that was taken in."""
        self.ended.pop(request_id, None)

    def _name(self, request_id: str | None) -> tuple[str, int]:
        """(id, number) of the next prompt; without an id of its own it takes the next that nobody uses."""
        number = self._num_groups
        if request_id is not None:
            return request_id, number
        while self._in_use(f"r{number:02d}"):
            number += 1
        return f"r{number:02d}", number

    def _in_use(self, name: str) -> bool:
        return name in self._groups or name in self.live or name in self.ended

    def _text(self, params: SamplingParams) -> TextStream:
        return TextStream(detokenizer(self._tokenizer), params.stop, min_tokens=params.min_tokens)

    def of(self, request_id: str) -> list[Session]:
        """The sessions behind an id that `open` returned, or of one sample; InputError when it is not known."""
        found = [self.live.get(name) or self.ended.get(name) for name in self._groups.get(request_id, [request_id])]
        sessions = [session for session in found if session is not None]
        if not sessions:
            raise InputError("request_id", request_id, "the id of a request")
        return sessions

    def end(self, request: Request) -> None:
        """Keep an ended request for the record, and let go of the oldest when there are too many."""
        self.ended[request.id] = self.live.pop(request.id)
        for oldest in [
            session.request for session in islice(self.ended.values(), max(0, len(self.ended) - self._keep))
        ]:
            self.forget([oldest])

    def forget(self, requests: Iterable[Request]) -> None:
        """Drop ended requests from the record: all samples of a prompt together, once the last of them has ended."""
        for request in requests:
            members = self._groups.get(request.group, [])
            if not any(name in self.live for name in members):
                for name in members:
                    self.ended.pop(name, None)
                self._groups.pop(request.group, None)

    def all_requests(self) -> list[Request]:
        """Ended and live requests that somebody waited for (scoring is left out), in the order they came."""
        sessions = [*self.ended.values(), *self.live.values()]
        requests = [session.request for session in sessions if session.request.score_start is None]
        return sorted(requests, key=lambda request: request.index)


def _sample(first: Request, index: int, name: str) -> Request:
    return replace(
        first,
        id=name,
        tokens=list(first.tokens),
        log=RequestLog(first.log.arrival_ns, first.log.send_ns),
        sample_index=index,
        blocks=(),
        block_keys=[],
        scores=[],
        logprobs=[],
        sampling=None,
    )


def detokenizer(tokenizer: Tokenizer) -> Detokenizer:
    """A new one, the quickest that the tokenizer allows."""
    if tokenizer.token_bytes is not None:
        return ByteDetokenizer(tokenizer.token_bytes)
    return WindowDetokenizer(tokenizer.decode, tokenizer.byte_tokens)
