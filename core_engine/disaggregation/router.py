"""Router: where each request is, and when it may go on. Decides; sends nothing and knows no process.

waiting -> prefilling (on the prefill side, under a lease) -> transferring (its KV is in the lease's units, for decode
to take) -> decoding. Backpressure: a request is not given to prefill while as many as a batch are there, while
`most_arriving` prefixes wait for decode to have room, or while the area has no units for its blocks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from core_engine.disaggregation.leases import Lease, Leases
from core_engine.request import Request
from core_engine.sessions import Session

MOST_RETRIES = 2  # of one request: so often it is begun again after a side was lost, then it fails with the reason


class Phase(Enum):
    """Where a request is."""

    WAITING = "waiting"
    PREFILLING = "prefilling"
    TRANSFERRING = "transferring"
    DECODING = "decoding"


@dataclass(eq=False)
class Ticket:
    """A request under way. lease: from prefilling until decode has its KV. sent: decode was told to take it."""

    session: Session
    phase: Phase = Phase.WAITING
    lease: Lease | None = None
    sent: bool = False
    retries: int = 0
    transfer: dict[str, Any] = field(default_factory=dict)

    @property
    def request(self) -> Request:
        """Its request."""
        return self.session.request


class Router:
    """Requests by id, and the leases of those on their way."""

    def __init__(self, units: int, block_size: int, most_prefilling: int) -> None:
        self.leases = Leases(units)
        self.tickets: dict[str, Ticket] = {}
        self.waiting: deque[Ticket] = deque()
        self.paused_ns = {"decode_full": 0, "area_full": 0}
        self.most_prefilling = most_prefilling
        self.most_arriving = max(1, most_prefilling // 2)
        self._block_size = block_size
        self._dropped: dict[int, tuple[int, Lease]] = {}  # of aborted requests, until their side has let go
        self._paused: tuple[str, int] | None = None

    def add(self, session: Session) -> None:
        """A request at the end of the queue."""
        ticket = Ticket(session)
        self.tickets[ticket.request.id] = ticket
        self.waiting.append(ticket)

    def of(self, phase: Phase) -> list[Ticket]:
        """Those in a phase, in the order they came."""
        return [ticket for ticket in self.tickets.values() if ticket.phase is phase]

    def next(self, now_ns: int) -> Ticket | None:
        """The head of the queue, which is prefilling from now on; None while it has to wait."""
        if not self.waiting or len(self.of(Phase.PREFILLING)) >= self.most_prefilling:
            self._pause(None, now_ns)
            return None
        ticket = self.waiting[0]
        if ticket.request.score_start is None:
            if len(self.of(Phase.TRANSFERRING)) >= self.most_arriving:
                self._pause("decode_full", now_ns)
                return None
            ticket.lease = self.leases.take(-(-len(ticket.request.tokens) // self._block_size))
            if ticket.lease is None:
                self._pause("area_full", now_ns)
                return None
        self._pause(None, now_ns)
        self.waiting.popleft()
        ticket.phase = Phase.PREFILLING
        return ticket

    def _pause(self, why: str | None, now_ns: int) -> None:
        """Keep how long the head of the queue waits for something beside prefill itself."""
        if self._paused is not None:
            self.paused_ns[self._paused[0]] += now_ns - self._paused[1]
        self._paused = None if why is None else (why, now_ns)

    def copied(self, ticket: Ticket) -> None:
        """Its KV is in its units."""
        ticket.phase, ticket.sent = Phase.TRANSFERRING, False

    def resumed(self, ticket: Ticket) -> None:
        """Decode has it."""
        ticket.phase = Phase.DECODING
        self._let_go(ticket)

    def again(self, ticket: Ticket) -> None:
        """From the beginning: its tokens are computed once more, before those of whoever came after it."""
        self._let_go(ticket)
        ticket.phase, ticket.sent, ticket.transfer = Phase.WAITING, False, {}
        place = sum(other.request.index < ticket.request.index for other in self.waiting)
        self.waiting.insert(place, ticket)

    def end(self, ticket: Ticket, *, held_by: int | None = None) -> None:
        """It has ended. held_by: the side that has yet to let go of its units (`released`)."""
        if ticket.phase is Phase.WAITING:
            self.waiting.remove(ticket)
        if held_by is not None and ticket.lease is not None:
            self._dropped[ticket.lease.sequence] = (held_by, ticket.lease)
            ticket.lease = None
        self._let_go(ticket)
        del self.tickets[ticket.request.id]

    def released(self, sequence: int) -> None:
        """The side is done with the units of an aborted request."""
        if sequence in self._dropped:
            self.leases.give_back(self._dropped.pop(sequence)[1])

    def owes(self, side: int) -> bool:
        """Whether a side has yet to let go of the units of an aborted request."""
        return any(at == side for at, _ in self._dropped.values())

    def gone(self, side: int) -> None:
        """A side's process has ended: it can't touch units any more."""
        for sequence in [sequence for sequence, (at, _) in self._dropped.items() if at == side]:
            self.released(sequence)

    def _let_go(self, ticket: Ticket) -> None:
        if ticket.lease is not None:
            self.leases.give_back(ticket.lease)
            ticket.lease = None

    def check(self) -> None:
        """Assert that every lease has an owner that is on its way, and nobody else has one."""
        self.leases.check()
        on_the_way = [ticket for ticket in self.tickets.values() if ticket.lease is not None]
        assert all(ticket.phase in (Phase.PREFILLING, Phase.TRANSFERRING) for ticket in on_the_way)
        owned = {ticket.lease for ticket in on_the_way} | {lease for _, lease in self._dropped.values()}
        assert owned == set(self.leases.held), "a lease has no owner"
