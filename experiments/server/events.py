"""What passes between the HTTP side and the engine's thread: jobs go in, events come out. Times in ns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from core_engine.answer_cache import CacheAsk
from core_engine.sampling_params import SamplingParams


@dataclass(eq=False)
class Job:
    """One HTTP request in the engine: its prompts, each with params.n samples. Times in ns, see EngineThread.

    receiver: whatever the receiver of the events wants to find here. The thread keeps ids and open samples.
    """

    id: str
    arm: int
    prompts: Sequence[Sequence[int]]
    params: SamplingParams
    arrival_ns: int
    own_arrival_ns: int
    receiver: Any = None
    groups: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    num_open: int = 0
    cache: CacheAsk = field(default_factory=CacheAsk)


class Admitted(NamedTuple):
    """What is known of a sample once it has its first token."""

    queue_ns: int
    prompt_tokens: int
    asked_tokens: int  # looked up in the prefix cache
    hit_tokens: int
    cache: str | None = None  # the tier whose stored answer it was given


class Emission(NamedTuple):
    """What a step brought one sample. choice counts the samples of all prompts of the job."""

    job: Job
    choice: int
    token_ids: list[int]
    text: str
    finish_reason: str | None
    logprobs: tuple[Any, ...]
    at_ns: int
    own_ns: int
    admitted: Admitted | None  # with the first token


class Rejected(NamedTuple):
    """The engine did not take the job."""

    job: Job
    error: Exception


class Failed(NamedTuple):
    """The job was dropped: status 500 after a failed step, 503 when the server stops."""

    job: Job
    status: int
    reason: str


class Dropped(NamedTuple):
    """The job was aborted by its client; `open` of its samples had not ended."""

    job: Job
    num_open: int


class Stepped(NamedTuple):
    """A step of an arm: its times, and counts of what it did."""

    arm: int
    step_ns: int
    execute_ns: int
    tokens: int
    preempted: int
    drafts: Sequence[Sequence[Any]]  # (id, drafted, accepted, emitted) of rows with drafts


Event = Emission | Rejected | Failed | Dropped | Stepped


class Load(NamedTuple):
    """Where an engine stands between two steps."""

    running: int = 0
    waiting: int = 0
    used_blocks: int = 0
    total_blocks: int = 1
