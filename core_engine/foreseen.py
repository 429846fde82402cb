"""The plan of the step after one that is still being computed: what the host prepares while the device works.

Knows the scheduler's rules for single new tokens and no others: where anything else could happen, nothing is foreseen
and the next step is planned when this one has been committed, as without overlap.
"""

from __future__ import annotations

from core_engine.plan import PENDING, Row, StepPlan
from core_engine.request import Request, State
from core_engine.scheduler import Scheduler


def foreseen_plan(scheduler: Scheduler, plan: StepPlan, most_tokens: int, now_ns: int) -> StepPlan | None:
    """The step that follows `plan` when each of its rows gives one token; None when it can't be foreseen.

    Its rows compute those tokens, PENDING in the plan, and its blocks are reserved. Rows whose answers end by length
    with `plan` are left out, most_tokens being the longest any may become. An answer that ends otherwise, or is
    aborted, has a row that nobody reads: `commit` passes over it, and its blocks go with its request.

    Nothing is foreseen while somebody could be admitted, computes a prompt, has drafts or scores, or chooses in a way
    that the host has a part in (penalties, biases, minimum lengths, log-probabilities), nor when blocks would have to
    be taken from others.
    """
    running = {request.id: request for request in scheduler.running if request.state is State.RUNNING}
    if len(plan.rows) != len(running) or scheduler.could_admit(now_ns):
        return None
    if not all(row.request_id in running and _gives_one_token(row) for row in plan.rows):
        return None
    going_on = [(row, running[row.request_id]) for row in plan.rows]
    going_on = [(row, request) for row, request in going_on if not _ends_by_length(request, most_tokens)]
    if not going_on:
        return None
    reserved: list[tuple[str, tuple[int, ...]]] = []
    for row, request in going_on:
        taken = scheduler.layout.grow(request, row.end + 1)
        if taken is None:
            for request_id, blocks in reversed(reserved):
                scheduler.layout.take_back(running[request_id], blocks)
            return None
        if taken:
            reserved.append((request.id, tuple(taken)))
    rows = tuple(_next_row(row, request) for row, request in going_on)
    return StepPlan(index=plan.index + 1, rows=rows, reserved=tuple(reserved))


def still_running(scheduler: Scheduler, plan: StepPlan) -> tuple[int, ...]:
    """Places of a foreseen plan's rows whose requests have neither ended nor been aborted since."""
    running = {request.id for request in scheduler.running if request.state is State.RUNNING}
    return tuple(place for place, row in enumerate(plan.rows) if row.request_id in running)


def _gives_one_token(row: Row) -> bool:
    sampling = row.sampling
    if sampling is None or row.num_drafts or row.targets:
        return False
    params = sampling.params
    return not (sampling.is_adjusted or params.min_tokens or params.logprobs is not None)


def _ends_by_length(request: Request, most_tokens: int) -> bool:
    """Whether the answer ends with its next token, whatever it is."""
    params, outputs = request.params, request.num_output_tokens + 1
    limits = [params.max_tokens, most_tokens - request.num_prompt_tokens]
    if params.answer_tokens is not None:
        limits.append(params.answer_tokens)
    return outputs >= min(limits)


def _next_row(row: Row, request: Request) -> Row:
    return Row(
        request_id=row.request_id,
        start=row.end,
        tokens=(PENDING,),
        blocks=request.blocks,
        is_prefill=False,
        sampling=row.sampling,
        slot=request.slot,
    )
