"""Fleet: replicas behind a router, or prefill replicas that hand their KV to decode replicas.

Owns the order of events across replicas. A replica is only moved when somebody has to know how far it is, so that a
fleet costs what its replicas' steps cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from core_engine.clock import NS
from core_engine.simulation.gaps import Gaps
from core_engine.simulation.job import Ended, Job
from core_engine.simulation.replica import OnEnd, Replica
from core_engine.simulation.routers import Router
from ledger.links import Link

MakeReplica = Callable[[int, OnEnd], Replica]


def serve(jobs: Iterable[Job], replicas: Sequence[Replica], router: Router) -> None:
    """Run jobs, in order of arrival, to their end; the replicas' `on_end` is told of each."""
    for job in jobs:
        send(job, replicas, router)
    for replica in replicas:
        replica.advance(None)


def send(job: Job, replicas: Sequence[Replica], router: Router, received_tokens: int = 0) -> None:
    """Move the replicas that matter to a job's arrival and submit it to the one that the router chooses."""
    if router.looks_at_loads:
        for replica in replicas:
            replica.advance(job.arrival_ns)
    chosen = replicas[router.choose(job, replicas)]
    chosen.advance(job.arrival_ns)
    chosen.submit(job, received_tokens)


@dataclass(frozen=True)
class Side:
    """The prefill or the decode replicas of a disaggregated fleet."""

    replicas: int
    make: MakeReplica
    router: Router


@dataclass
class Apart:
    """What a disaggregated fleet did. transfer_ns: of each request's KV, waiting for the link included."""

    prefill: list[Replica]
    decode: list[Replica]
    transfer_ns: list[int]
    transfer_bytes: float
    gaps: Gaps  # between a first token and the second one, which another replica gives


def serve_apart(
    jobs: Iterable[Job],
    prefill: Side,
    decode: Side,
    link: Link,
    kv_bytes_per_token: float,
    on_end: OnEnd,
    *,
    lanes: int = 1,
) -> Apart:
    """Prefill/decode disaggregation.

    A prefill replica gives the first token; the prompt's KV then goes over that replica's own links, one request after
    another, and the request joins a decode replica when all of it has arrived. Nothing holds a prefill replica back
    when decode replicas are full, and its blocks are free again when the first token is there.

    kv_bytes_per_token: of all cards of a replica together; lanes: those cards, each of which sends its share over a
    link of its own.
    """
    known: dict[int, Job] = {}
    firsts: list[Ended] = []

    def asked() -> Iterable[Job]:
        for job in jobs:
            known[job.index] = job
            yield replace(job, output_tokens=1)

    senders = [prefill.make(number, firsts.append) for number in range(prefill.replicas)]
    serve(asked(), senders, prefill.router)
    done = Apart(senders, [], [], 0.0, Gaps())
    to_move: list[tuple[Job, Ended]] = []
    free_ns = [0] * prefill.replicas
    for first in sorted(firsts, key=lambda ended: ended.first_ns or 0):
        job = known[first.job.index]
        if first.first_ns is None or min(job.output_tokens, job.max_tokens) == 1:
            on_end(replace(first, job=job))
            continue
        size = job.prompt_tokens * kv_bytes_per_token
        begin_ns = max(first.first_ns, free_ns[first.replica])
        free_ns[first.replica] = begin_ns + max(1, round(link.send_s(size / lanes) * NS))
        done.transfer_ns.append(free_ns[first.replica] - first.first_ns)
        done.transfer_bytes += size
        to_move.append((_rest(job, free_ns[first.replica]), first))
    to_move.sort(key=lambda pair: pair[0].arrival_ns)
    by_index = {first.job.index: first for _, first in to_move}

    def joined(ended: Ended) -> None:
        first = by_index[ended.job.index]
        if ended.first_ns is None:  # decode refused it: its caller has no answer
            on_end(replace(ended, job=known[ended.job.index]))
            return
        assert first.first_ns is not None
        done.gaps.add(ended.first_ns - first.first_ns)
        on_end(_joined(known[ended.job.index], first, ended))

    done.decode = [decode.make(number, joined) for number in range(decode.replicas)]
    for job, _ in to_move:
        send(job, done.decode, decode.router, received_tokens=job.prompt_tokens - 1)
    for replica in done.decode:
        replica.advance(None)
    return done


def _rest(job: Job, arrival_ns: int) -> Job:
    """What a decode replica is asked: everything after the first token, which it gets with the prompt."""
    ids = None if job.token_ids is None else (*job.token_ids, 0)
    return replace(
        job,
        arrival_ns=arrival_ns,
        prompt_tokens=job.prompt_tokens + 1,
        output_tokens=job.output_tokens - 1,
        max_tokens=job.max_tokens - 1,
        token_ids=ids,
    )


def _joined(job: Job, first: Ended, rest: Ended) -> Ended:
    """The request as its caller saw it."""
    return replace(
        rest,
        job=job,
        admit_ns=first.admit_ns,
        first_ns=first.first_ns,
        first_tokens=first.first_tokens,
        output_tokens=first.output_tokens + rest.output_tokens,
        queue_ns=first.queue_ns + rest.queue_ns,
        late_queue_ns=first.late_queue_ns + rest.queue_ns,
        preemptions=first.preemptions + rest.preemptions,
        prefix_hit_tokens=first.prefix_hit_tokens,
        emissions=first.emissions + rest.emissions,
    )
