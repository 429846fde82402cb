"""Replay of a run record: the scheduler makes the same decisions again, without a model and without waiting.

The times, arrivals, aborts and sampled tokens come from the record; every plan is made anew and compared with the one
recorded. So a run can be looked at step by step in a debugger, and a record that a scheduler would not produce is told
apart from one that it would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from core_engine.admission import admission_policy
from core_engine.blocks import BlockPool
from core_engine.config import EngineConfig
from core_engine.foreseen import foreseen_plan, still_running
from core_engine.kv_layout import kv_layout
from core_engine.plan import StepPlan, StepResult
from core_engine.request import Request, RequestLog, SamplingParams
from core_engine.scheduler import Scheduler
from core_engine.speculation.proposer import Draft
from ledger.errors import InputError


class ReplayMismatch(Exception):
    """The scheduler planned something else than the record says; the text names the step and both plans."""


def replay(record: Mapping[str, Any]) -> Iterator[tuple[StepPlan, Scheduler]]:
    """Yield each step's plan, made again, and the scheduler while that step is in flight.

    Raises ReplayMismatch at the first step that differs, InputError for a record that lacks what a replay needs.
    """
    replayed, steps = _Replay(record), record["steps"]
    for step, following in zip(steps, [*steps[1:], {}], strict=True):
        yield from replayed.step(step, following)


class _Replay:
    def __init__(self, record: Mapping[str, Any]) -> None:
        needed = {"rows", "more_arrivals"}
        if any(needed - step.keys() for step in record["steps"]) or not record["requests"]:
            raise InputError("record", "no rows of steps or no requests", "a record with its whole trace")
        if record["steps"] and record["steps"][0]["index"] != 0:
            raise InputError("record", f"from step {record['steps'][0]['index']}", "a record that begins with step 0")
        known = {entry["id"] for entry in record["requests"]}
        unknown = {row[0] for step in record["steps"] for row in step["rows"]} - known
        if unknown:
            raise InputError("record", f"steps of {min(unknown)}, which it does not have", "a record with all requests")
        config = EngineConfig.from_settings(record["config"])
        pool = BlockPool(record["derived"]["num_kv_blocks"], config.block_size)
        self.scheduler = Scheduler(
            kv_layout(config, pool, record["derived"]["max_position"]),
            admission_policy(config),
            config.max_num_batched_tokens,
            chunked=config.chunked_prefill == "on",
        )
        computed = [entry for entry in record["requests"] if entry.get("cache") is None]  # else no step had it
        entries = sorted(computed, key=lambda entry: entry["send_ns"])
        self._entries = {entry["id"]: entry for entry in entries}
        self._to_come = entries[::-1]
        self._requests: dict[str, Request] = {}
        self._foreseen: StepPlan | None = None
        capacity = pool.num_blocks * config.block_size + 1
        self._most_tokens = min(record["derived"]["max_position"], capacity)

    def step(self, step: Mapping[str, Any], following: Mapping[str, Any]) -> Iterator[tuple[StepPlan, Scheduler]]:
        """following: the step after it, {} when there is none."""
        now_ns = step["plan_start_ns"]
        self._arrive(now_ns)
        self._abort(now_ns)
        self._draft(step)
        self.scheduler.more_arrivals = step["more_arrivals"]
        plan = self._plan(now_ns, step)
        if following.get("ahead"):
            self._foreseen = foreseen_plan(self.scheduler, plan, self._most_tokens, now_ns)
        made = [[row.request_id, row.start, row.count] for row in plan.rows]
        recorded = [row[:3] for row in step["rows"]]
        if made != recorded:
            raise ReplayMismatch(f"step {step['index']}: planned {made}, recorded {recorded}")
        yield plan, self.scheduler
        self._abort(step["execute_end_ns"])  # those that were dropped while the step was in flight
        self._commit(plan, step)

    def _plan(self, now_ns: int, step: Mapping[str, Any]) -> StepPlan:
        """The step's plan: the one made while the step before was in flight, less who has ended since, or a new one."""
        foreseen, self._foreseen = self._foreseen, None
        if foreseen is None or not step.get("ahead"):
            return self.scheduler.plan(now_ns)
        return replace(foreseen, rows=tuple(foreseen.rows[at] for at in still_running(self.scheduler, foreseen)))

    def _draft(self, step: Mapping[str, Any]) -> None:
        """Give the requests as many drafts as were computed in this step, of tokens that came."""
        for request_id, drafted, _, _ in step.get("drafts", ()):
            request = self._requests[request_id]
            request.draft = Draft(tuple(self._token(request_id, after) for after in range(drafted)))

    def _arrive(self, now_ns: int) -> None:
        while self._to_come and self._to_come[-1]["send_ns"] <= now_ns:
            entry = self._to_come.pop()
            if entry["finish_reason"] == "error":  # refused at the door
                continue
            prompt = list(entry["prompt_token_ids"])
            request = Request(
                entry["id"],
                len(self._requests),
                prompt,
                len(prompt),
                SamplingParams(max_tokens=entry["max_tokens"]),
                0,
                RequestLog(entry["arrival_ns"], entry["send_ns"]),
                group=entry["group"],
                sample_index=entry["sample_index"],
            )
            self._requests[request.id] = request
            self.scheduler.add(request)

    def _abort(self, now_ns: int) -> None:
        for request in list(self._requests.values()):
            entry = self._entries[request.id]
            if entry["finish_reason"] == "abort" and entry["finish_ns"] <= now_ns and request.finish_reason is None:
                self.scheduler.abort(request, entry["finish_ns"])

    def _commit(self, plan: StepPlan, step: Mapping[str, Any]) -> None:
        emitted = {request_id: count for request_id, _, _, count in step.get("drafts", ())}
        counts = [emitted.get(row.request_id, 1) for row in plan.rows]
        result = StepResult(
            tuple(
                self._token(row.request_id, count - 1) if row.sample else None
                for row, count in zip(plan.rows, counts, strict=True)
            ),
            ((),) * len(plan.rows),
            accepted=tuple(count - 1 for count in counts),
        )
        for request, _ in self.scheduler.commit(plan, result, self._is_last):
            if self._is_last(request):
                self.scheduler.finish(request, self._entries[request.id]["finish_reason"], step["execute_end_ns"])

    def _is_last(self, request: Request, token: int | None = None) -> bool:
        """Whether the answer ended with the newest token."""
        entry = self._entries[request.id]
        ended = entry["finish_reason"] in ("stop", "length")
        return ended and request.num_output_tokens == len(entry["output_token_ids"])

    def _token(self, request_id: str, after: int) -> int:
        """The token that came `after` so many more."""
        request, output = self._requests[request_id], self._entries[request_id]["output_token_ids"]
        place = request.num_output_tokens + after
        # An answer that was aborted while its step was in flight lost that step's tokens.
        return output[place] if place < len(output) else 0
