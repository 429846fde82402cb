"""Scheduler: decides what each step computes (plan) and is the only place where requests change (commit).

Owns the waiting queue and the running list. Knows nothing of tensors, text or wall time: `now_ns` is passed in, and
which block holds what is the layout's business. One rule covers prefill, chunked prefill, decode, prefix hits and
resumption after preemption: a step gives a request some tokens so that `num_computed` catches up with `len(tokens)`.

Progress is certain: the oldest running request is never preempted, and one that outgrows the whole pool alone is ended
by its caller with reason "length".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from core_engine.admission import AdmissionPolicy, AdmissionView
from core_engine.kv_layout import KVLayout
from core_engine.plan import Row, StepPlan, StepResult, TokenLogprobs
from core_engine.request import Request, State
from core_engine.rows import row_of
from core_engine.speculation.proposer import NO_DRAFT

# Told of each new token of a request, right after it was appended: whether the answer ends with it.
Ends = Callable[[Request, int], bool]

# Writes the KV of a request's blocks from a place on: (first place, its blocks from there on). Raises when it can't.
Fill = Callable[[int, tuple[int, ...]], None]


def never(request: Request, token: int) -> bool:
    """No answer ends."""
    return False


def _append(request: Request, tokens: Sequence[int], logprobs: Sequence[TokenLogprobs], ends: Ends) -> int:
    """Append tokens with their log-probabilities, if there are any, up to the first that ends the answer: how many."""
    for count, token in enumerate(tokens, 1):
        request.tokens.append(token)
        if logprobs:
            request.logprobs.append(logprobs[count - 1])
        if ends(request, token):
            return count
    return len(tokens)


@dataclass
class _Draft:
    """A plan in the making. budget: tokens that the step may still compute; drafts: set aside from it, by request."""

    budget: int
    now_ns: int
    rows: dict[str, Row] = field(default_factory=dict)
    drafts: dict[str, int] = field(default_factory=dict)
    reserved: dict[str, list[int]] = field(default_factory=dict)
    admitted: list[str] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)


class Scheduler:
    """Admits, chunks to the token budget, reserves blocks, preempts the youngest when they run out.

    max_num_batched_tokens bounds a step's tokens. With `chunked` false a prompt is computed in one piece beside the
    running decodes, which then don't count against that bound: the step lasts as long as the prompt takes. (One that
    was preempted and has outgrown the bound is still resumed in pieces, since it could not be resumed otherwise.)

    open_blocks: KV is quantized when a block is full and until then kept in the request's slot. Then pieces of a prompt
    end at a block's end where they can, and what begins inside a block goes past its end only to another block's end:
    the slot keeps what it holds until the step has been committed, so that a step that fails can be planned again.
    """

    def __init__(
        self,
        layout: KVLayout,
        admission: AdmissionPolicy,
        max_num_batched_tokens: int,
        *,
        chunked: bool,
        open_blocks: bool = False,
    ) -> None:
        self.layout = layout
        self.pool = layout.pool
        self.admission = admission
        self.max_num_batched_tokens = max_num_batched_tokens
        self.chunked = chunked
        self.open_blocks = open_blocks
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []  # in order of admission; held ones included
        self.more_arrivals = False
        self.num_preemptions = 0
        self._step_index = 0
        self._free_slots: list[int] = []  # those that were given back; a heap
        self._num_slots = 0  # that ever were in use together

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

    def resume(self, request: Request, num_computed: int, fill: Fill, now_ns: int) -> bool:
        """Run a request whose first tokens were computed elsewhere; False, and nothing changed, while there is no room
        or somebody waits who was here before.

        Blocks that the prefix cache knows are shared, the others taken and given to `fill`; when that raises, the
        request holds nothing. Its KV is published behind it, so nobody reads what is not there.
        """
        room = self.admission.open_slots(AdmissionView(1, len(self.running), 0, self.more_arrivals))
        if self.waiting or room < 1:
            return False
        request.num_computed = 0
        if not self.layout.admit(request, sum(map(self.layout.owed, self.running)), alone=not self.running):
            return False
        found = request.num_computed // self.pool.block_size
        self.layout.grow(request, num_computed)  # there is room: admit saw to the whole of what it has
        try:
            fill(found, request.blocks[found : self.pool.blocks_for(num_computed)])
        except BaseException:
            self._unadmit(request)
            raise
        request.num_computed = num_computed
        request.state = State.RUNNING
        request.slot = self._take_slot()
        self.running.append(request)
        self.layout.publish(request)
        request.log.admit_ns = now_ns
        self.check()
        return True

    def has_unfinished(self) -> bool:
        """Whether any request still has tokens to compute."""
        return bool(self.waiting) or any(request.state is State.RUNNING for request in self.running)

    # -- plan ----------------------------------------------------------------------------------------------------

    def plan(self, now_ns: int) -> StepPlan:
        """Choose the rows of the next step and reserve their blocks. An empty plan means there is nothing to do yet."""
        draft, size = _Draft(self.max_num_batched_tokens, now_ns), self.pool.block_size
        to_come = [r for r in self.running if r.state is State.RUNNING]
        for younger, request in zip(range(len(to_come) - 1, -1, -1), to_come, strict=True):
            if request.state is State.RUNNING:  # else preempted for an older one earlier in this loop
                pending = len(request.tokens) - request.num_computed
                # The newest token alone, as nearly every row: what `_share` would say, without asking it.
                count = 1 if pending == 1 and draft.budget else self._share(request, draft)
                has_room = request.num_computed + count <= len(request.blocks) * size
                if count and (has_room or self._reserve(request, count, draft)):
                    self._place(request, count, draft)
                    if request.draft.tokens:
                        self._set_aside(request, younger, draft)
        self._add_drafts(draft)
        self._admit(draft)
        return StepPlan(
            index=self._step_index,
            rows=tuple(draft.rows.values()),
            reserved=tuple((request_id, tuple(blocks)) for request_id, blocks in draft.reserved.items()),
            admitted=tuple(draft.admitted),
            preempted=tuple(draft.preempted),
        )

    def _place(self, request: Request, count: int, draft: _Draft) -> None:
        draft.rows[request.id] = row_of(request, count)
        if self.chunked or request.num_pending > 1:
            draft.budget -= count

    def _set_aside(self, request: Request, younger: int, draft: _Draft) -> None:
        """Budget for a request's drafts, as far as it leaves a token for each of the `younger` ones."""
        wanted = min(len(request.draft.tokens), draft.budget - younger)
        if wanted > 0 and request.num_pending == 1:
            draft.drafts[request.id] = wanted
            draft.budget -= wanted

    def _add_drafts(self, draft: _Draft) -> None:
        """Drafts join the rows whose blocks are there or free: nobody is preempted for them."""
        for request in self.running if draft.drafts else ():
            wanted = draft.drafts.get(request.id, 0)
            if not wanted:
                continue
            taken = self.layout.grow(request, request.num_computed + 1 + wanted)
            if taken is None:
                draft.budget += wanted
                continue
            if taken:
                draft.reserved.setdefault(request.id, []).extend(taken)
            draft.rows[request.id] = row_of(request, 1, wanted)

    def draft_room(self, request: Request, most_tokens: int) -> int:
        """Most drafts that may follow the newest token of a running request; 0 when other tokens wait before it.

        An answer is at most as long as it asked and most_tokens allow, and the target adds a token of its own. Where
        full blocks are quantized, drafts leave the last place of a block to a token that is certain.
        """
        if request.state is not State.RUNNING or request.num_pending != 1 or request.score_start is not None:
            return 0
        room = min(request.max_total_tokens, most_tokens) - len(request.tokens) - 1
        if self.open_blocks:
            room = min(room, self.pool.block_size - 2 - request.num_computed % self.pool.block_size)
        return max(0, room)

    def _share(self, request: Request, draft: _Draft) -> int:
        """Tokens this request may compute in the step."""
        count = self._within_budget(request, draft)
        if not self.open_blocks or count < 2:
            return count
        end, size = request.num_computed + count, self.pool.block_size
        last = end // size * size
        whole = last > request.num_computed and (request.num_computed % size or end < len(request.tokens))
        return last - request.num_computed if whole else count

    def _within_budget(self, request: Request, draft: _Draft) -> int:
        pending = request.num_pending
        if self.chunked:
            return min(pending, draft.budget)
        if pending == 1 or pending <= draft.budget:
            return pending
        fits_no_step = pending > self.max_num_batched_tokens
        return draft.budget if fits_no_step and draft.budget == self.max_num_batched_tokens else 0

    def _admit(self, draft: _Draft) -> None:
        """Move waiting requests into free slots, oldest first, and give them what is left of the budget."""
        for _ in range(self._open_slots(draft.now_ns)):
            if not self.waiting or self._sibling_will_publish(self.waiting[0]):
                break
            request = self.waiting[0]
            if not draft.budget and not self.admission.holds_finished:
                break
            running = [other for other in self.running if other.state is State.RUNNING]
            if not self.layout.admit(request, sum(map(self.layout.owed, running)), alone=not running):
                break
            count = self._share(request, draft)
            if not count and not self.admission.holds_finished:
                self._unadmit(request)
                break
            self._admit_one(request, draft)
            if count and self._reserve(request, count, draft):  # a static batch's member may have to wait its turn
                self._place(request, count, draft)

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

    def could_admit(self, now_ns: int) -> bool:
        """Whether a waiting request may join the next step if it fits."""
        return self._open_slots(now_ns) > 0

    def _sibling_will_publish(self, request: Request) -> bool:
        """Whether another sample of the same prompt is computing it right now, so that waiting a step saves it all."""
        if self.layout.prefix is None or not request.sample_index or self.admission.holds_finished:
            return False
        return any(
            other.group == request.group and other.num_computed < other.num_prompt_tokens
            for other in self.running
            if other.state is State.RUNNING
        )

    def _admit_one(self, request: Request, draft: _Draft) -> None:
        self.waiting.popleft()
        request.state = State.RUNNING
        request.slot = self._take_slot()
        self.running.append(request)
        draft.admitted.append(request.id)
        self._count_lookup(request, +1)
        if request.log.preemptions:
            request.log.preemptions[-1][1] = draft.now_ns
        if request.log.admit_ns is None:
            request.log.admit_ns = draft.now_ns

    def _take_slot(self) -> int:
        if self._free_slots:
            return heappop(self._free_slots)
        self._num_slots += 1
        return self._num_slots - 1

    def _leave(self, request: Request) -> None:
        """Out of the running list; its slot may go to another."""
        self.running.remove(request)
        heappush(self._free_slots, request.slot)
        request.slot = -1

    def _count_lookup(self, request: Request, sign: int) -> None:
        # Not after a preemption: what it finds then is its own, and shared by nobody.
        if self.layout.prefix is not None and not request.log.preemptions:
            request.log.prefix_hit_tokens += sign * request.num_computed
            request.log.prefix_asked_tokens += sign * len(request.tokens)

    def _unadmit(self, request: Request) -> None:
        self.layout.release(request)
        request.num_computed = 0

    # -- blocks and preemption -----------------------------------------------------------------------------------

    def _reserve(self, request: Request, count: int, draft: _Draft) -> bool:
        """Give the request the blocks for `count` more tokens, preempting the youngest; False if it was itself."""
        if request.num_computed + count <= len(request.blocks) * self.pool.block_size:
            return True
        while (taken := self.layout.grow(request, request.num_computed + count)) is None:
            victim = next(r for r in reversed(self.running) if r.state is State.RUNNING)
            self._preempt(victim, draft)
            if victim is request:
                self._end_batch(draft.now_ns)
                return False
        if taken:
            draft.reserved[request.id] = taken
        return True

    def _preempt(self, request: Request, draft: _Draft) -> None:
        """Back to the head of the queue; what is not in the prefix cache is computed again (last in, first out)."""
        self.layout.release(request)
        self._leave(request)
        request.state = State.WAITING
        request.num_computed = 0
        request.draft = NO_DRAFT
        request.scores.clear()
        request.log.preemptions.append([draft.now_ns, None])
        self.waiting.appendleft(request)
        self.num_preemptions += 1
        draft.preempted.append(request.id)
        draft.rows.pop(request.id, None)
        draft.drafts.pop(request.id, None)
        draft.reserved.pop(request.id, None)

    def rollback(self, plan: StepPlan) -> None:
        """Undo a plan that was not executed: blocks are as before, and who was admitted by it is first in line again.

        Preemptions stay, and so do evictions from the prefix cache: what they took is computed again when it is needed.
        """
        by_id = {request.id: request for request in self.running}
        for request_id, blocks in plan.reserved:
            if request_id in by_id and request_id not in plan.admitted:
                self.layout.take_back(by_id[request_id], blocks)
        for request_id in reversed(plan.admitted):
            if request_id in by_id:
                request = by_id[request_id]
                self._count_lookup(request, -1)
                request.log.admit_ns = request.log.admit_ns if request.log.preemptions else None
                if request.log.preemptions:
                    request.log.preemptions[-1][1] = None
                self._unadmit(request)
                self._leave(request)
                request.state = State.WAITING
                self.waiting.appendleft(request)
        self.check()

    def compute_again(self, plan: StepPlan, now_ns: int) -> None:
        """Preempt the requests of a plan that was rolled back, because what their slots keep may be gone."""
        ids = {row.request_id for row in plan.rows}
        draft = _Draft(0, now_ns)
        for request in reversed([r for r in self.running if r.id in ids and r.state is State.RUNNING]):
            self._preempt(request, draft)
        self.check()

    # -- commit --------------------------------------------------------------------------------------------------

    def commit(self, plan: StepPlan, result: StepResult, ends: Ends = never) -> list[tuple[Request, int]]:
        """Advance the rows by what was computed and append accepted drafts and sampled tokens, up to the first that
        `ends` its answer. Returns (request, number of new tokens) per sampled row.

        A row whose request was aborted meanwhile is passed over. An answer that has ended is the caller's to `finish`.
        """
        self._step_index = plan.index + 1
        by_id = {request.id: request for request in self.running}
        sampled: list[tuple[Request, int]] = []
        logprobs = result.logprobs or ((),) * len(plan.rows)
        all_accepted = result.accepted or (0,) * len(plan.rows)
        for row, token, accepted, scores, logprob in zip(
            plan.rows, result.tokens, all_accepted, result.scores, logprobs, strict=True
        ):
            request = by_id.get(row.request_id)
            if request is None or request.state is not State.RUNNING:
                continue
            request.log.steps.append((plan.index, "prefill" if row.is_prefill else "decode", len(row.tokens)))
            if scores:
                request.scores.extend(scores)
            kept = 0
            if token is not None:
                request.draft = NO_DRAFT
                kept = _append(request, (*row.drafts[:accepted], token) if accepted else (token,), logprob, ends)
                sampled.append((request, kept))
            # Of the tokens appended, all but the newest have been computed, as drafts.
            request.num_computed = row.start + len(row.tokens) - row.num_drafts + (kept - 1 if kept > 1 else 0)
            if row.num_drafts:
                request.log.drafts.append((plan.index, row.num_drafts, min(accepted, kept)))
                self.layout.trim(request)
            self.layout.publish(request)
        self.check()
        return sampled

    def pass_steps(self, count: int) -> None:
        """Number the next plan as if `count` more had been made: somebody has made up for those steps at once."""
        self._step_index += count

    def check(self) -> None:
        """Assert the cheap invariants: every hold on a block stands in one table, every slot has one owner or none,
        nobody is ahead of itself."""
        self.pool.check(sum([len(request.blocks) for request in self.running]))
        assert len(self.running) + len(self._free_slots) == self._num_slots, "a slot is lost or held twice"
        assert not [request for request in self.running if request.num_computed > len(request.tokens)]

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
        self.layout.release(request)
        if request in self.running:
            self._leave(request)
        request.state = State.FINISHED
        request.log.release_ns = now_ns
