"""Routers: which replica gets a request. One object a policy; none knows what a replica computes."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Protocol

from core_engine.simulation.job import Job
from core_engine.simulation.replica import Replica
from ledger.errors import InputError

PIECE = 64  # tokens of a prompt that are told apart together
ROUTERS = ("least-loaded", "round-robin", "prefix-aware")


class Router(Protocol):
    """Chooses by the job and, where it looks at loads, by replicas that have been moved to the job's arrival."""

    looks_at_loads: bool

    def choose(self, job: Job, replicas: Sequence[Replica]) -> int:
        """The place of the replica that gets the job."""
        ...


class RoundRobin:
    """One after another."""

    looks_at_loads = False

    def __init__(self) -> None:
        self._next = 0

    def choose(self, job: Job, replicas: Sequence[Replica]) -> int:
        """The next one."""
        place = self._next % len(replicas)
        self._next += 1
        return place


class LeastLoaded:
    """The replica with the fewest requests that have not ended; the first of equals."""

    looks_at_loads = True

    def choose(self, job: Job, replicas: Sequence[Replica]) -> int:
        """The least loaded one."""
        loads = [replica.load(job.arrival_ns) for replica in replicas]
        return loads.index(min(loads))


class PrefixAware:
    """The replica that was sent the longest prefix of the prompt, unless it has more than `slack` requests more than
    the least loaded one, which gets the job then.

    It remembers what it sent where, of the newest `most` prefixes, and asks no replica what its cache holds: as
    SGLang's cache-aware router, with hash ids in place of its tree of texts.
    """

    looks_at_loads = True

    def __init__(self, slack: int = 8, most: int = 1_000_000) -> None:
        self._slack, self._most = slack, most
        self._sent: dict[bytes, int] = {}

    def choose(self, job: Job, replicas: Sequence[Replica]) -> int:
        """The one with the prefix, or the least loaded one."""
        loads = [replica.load(job.arrival_ns) for replica in replicas]
        chosen, keys = loads.index(min(loads)), _chain(job)
        for key in reversed(keys):
            if (found := self._sent.get(key)) is not None:
                if loads[found] <= loads[chosen] + self._slack:
                    chosen = found
                break
        for key in keys:
            self._sent.pop(key, None)
            self._sent[key] = chosen
        while len(self._sent) > self._most:
            del self._sent[next(iter(self._sent))]
        return chosen


def _chain(job: Job) -> list[bytes]:
    """A key for each prefix of the job in whole pieces (of tokens, or hash ids that stand for them), shortest first."""
    keys, parent = [], b""
    for piece in _pieces(job):
        parent = blake2b(parent + piece, digest_size=16).digest()
        keys.append(parent)
    return keys


def _pieces(job: Job) -> list[bytes]:
    if job.token_ids is None:
        return [name.to_bytes(8, "little", signed=True) for name in job.prefix_ids]
    tokens = array("q", job.token_ids)
    return [tokens[end - PIECE : end].tobytes() for end in range(PIECE, len(tokens) + 1, PIECE)]


def router(name: str) -> Router:
    """The router of a name; InputError for one that is not known."""
    if name not in ROUTERS:
        raise InputError("router", name, ", ".join(ROUTERS))
    made: dict[str, Callable[[], Router]] = {
        "least-loaded": LeastLoaded,
        "round-robin": RoundRobin,
        "prefix-aware": PrefixAware,
    }
    return made[name]()
