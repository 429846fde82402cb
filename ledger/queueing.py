"""Waiting in a queue, as formulas: Little's law, how busy servers are, and the mean wait for random arrivals.

Mean waits are those of a Poisson stream of arrivals and exponential service times (M/M/1, M/M/c); a server that always
takes the same time (M/D/1) makes the queue wait half as long. Sources: Little, "A Proof for the Queuing Formula
L = λW", 1961; Kleinrock, "Queueing Systems", volume I, 1975. Measures nothing.
"""

from __future__ import annotations

import math

from ledger.errors import InputError
from ledger.formats import positive

MOST_SERVERS = 10_000


def in_flight(arrivals_per_s: float, time_in_system_s: float) -> float:
    """Requests in the system on average (Little's law): arrivals a second x the seconds that each stays."""
    return _at_least_0("arrivals_per_s", arrivals_per_s) * _at_least_0("time_in_system_s", time_in_system_s)


def time_in_system_s(in_flight_requests: float, completed_per_s: float) -> float:
    """Little's law the other way: mean seconds in the system of so many requests in flight at such a throughput."""
    if not completed_per_s > 0:
        raise InputError("completed_per_s", completed_per_s, "a number above 0")
    return _at_least_0("in_flight", in_flight_requests) / completed_per_s


def busy_share(arrivals_per_s: float, service_s: float, servers: int = 1) -> float:
    """How busy each of `servers` is on average: arrivals x service time / servers. At 1 the queue grows for ever."""
    return in_flight(arrivals_per_s, service_s) / positive("servers", servers, MOST_SERVERS)


def mean_wait_s(arrivals_per_s: float, service_s: float, servers: int = 1, *, fixed_service: bool = False) -> float:
    """Mean seconds before service begins. InputError when the servers cannot keep up, or fixed times at several.

    One server: rho / (1 - rho) x service time, half of it where service always takes the same time. Several: Erlang's
    probability of having to wait x service time / (servers - load).
    """
    busy = busy_share(arrivals_per_s, service_s, servers)
    if not busy < 1:
        raise InputError("arrivals_per_s", arrivals_per_s, f"below {servers / service_s:g}, which is all they serve")
    if fixed_service:
        if servers != 1:
            raise InputError("servers", servers, "1 where service always takes the same time: no formula for more")
        return busy / (1 - busy) * service_s / 2
    load = busy * servers
    return wait_probability(load, servers) * service_s / (servers - load)


def wait_probability(load: float, servers: int) -> float:
    """Erlang C: share of arrivals that find all `servers` busy; `load` is arrivals x service time, below servers."""
    if not 0 <= load < positive("servers", servers, MOST_SERVERS):
        raise InputError("load", load, f"from 0 to below {servers}")
    blocked = 1.0  # Erlang B by its recursion, which neither overflows nor loses digits
    for count in range(1, servers + 1):
        blocked = load * blocked / (count + load * blocked)
    return blocked / (1 - load / servers * (1 - blocked))


def _at_least_0(name: str, value: float) -> float:
    if not 0 <= value < math.inf:
        raise InputError(name, value, "a number of 0 or more")
    return value
