"""Scheduler: decides what each step computes (plan) and is the only place where requests change (commit).

Owns the waiting queue, the running list and the block pool. Knows nothing of tensors, text or wall time: `now_ns` is
passed in. One rule covers prefill, chunked prefill, decode and resumption after preemption: a step gives a request
some tokens so that `num_computed` catches up with `len(tokens)`.
"""

from __future__ import annotations

from collections import deque

from core_engine.admission import AdmissionPolicy, AdmissionView
from core_engine.blocks import BlockPool
from core_engine.plan import Row, RowSampling, StepPlan, StepResult
from core_engine.request import Request, State


class Scheduler:
    """Admits, chunks to the token budget, reserves blocks, preempts the youngest when they run out.

    max_num_batched_tokens bounds a step's tokens; with `chunked` false a prompt is computed in one piece (one that was
    preempted and has outgrown the budget is still resumed in pieces, since it could not be resumed otherwise).
    """

    def __init__(
        self, pool: BlockPool, admission: AdmissionPolicy, max_num_batched_tokens: int, *, chunked: bool
    ) -> None:
        self.pool = pool
        self.admission = admission
        self.max_num_batched_tokens = max_num_batched_tokens
        self.chunked = chunked
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []  # in order of admission; held ones included
        self.more_arrivals = False
        self.num_preemptions = 0
        self._step_index = 0

    # -- queue ---------------------------------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Queue a request. The caller has checked that it can fit."""
        self.waiting.append(request)

    def abort(self, request: Request, now_ns: int) -> None:
        """Drop a request wherever it is; a no-op when it has already ended."""
        if request.state in (State.FINISHED, State.HELD):
            return
        if request.state is State.WAITING:
            self.waiting.remove(request)
        self._finish(request, "abort", now_ns)
        self._end_batch(now_ns)

    def has_unfinished(self) -> bool:
        """Whether any request still has tokens to compute."""
        return bool(self.waiting) or any(request.state is State.RUNNING for request in self.running)

    # -- plan ----------------------------------------------------------------------------------------------------

    def plan(self, now_ns: int) -> StepPlan:
        """Choose the rows of the next step and reserve their blocks. An empty plan means there is nothing to do yet."""
        reserved: dict[str, list[int]] = {}
        rows: dict[str, Row] = {}
        budget = self.max_num_batched_tokens
        for request in [r for r in self.running if r.state is State.RUNNING]:
            if request.state is not State.RUNNING:  # preempted for an older one earlier in this loop
                continue
            count = self._share(request, budget, first_in_step=not rows)
            if count and self._reserve(request, count, reserved, rows, now_ns):
                rows[request.id] = self._row(request, count)
                budget -= count
        budget -= self._admit(budget, rows, reserved, now_ns)
        self._step_index += 1
        return StepPlan(
            index=self._step_index - 1,
            rows=tuple(rows.values()),
            reserved=tuple((request_id, tuple(blocks)) for request_id, blocks in reserved.items()),
        )

    def _admit(self, budget: int, rows: dict[str, Row], reserved: dict[str, list[int]], now_ns: int) -> int:
        """Move waiting requests into free slots, oldest first, and give them what is left of the budget."""
        spent = 0
        for _ in range(self._open_slots(now_ns)):
            if not self.waiting:
                break
            request = self.waiting[0]
            # The whole of what it has must fit now, or it would be admitted only to be preempted.
            if self.pool.blocks_for(len(request.tokens)) > self.pool.num_free - self._promised():
                break
            count = self._share(request, budget - spent, first_in_step=not rows)
            if not count and not self.admission.holds_finished:
                break
            self.waiting.popleft()
            self._admit_one(request, now_ns)
            if count:  # under static batching a member whose turn has not come still takes its slot
                self._reserve(request, count, reserved, rows, now_ns)
                rows[request.id] = self._row(request, count)
                spent += count
        return spent

    def _open_slots(self, now_ns: int) -> int:
        if not self.waiting:
            return 0
        return self.admission.open_slots(
            AdmissionView(
                num_waiting=len(self.waiting),
                occupied=len(self.running),
                oldest_wait_ns=now_ns - self.waiting[0].log.arrival_ns,
                more_arrivals=self.more_arrivals,
            )
        )

    def _promised(self) -> int:
        """Free blocks that admitted requests still need for the tokens they already have."""
        return sum(
            max(0, self.pool.blocks_for(len(request.tokens)) - len(request.blocks))
            for request in self.running
            if request.state is State.RUNNING
        )

    def _admit_one(self, request: Request, now_ns: int) -> None:
        request.state = State.RUNNING
        self.running.append(request)
        if request.log.admit_ns is None:
            request.log.admit_ns = now_ns
        else:
            request.log.preemptions[-1][1] = now_ns

    def _share(self, request: Request, budget: int, *, first_in_step: bool) -> int:
        """Tokens this request may compute in a step with `budget` tokens left."""
        pending = request.num_pending
        if pending <= budget or self.chunked:
            return min(pending, budget)
        fits_no_step = pending > self.max_num_batched_tokens
        return min(pending, budget) if fits_no_step and first_in_step else 0

    def _row(self, request: Request, count: int) -> Row:
        start, end = request.num_computed, request.num_computed + count
        newest = end == len(request.tokens)
        targets: tuple[int, ...] = ()
        if request.score_start is not None:
            following = [*request.tokens[start + 1 : end + 1], -1][:count]
            targets = tuple(
                token if start + 1 + offset >= request.score_start else -1 for offset, token in enumerate(following)
            )
        return Row(
            request_id=request.id,
            start=start,
            tokens=tuple(request.tokens[start:end]),
            blocks=tuple(request.blocks),
            is_prefill=start < request.num_prompt_tokens or count > 1,
            sampling=RowSampling(request.params, request.seed) if newest and request.score_start is None else None,
            targets=targets,
        )

    # -- blocks and preemption -----------------------------------------------------------------------------------

    def _reserve(
        self,
        request: Request,
        count: int,
        reserved: dict[str, list[int]],
        rows: dict[str, Row],
        now_ns: int,
    ) -> bool:
        """Give the request the blocks for `count` more tokens, preempting the youngest; False if it was itself."""
        need = self.pool.blocks_for(request.num_computed + count) - len(request.blocks)
        while need > self.pool.num_free:
            victim = next(r for r in reversed(self.running) if r.state is State.RUNNING)
            self._preempt(victim, now_ns)
            rows.pop(victim.id, None)
            reserved.pop(victim.id, None)
            if victim is request:
                self._end_batch(now_ns)
                return False
        if need > 0:
            taken = self.pool.allocate(need)
            request.blocks.extend(taken)
            reserved[request.id] = taken
        return True

    def _preempt(self, request: Request, now_ns: int) -> None:
        """Back to the head of the queue; everything it had is computed again (recompute, last in first out)."""
        self._release_blocks(request)
        self.running.remove(request)
        request.state = State.WAITING
        request.num_computed = 0
        request.scores.clear()
        request.log.preemptions.append([now_ns, None])
        self.waiting.appendleft(request)
        self.num_preemptions += 1

    def rollback(self, plan: StepPlan) -> None:
        """Undo the reservations of a plan that was not executed: the pool is as it was before."""
        by_id = {request.id: request for request in self.running}
        for request_id, blocks in plan.reserved:
            request = by_id.get(request_id)
            if request is None:
                continue
            del request.blocks[len(request.blocks) - len(blocks) :]
            self.pool.free(blocks)

    # -- commit --------------------------------------------------------------------------------------------------

    def commit(self, plan: StepPlan, result: StepResult) -> list[tuple[Request, int]]:
        """Advance the rows by what was computed and append sampled tokens. Returns (request, token) per sampled row.

        A row whose request was aborted meanwhile is passed over. Stopping is the caller's to decide: `finish`.
        """
        by_id = {request.id: request for request in self.running}
        sampled: list[tuple[Request, int]] = []
        for row, token, scores in zip(plan.rows, result.tokens, result.scores, strict=True):
            request = by_id.get(row.request_id)
            if request is None or request.state is not State.RUNNING:
                continue
            request.num_computed = row.end
            request.log.steps.append((plan.index, "prefill" if row.is_prefill else "decode", row.count))
            request.scores.extend(scores)
            if token is not None:
                request.tokens.append(token)
                sampled.append((request, token))
        self.pool.check()
        return sampled

    def finish(self, request: Request, reason: str, now_ns: int) -> None:
        """End a running request; frees its slot and blocks now, or when its whole batch has ended."""
        self._finish(request, reason, now_ns)
        self._end_batch(now_ns)

    def _finish(self, request: Request, reason: str, now_ns: int) -> None:
        request.finish_reason = reason
        request.log.finish_ns = now_ns
        if self.admission.holds_finished and request in self.running and reason != "abort":
            request.state = State.HELD
        else:
            self._release(request, now_ns)

    def _end_batch(self, now_ns: int) -> None:
        """Release the held rows once nobody of their batch is running any more."""
        if any(request.state is State.RUNNING for request in self.running):
            return
        for request in list(self.running):
            self._release(request, now_ns)

    def _release(self, request: Request, now_ns: int) -> None:
        self._release_blocks(request)
        if request in self.running:
            self.running.remove(request)
        request.state = State.FINISHED
        request.log.release_ns = now_ns

    def _release_blocks(self, request: Request) -> None:
        self.pool.free(request.blocks)
        request.blocks.clear()
