"""Queueing formulas against closed forms, known values of Erlang C, and a small simulation of arrivals."""

from __future__ import annotations

import math
import random

import pytest

from ledger.errors import InputError
from ledger.money import answer_cache_saving
from ledger.queueing import busy_share, in_flight, mean_wait_s, time_in_system_s, wait_probability


def test_littles_law_holds_both_ways() -> None:
    assert in_flight(10, 8) == 80
    assert time_in_system_s(80, 10) == 8
    assert busy_share(3, 0.5, 2) == 0.75


def test_one_server_waits_as_the_closed_form_says() -> None:
    assert mean_wait_s(8, 0.1) == pytest.approx(0.8 / 0.2 * 0.1)
    assert mean_wait_s(8, 0.1, fixed_service=True) == pytest.approx(0.2)


def test_the_wait_grows_without_bound_near_full_use() -> None:
    waits = [mean_wait_s(rate, 0.1) for rate in (5, 8, 9, 9.9)]
    assert waits == sorted(waits) and waits[-1] > 90 * waits[0]


def test_erlang_c_has_its_known_values() -> None:
    load, servers = 2.0, 3
    direct = load**servers / math.factorial(servers) * servers / (servers - load)
    direct /= sum(load**k / math.factorial(k) for k in range(servers)) + direct
    assert wait_probability(load, servers) == pytest.approx(direct) == pytest.approx(4 / 9)
    assert wait_probability(0.8, 1) == pytest.approx(0.8)
    assert 0 < wait_probability(990, 1000) < 1


def test_many_servers_agree_with_a_simulation() -> None:
    rng, servers, rate, service = random.Random(1), 3, 1.8, 1.0
    free, now, waited, count = [0.0] * servers, 0.0, 0.0, 60_000
    for _ in range(count):
        now += rng.expovariate(rate)
        first = min(range(servers), key=free.__getitem__)
        start = max(now, free[first])
        waited += start - now
        free[first] = start + rng.expovariate(1 / service)
    assert waited / count == pytest.approx(mean_wait_s(rate, service, servers), rel=0.1)


@pytest.mark.parametrize("call", [
    lambda: mean_wait_s(10, 0.1),
    lambda: mean_wait_s(11, 0.1),
    lambda: mean_wait_s(1, 0.1, 2, fixed_service=True),
    lambda: in_flight(-1, 1),
    lambda: in_flight(math.inf, 1),
    lambda: time_in_system_s(1, 0),
    lambda: busy_share(1, 1, 0),
    lambda: wait_probability(3, 3),
])  # fmt: skip
def test_what_cannot_be_is_refused(call) -> None:
    with pytest.raises(InputError):
        call()


def test_a_cache_of_answers_saves_what_hits_spare_less_lookups_and_wrong_answers() -> None:
    costs = {"cost_per_request": 0.01, "cost_per_lookup": 0.0002, "cost_per_wrong_answer": 0.5}
    assert answer_cache_saving(1000, 0.4, 0.01, **costs) == pytest.approx(4.0 - 2.0 - 0.2)
    assert answer_cache_saving(1000, 0.4, 0.02, **costs) < 0
    assert answer_cache_saving(1000, 0.0, 0.0, **costs) == pytest.approx(-0.2)
    with pytest.raises(InputError):
        answer_cache_saving(1000, 1.4, 0.0, cost_per_request=1)
