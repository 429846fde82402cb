"""Draws a WorkloadSpec: the same spec, seed and options give the same requests on every machine."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.workloads.arrivals import Think, kind_name
from experiments.workloads.options import Limits, Options
from experiments.workloads.prompts import Prompts
from experiments.workloads.repetitive import LANGUAGES, draw_asks
from experiments.workloads.spec import ClosedLoop, WorkloadSpec
from experiments.workloads.text import TokenizerLike, system_prompt
from experiments.workloads.workload import Made, Workload, WorkloadRequest
from ledger.errors import InputError

TOO_LONG = "turns of conversations that outgrew max_prompt_tokens"
STREAMS = ("prompt", "output", "text", "arrival", "shared", "turns", "group", "think")


def draw(spec: WorkloadSpec, *, seed: int, tokenizer: TokenizerLike, options: Options) -> Workload:
    """The requests of a workload.

    Lengths, texts, arrivals and pauses come from separate streams of one seed, so a changed rate keeps the requests as
    they were. InputError for a rate where nothing has one.
    """
    check(spec, options)
    spec = _with_options(spec, options)
    rngs = streams(seed, spec.name)
    limits = Limits(options, spec.max_tokens)
    turns = _turns(spec, rngs["turns"])
    starts = spec.arrivals.draw_ns(len(turns), rngs["arrival"]) if spec.closed is None else [0] * len(turns)
    shape = _Shape(
        prompts=[limits.prompt(tokens) for tokens in spec.prompt_tokens.draw(spec.num_requests, rngs["prompt"])],
        outputs=[limits.output(tokens) for tokens in spec.output_tokens.draw(spec.num_requests, rngs["output"])],
        starts_ns=options.scaled_ns(starts),
        turns=turns,
        groups=spec.prefixes.draw(len(turns), rngs["group"]) if spec.prefixes else [None] * len(turns),
        thinks_ns=options.scaled_ns(_thinks_ns(spec, turns, rngs["think"])),
    )
    requests, dropped = _requests(spec, shape, tokenizer, limits, rngs)
    return Workload(
        name=spec.name,
        seed=seed,
        requests=tuple(requests),
        rate_rps=None if spec.rate_rps is None else spec.rate_rps / options.time_scale,
        arrivals="closed" if spec.closed else kind_name(spec.arrivals),
        concurrency=spec.closed.clients if spec.closed else None,
        made=Made(
            clipped=limits.clipped,
            dropped={TOO_LONG: dropped} if dropped else {},
            time_scale=options.time_scale,
            length_scale=options.length_scale,
        ),
    )


def streams(seed: int, name: str) -> dict[str, np.random.Generator]:
    """A generator for each of STREAMS. The name takes part, so that two workloads with one seed do not share draws."""
    made = np.random.SeedSequence([seed, zlib.crc32(name.encode())]).spawn(len(STREAMS))
    return {stream: np.random.default_rng(sequence) for stream, sequence in zip(STREAMS, made, strict=True)}


def check(spec: WorkloadSpec, options: Options) -> None:
    """InputError for a rate where nothing has one."""
    if options.rate_rps is None:
        return
    if spec.closed is not None:
        raise InputError("rate_rps", options.rate_rps, f"no rate: clients of {spec.name} send as answers end")
    if spec.rate_rps is None:
        raise InputError(
            "rate_rps", options.rate_rps, f"no rate: all requests of the workload {spec.name} come at once"
        )


def _with_options(spec: WorkloadSpec, options: Options) -> WorkloadSpec:
    if options.num_requests is not None:
        spec = replace(spec, num_requests=options.num_requests)
    if options.rate_rps is not None:
        spec = replace(spec, arrivals=spec.arrivals.at_rate(options.rate_rps))
    if options.concurrency is not None:
        think = spec.closed.think if spec.closed else Think(0.0)
        spec = replace(spec, closed=ClosedLoop(options.concurrency, think))
    if spec.prefixes is not None:
        spec = replace(spec, prefixes=replace(spec.prefixes, tokens=options.scaled_tokens(spec.prefixes.tokens)))
    return spec


@dataclass(frozen=True)
class _Shape:
    """Everything of the requests but their texts: by request, or by conversation (turns, starts_ns, groups)."""

    prompts: Sequence[int]
    outputs: Sequence[int]
    thinks_ns: Sequence[int]
    turns: Sequence[int]
    starts_ns: Sequence[int]
    groups: Sequence[int | None]


def _turns(spec: WorkloadSpec, rng: np.random.Generator) -> list[int]:
    """Turns of each conversation, num_requests in all; the last one is cut where they are reached."""
    if spec.sessions is None:
        return [1] * spec.num_requests
    turns: list[int] = []
    left = spec.num_requests
    for drawn in spec.sessions.turns.draw(spec.num_requests, rng):
        turns.append(min(drawn, left))
        left -= turns[-1]
        if not left:
            break
    return turns


def _thinks_ns(spec: WorkloadSpec, turns: Sequence[int], rng: np.random.Generator) -> list[int]:
    """The pause before each request; 0 for those whose arrival the schedule says."""
    if spec.sessions is None and spec.closed is None:
        return [0] * spec.num_requests
    later = spec.sessions.think.draw_ns(spec.num_requests, rng) if spec.sessions else [0] * spec.num_requests
    first = spec.closed.think.draw_ns(len(turns), rng) if spec.closed else [0] * len(turns)
    place = 0
    for conversation, count in enumerate(turns):
        later[place] = first[conversation]
        place += count
    return later


def _prefixes(spec: WorkloadSpec, tokenizer: TokenizerLike, rng: np.random.Generator) -> list[str]:
    """The shared texts by group. From the second on they begin with a number, so that groups share nothing."""
    if spec.prefixes is None:
        return []
    heads = ["", *(f"Assistant {group}. " for group in range(2, spec.prefixes.groups + 1))]
    return [system_prompt(tokenizer, spec.prefixes.tokens, rng, head=head) for head in heads]


def _requests(
    spec: WorkloadSpec,
    shape: _Shape,
    tokenizer: TokenizerLike,
    limits: Limits,
    rngs: dict[str, np.random.Generator],
) -> tuple[list[WorkloadRequest], int]:
    """The requests with their texts, and how many turns were dropped."""
    prompts = Prompts(spec, tokenizer, _prefixes(spec, tokenizer, rngs["shared"]))
    if spec.text in LANGUAGES:
        return _questions(spec, shape, prompts, limits, rngs["text"]), 0
    most = limits.options.max_prompt_tokens
    requests: list[WorkloadRequest] = []
    place = dropped = 0
    for session, count in enumerate(shape.turns):
        parent: int | None = None
        history = 0
        for turn in range(count):
            length, rng = shape.prompts[place + turn], rngs["text"]
            first = turn == 0
            ids = prompts.first(length, rng, shape.groups[session]) if first else prompts.later(length, rng)
            if not first and most is not None and history + len(ids) > most:
                dropped += count - turn
                break
            output = shape.outputs[place + turn]
            requests.append(
                WorkloadRequest(
                    prompt_token_ids=ids,
                    max_tokens=output if spec.max_tokens is None else limits.stated() or output,
                    output_tokens=output,
                    arrival_ns=shape.starts_ns[session],
                    session=session if spec.sessions else None,
                    parent=parent,
                    think_ns=shape.thinks_ns[place + turn],
                    history_tokens=history,
                    prefix_group=shape.groups[session],
                )
            )
            parent = len(requests) - 1
            history += len(ids) + output
        place += count
    return requests, dropped


def _questions(
    spec: WorkloadSpec, shape: _Shape, prompts: Prompts, limits: Limits, rng: np.random.Generator
) -> list[WorkloadRequest]:
    """Requests that ask what is written, again and again; each allows the answer to the same question."""
    asks = draw_asks(LANGUAGES[spec.text], spec.num_requests, rng)
    return [
        WorkloadRequest(
            prompt_token_ids=prompts.asked(ask.question, group),
            max_tokens=output if spec.max_tokens is None else limits.stated() or output,
            output_tokens=output,
            arrival_ns=start_ns,
            think_ns=think_ns,
            prefix_group=group,
            question=ask.question,
            answer_key=ask.key,
        )
        for ask, output, start_ns, think_ns, group in zip(
            asks, shape.outputs, shape.starts_ns, shape.thinks_ns, shape.groups, strict=True
        )
    ]
