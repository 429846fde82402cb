"""DisaggregatedEngine: prefill and decode engines in two processes, which from outside look like one Engine.

Owns requests, their text as it came, the record, and what happens when a side is lost. Where a request is: router.py.

A side that ends, fails or stands still is started again. A request whose KV lies in the shared area waits for decode to
be back and is read from there; any other that was on the lost side is computed again from its prompt and the tokens
that were already given out, at most MOST_RETRIES times, after which it fails with the reason. Tokens are the same: they
depend on the request's seed and their position alone.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from core_engine.answers import Answers
from core_engine.clock import MonotonicClock
from core_engine.config import EngineConfig
from core_engine.disaggregation import told
from core_engine.disaggregation.books import Books
from core_engine.disaggregation.messages import (
    Abort,
    Compute,
    Dropped,
    Forget,
    Forgotten,
    Open,
    Resume,
    Resumed,
    Stepped,
    Tell,
    Told,
    Torn,
)
from core_engine.disaggregation.router import MOST_RETRIES, Phase, Router, Ticket
from core_engine.disaggregation.side import DECODE, PREFILL, Side
from core_engine.disaggregation.sides import TwoSides, side_settings
from core_engine.executor.storage import block_bytes_of, blocks_in
from core_engine.intake import RateLimit, refuse_full_queue, refuse_prompt, whole_ids
from core_engine.kv.format import KVFormat
from core_engine.model.loader import LoadedModel
from core_engine.outputs import Output
from core_engine.plan import Watch
from core_engine.request import Request, RequestLog, SamplingParams, State
from core_engine.sessions import Session, Sessions
from core_engine.speculation.proposer import NO_DRAFT
from core_engine.trace import Trace
from ledger.errors import CannotRunError

MIB = 1024**2
WAIT_S = 0.002  # of a step in which nothing came: who has more requests is asked again so soon
ASK_S = 0.05
MOST_STARTS = 3  # of a side in a row without a step of it between
A = TypeVar("A")


class DisaggregatedEngine(Answers):
    """The engine of a configuration with disaggregation=on. Not thread-safe: add, abort and step from one thread."""

    def __init__(self, config: EngineConfig, loaded: LoadedModel, *, clock: MonotonicClock | None = None) -> None:
        """loaded: by load_model with the same setting. CannotRunError when a side can't be opened."""
        model = loaded.decoder
        assert isinstance(model, TwoSides)
        self.config, self.loaded, self.tokenizer = config, loaded, loaded.tokenizer
        self.clock = clock or MonotonicClock()
        self.model, self.sides = model, model.sides
        self.max_position = model.spec.max_position
        form = KVFormat.from_config(config, model.weights.dtype)
        self.block_bytes = block_bytes_of(model.spec, form, config.block_size)
        self.num_blocks = blocks_in(config.kv_memory_mib * MIB, self.block_bytes)  # of each side
        self._capacity = self.num_blocks * config.block_size
        self.router = Router(self.num_blocks, config.block_size, config.max_num_seqs)
        self.books = Books(self.num_blocks, config.block_size)
        self.trace = Trace()
        self.sessions = Sessions(self.tokenizer, seed=config.seed, namespace="")
        self.transfers: list[dict[str, Any]] = []
        self.losses: list[dict[str, Any]] = []
        self.relay_ns: list[int] = []  # from a step's end on a side until its outputs were here
        self.retried: dict[str, int] = {}
        self.num_preemptions = 0
        self.broken: str | None = None
        self.beside_bytes = 0  # weights of other models in this process, told by who loaded them
        self._rate_limit = RateLimit(config.rate_limit_rps)
        self._scores: dict[str, list[float]] = {}
        self._early: list[Output] = []  # outputs that came while somebody waited for something else
        self._starts = [0, 0]  # of each side since its last step
        settings = side_settings(config, 0)
        settings["device"] = model.weights.device.type
        number = id(self)
        model.open(Open(number, settings, self.num_blocks, self.block_bytes, self.clock.origin_ns), self)
        self.environment = told.environment(self)
        self._derived = told.derived(self)  # now, when both sides are there to say it

    # -- requests ------------------------------------------------------------------------------------------------

    def add(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        arrival_ns: int | None = None,
    ) -> str:
        """Queue a prompt (text or token ids) and return its id; see SteppingEngine.add."""
        return self.enqueue(prompt, params or SamplingParams(), request_id, arrival_ns, score_start=None)

    def enqueue(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams,
        request_id: str | None,
        arrival_ns: int | None,
        score_start: int | None,
    ) -> str:
        """`add`; with score_start the tokens from there on are scored instead of continued."""
        if self.broken:
            raise CannotRunError(f"disaggregation=on: {self.broken}")
        start_ns = self.clock.now_ns()
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else whole_ids(prompt)
        refuse_prompt(
            ids,
            params,
            self.config,
            vocab_size=self.loaded.spec.vocab_size,
            max_position=self.max_position,
            capacity=self._capacity,
            scoring=score_start is not None,
        )
        params.check_vocabulary(self.loaded.spec.vocab_size)
        refuse_full_queue(self.num_waiting, params.n, self.config.max_queue)
        if score_start is None:
            self._rate_limit.take(start_ns)
        arrival_ns = start_ns if arrival_ns is None else arrival_ns
        group, requests = self.sessions.open(ids, params, request_id, arrival_ns, start_ns, score_start)
        for request in requests:
            self.router.add(self.sessions.live[request.id])
        self.trace.host_ns.append((start_ns, self.clock.now_ns()))
        return group

    @property
    def num_waiting(self) -> int:
        """Requests that no side has yet."""
        return len(self.router.waiting)

    @property
    def _is_open(self) -> bool:
        """Whether the sides' engines are this one's: of one model there is one engine at a time."""
        return self.model.user is self

    def has_unfinished(self) -> bool:
        """Whether a step may bring something."""
        return bool(self.router.tickets or self._early)

    def expect_more_arrivals(self, more: bool) -> None:
        """Nothing: batching is continuous."""

    def abort(self, request_id: str) -> None:
        """Drop a request, all samples of it, at any time; one that has ended is left alone."""
        now_ns = self.clock.now_ns()
        for session in self.sessions.of(request_id):
            self.abort_one(session, now_ns)

    def abort_one(self, session: Session, now_ns: int) -> None:
        """Drop one sample; one that has ended is left alone."""
        ticket = self.router.tickets.get(session.request.id)
        if ticket is None:
            return
        at = self._where(ticket) if self._is_open else None  # another engine's request may have the same id there
        if at is not None:
            sequence = 0 if ticket.lease is None else ticket.lease.sequence
            self.sides[at].send(Abort(session.request.id, sequence))
        self._end(ticket, "abort", now_ns, held_by=at)
        if session.unread is not None:
            session.unread.append(Output(session.request.id, [], "", True, "abort", session.request.sample_index))

    def _where(self, ticket: Ticket) -> int | None:
        """The side that was told of a request."""
        if ticket.phase is Phase.PREFILLING:
            return PREFILL
        if ticket.phase is Phase.DECODING or (ticket.phase is Phase.TRANSFERRING and ticket.sent):
            return DECODE
        return None

    def _end(self, ticket: Ticket, reason: str, now_ns: int, *, held_by: int | None = None) -> None:
        request = ticket.request
        self.router.end(ticket, held_by=held_by)
        request.finish_reason, request.state = reason, State.FINISHED
        request.log.finish_ns = request.log.release_ns = now_ns
        self.sessions.end(request)

    def add_score(self, token_ids: Sequence[int], start: int, watch: Watch | None = None) -> str:
        """See Answers.add_score; CannotRunError for a watch, since distributions stay in prefill's process."""
        if watch is not None:
            raise CannotRunError(
                "disaggregation=on: whole distributions stay in the process that computes them; use off to evaluate"
            )
        return super().add_score(token_ids, start)

    # -- steps ---------------------------------------------------------------------------------------------------

    def step(self) -> list[Output]:
        """Hand over what may go on, and return what the sides brought; waits WAIT_S when they brought nothing."""
        assert self._is_open, "another engine of this model was opened since"
        outputs, self._early = self._early, []
        if self.broken:
            return outputs
        self._advance_all()
        outputs += self._receive(0.0 if outputs else WAIT_S)
        if not self.broken:
            self._advance_all()
        return outputs

    def _advance_all(self) -> None:
        prefill, decode = self.sides
        while prefill.ready and (ticket := self.router.next(self.clock.now_ns())) is not None:
            prefill.send(Compute(_for_side(ticket.request), ticket.lease))
        if decode.ready:
            for ticket in self.router.of(Phase.TRANSFERRING):
                if not ticket.sent:
                    assert ticket.lease is not None
                    ticket.sent = True
                    decode.send(Resume(_for_side(ticket.request), ticket.lease, ticket.transfer["tokens"]))

    def _receive(self, at_most_s: float) -> list[Output]:
        """Take in what the sides said, waiting for the first of it so long; and see whether they are there."""
        select.select(self.sides, [], [], at_most_s)
        outputs: list[Output] = []
        for side in self.sides:
            for message in side.receive():
                self._take(side.number, message, outputs)
            why = side.lost(self._busy(side.number))
            if why is not None:
                self._lose(side, why, outputs)
                if self.broken:
                    break
        return outputs

    def _busy(self, side: int) -> bool:
        return self.router.owes(side) or any(self._where(ticket) == side for ticket in self.router.tickets.values())

    def _take(self, side: int, message: Any, outputs: list[Output]) -> None:
        match message:
            case Stepped():
                self._stepped(side, message, outputs)
            case Resumed():
                self._resumed(message)
            case Torn():
                self._torn(message, outputs)
            case Dropped():
                self.router.released(message.sequence)

    def _stepped(self, side: int, message: Stepped, outputs: list[Output]) -> None:
        self._starts[side] = 0
        step = self.books.enter(side, {**message.step, "index": self.trace.num_steps, "side": self.sides[side].name})
        told.log_step(self.trace, step)
        self.relay_ns.append(self.clock.now_ns() - step["execute_end_ns"])
        self._log_rows(step, message)
        for name, scores in message.scored:
            if (ticket := self.router.tickets.get(name)) is not None:
                ticket.request.scores[:] = scores
                self._end(ticket, "score", step["execute_end_ns"])
        for output in message.outputs:
            if (ticket := self.router.tickets.get(output.request_id)) is not None:
                outputs.append(self._emit(ticket, output, step["execute_end_ns"]))
        for copied in message.copied:
            ticket = self.router.tickets.get(copied.request_id)
            if ticket is not None and ticket.lease is not None and ticket.lease.sequence == copied.sequence:
                ticket.transfer = told.transfer_of(copied, step["commit_end_ns"])
                self.router.copied(ticket)

    def _log_rows(self, step: dict[str, Any], message: Stepped) -> None:
        """Which requests took part, who was admitted and who gave way."""
        for name, _, count, kind, _ in step["rows"]:
            if (ticket := self.router.tickets.get(name)) is not None:
                ticket.request.log.steps.append((step["index"], kind, count))
        for name in step["preempted"]:
            self.num_preemptions += 1
            if (ticket := self.router.tickets.get(name)) is not None:
                ticket.request.log.preemptions.append([step["plan_start_ns"], None])
        for name in step["admitted"]:
            if (ticket := self.router.tickets.get(name)) is not None:
                log = ticket.request.log
                if log.preemptions and log.preemptions[-1][1] is None:
                    log.preemptions[-1][1] = step["plan_start_ns"]
                log.admit_ns = step["plan_start_ns"] if log.admit_ns is None else log.admit_ns
        for name, found, asked in message.looked_up:
            ticket = self.router.tickets.get(name)
            if ticket is not None and not ticket.request.log.prefix_asked_tokens:
                ticket.request.log.prefix_hit_tokens, ticket.request.log.prefix_asked_tokens = found, asked

    def _emit(self, ticket: Ticket, output: Output, now_ns: int) -> Output:
        request, session = ticket.request, ticket.session
        request.tokens.extend(output.token_ids)
        request.logprobs.extend(output.logprobs)
        request.log.emissions.append((now_ns, len(output.token_ids)))
        session.text.receive(output.text)
        self.trace.output_tokens += len(output.token_ids)
        if session.unread is not None:
            session.unread.append(output)
        if output.finished:
            assert output.finish_reason is not None
            self._end(ticket, output.finish_reason, now_ns)
        return output

    def _resumed(self, message: Resumed) -> None:
        ticket = self.router.tickets.get(message.request_id)
        if ticket is None or ticket.lease is None or ticket.lease.sequence != message.sequence:
            return
        told.imported(ticket.transfer, message, ticket.retries)
        self.transfers.append(ticket.transfer)
        self.router.resumed(ticket)

    def _torn(self, message: Torn, outputs: list[Output]) -> None:
        ticket = self.router.tickets.get(message.request_id)
        if ticket is not None and ticket.lease is not None and ticket.lease.sequence == message.sequence:
            self._again(ticket, f"its KV did not arrive whole: {message.what}", self.clock.now_ns(), outputs)

    # -- when a side is lost -------------------------------------------------------------------------------------

    def _lose(self, side: Side, why: str, outputs: list[Output]) -> None:
        """Start a side again, and have its requests go on: nobody is left behind, nothing stays held."""
        now_ns = self.clock.now_ns()
        mine = [ticket for ticket in self.router.tickets.values() if self._where(ticket) == side.number]
        self.losses.append({"side": side.name, "why": why, "at_ns": now_ns, "requests": [t.request.id for t in mine]})
        self._starts[side.number] += 1
        error = None
        if self._starts[side.number] <= MOST_STARTS:
            try:
                side.restart()
            except CannotRunError as found:
                error = str(found)
        else:
            side.close()
            error = f"{why}, {MOST_STARTS} times in a row without a step"
        self.router.gone(side.number)
        self.books.lose(side.number)
        if error is not None:
            self.broken = error
            for ticket in list(self.router.tickets.values()):
                self._fail(ticket, error, now_ns, outputs)
            return
        for ticket in reversed(mine):
            if ticket.phase is Phase.TRANSFERRING and ticket.retries < MOST_RETRIES:
                ticket.retries, ticket.sent = ticket.retries + 1, False  # its KV is still where decode will find it
                self.retried[ticket.request.id] = ticket.retries
            else:
                self._again(ticket, why, now_ns, outputs)

    def _again(self, ticket: Ticket, why: str, now_ns: int, outputs: list[Output]) -> None:
        if ticket.retries >= MOST_RETRIES:
            self._fail(ticket, f"{why}; it was begun {MOST_RETRIES + 1} times", now_ns, outputs)
            return
        ticket.retries += 1
        self.retried[ticket.request.id] = ticket.retries
        log = ticket.request.log
        if log.admit_ns is not None and not (log.preemptions and log.preemptions[-1][1] is None):
            log.preemptions.append([now_ns, None])
        self.router.again(ticket)

    def _fail(self, ticket: Ticket, why: str, now_ns: int, outputs: list[Output]) -> None:
        request = ticket.request
        request.error = why
        self._end(ticket, "error", now_ns)
        output = Output(request.id, [], "", True, "error", request.sample_index)
        outputs.append(output)
        if ticket.session.unread is not None:
            ticket.session.unread.append(output)

    # -- what is known about the run -----------------------------------------------------------------------------

    def ask(self, message: Any, kind: type[A]) -> dict[int, A]:
        """What the sides answer between two steps, by number; one that is being started has nothing to say."""
        answers: dict[int, A] = {}
        asked = [side for side in self.sides if side.ready and self._is_open and not self.broken]
        for side in asked:
            side.send(message)
        while len(answers) < len(asked):
            select.select(asked, [], [], ASK_S)
            for side in list(asked):
                for found in side.receive():
                    if isinstance(found, kind):
                        answers[side.number] = found
                    else:
                        self._take(side.number, found, self._early)
                why = side.lost(busy=side.number not in answers)
                if why is not None:
                    answers.pop(side.number, None)
                    asked.remove(side)
                    self._lose(side, why, self._early)
        return dict(sorted(answers.items()))

    def reset_prefix_cache(self) -> int:
        """Let the next requests find no prefix; what runs goes on. Returns the blocks that could have been found."""
        return sum(answer.blocks for answer in self.ask(Forget(), Forgotten).values())

    def memory_now(self) -> dict[int, Told]:
        """Where the sides' memory and blocks stand."""
        return self.ask(Tell(), Told)

    def derived(self) -> dict[str, int]:
        """What follows from the settings, both sides together."""
        return dict(self._derived)

    def snapshot(self) -> dict[str, Any]:
        """The live state; see Engine.snapshot. Blocks are numbered through both pools, prefill's first."""
        return told.snapshot(self)

    def record(self) -> dict[str, Any]:
        """Raw events of everything that is kept; see Engine.record."""
        return told.record(self)

    def clear_history(self) -> None:
        """Let go of ended requests and of the trace; the prefix caches stay."""
        self.sessions.forget([session.request for session in self.sessions.ended.values()])
        self.trace.clear()
        self.books.restate()
        self.transfers.clear()
        self.losses.clear()
        self.retried.clear()
        self.relay_ns.clear()
        self.num_preemptions = 0
        self.router.paused_ns = dict.fromkeys(self.router.paused_ns, 0)

    def check(self) -> None:
        """Assert the invariants of what this process owns."""
        self.router.check()
        assert set(self.router.tickets) == set(self.sessions.live), "a request is live without a place, or placed dead"


def _for_side(request: Request) -> Request:
    """A request as a side takes it in: its tokens and how to go on, nothing of where it has been."""
    return replace(
        request,
        tokens=list(request.tokens),
        log=RequestLog(request.log.arrival_ns, request.log.send_ns),
        namespace="",
        num_computed=0,
        blocks=(),
        block_keys=[],
        slot=-1,
        num_published=0,
        state=State.WAITING,
        scores=[],
        logprobs=[],
        sampling=None,
        draft=NO_DRAFT,
    )
