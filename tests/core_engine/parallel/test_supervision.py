"""Ranks are ended by one clear error, whatever happens to one of them or to their driver, and none stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from core_engine.parallel.messages import Stepped
from core_engine.parallel.processes import RankLost, RankProcesses
from core_engine.parallel.shards import cores_of_ranks
from ledger.parallel import Traffic

MODULE = "tests.core_engine.parallel.idle_rank"
NAME = "tensor_parallel=2, pipeline_parallel=1"
ROOT = Path(__file__).resolve().parents[3]
STILL_S = 4.0
ENOUGH_S = 60.0  # on a busy machine; nothing waits so long when all is well

pytestmark = pytest.mark.skipif(os.name != "posix", reason="ranks need a POSIX system")


def gone(pid: int) -> bool:
    """Whether a process has ended (or is only remembered)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_gone(pids: list[int]) -> bool:
    until_s = time.monotonic() + ENOUGH_S
    while time.monotonic() < until_s and not all(map(gone, pids)):
        time.sleep(0.05)
    return all(map(gone, pids))


@pytest.fixture
def ranks() -> Iterator[RankProcesses]:
    found = RankProcesses(2, [(), ()], 1, name=NAME, standing_still_s=STILL_S, module=MODULE)
    yield found
    found.close()
    assert wait_gone(found.pids)


@pytest.fixture
def impatient() -> Iterator[RankProcesses]:
    found = RankProcesses(2, [(), ()], 1, name=NAME, standing_still_s=1.0, module=MODULE)
    found.ask(("echo", -1))
    yield found
    found.close()
    assert wait_gone(found.pids)


def test_all_are_asked_and_answer_in_order(ranks: RankProcesses) -> None:
    assert ranks.ask(("echo", -1)) == [("echo", 0), ("echo", 1)]
    assert ranks.ask(("slow", -1)) == [("slow", 0), ("slow", 1)]  # longer than standing still is allowed


@pytest.mark.parametrize(
    ("what", "said"),
    [("exit", "rank 1 of 2 ended with exit code 3"), ("hang", "rank 1 of 2 stood still for 4 s")],
)
def test_a_rank_that_ends_or_hangs_ends_the_job_by_its_name(ranks: RankProcesses, what: str, said: str) -> None:
    ranks.ask(("echo", -1))
    with pytest.raises(RankLost) as caught:
        ranks.ask((what, 1))
    assert said in str(caught.value) and str(caught.value).startswith(NAME) and "\n" not in str(caught.value)
    assert wait_gone(ranks.pids)
    with pytest.raises(RankLost, match="rank 1 of 2"):  # and ever after
        ranks.ask(("echo", -1))


def test_a_connection_that_closes_alone_ends_the_job(ranks: RankProcesses) -> None:
    with pytest.raises(RankLost, match="rank 0 of 2 closed its connection"):
        ranks.ask(("leave", 0))


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_killed_rank_is_named_with_the_signal(ranks: RankProcesses, when: str) -> None:
    ranks.ask(("echo", -1))
    kill = threading.Timer(0.0 if when == "before" else 0.3, os.kill, (ranks.pids[1], signal.SIGKILL))
    kill.start()
    if when == "before":
        kill.join()
        assert wait_gone(ranks.pids[1:])
    with pytest.raises(RankLost, match="rank 1 of 2 was ended by SIGKILL"):
        ranks.ask(("slow", -1))
    assert wait_gone(ranks.pids)


def test_a_stopped_rank_does_not_stop_the_driver(ranks: RankProcesses) -> None:
    ranks.ask(("echo", -1))
    os.kill(ranks.pids[0], signal.SIGSTOP)
    with pytest.raises(RankLost, match="rank 0 of 2 stood still"):
        ranks.ask(("echo", -1))
    assert wait_gone(ranks.pids)


def test_a_rank_that_stops_in_the_middle_of_an_answer_does_not_stop_the_driver(impatient: RankProcesses) -> None:
    with pytest.raises(RankLost, match="rank 1 of 2 stood still"):
        impatient.ask(("half", 1))


def test_a_message_larger_than_a_socket_to_a_stopped_rank_does_not_stop_the_driver(impatient: RankProcesses) -> None:
    os.kill(impatient.pids[1], signal.SIGSTOP)
    with pytest.raises(RankLost, match="rank 1 of 2 stood still"):
        impatient.ask(("echo", "x" * 4_000_000))


def test_logits_of_one_rank_are_not_taken_for_an_answer_when_another_failed() -> None:
    ranks = RankProcesses(2, [(), ()], 1, name=NAME, module=MODULE)
    stepped = Stepped(0, 1, 0, 0, 0, 1, Traffic(), (1, 2))
    with pytest.raises(RankLost, match="rank 1 of 2 failed: ValueError: no"):
        ranks.ask(("logits", stepped))


def test_ranks_that_nobody_refers_to_end() -> None:
    ranks = RankProcesses(1, [()], 1, name=NAME, module=MODULE)
    ranks.ask(("echo", -1))
    pids = ranks.pids
    del ranks
    assert wait_gone(pids)


@pytest.mark.parametrize("thread", ["main", "other"])
def test_ranks_end_with_a_killed_driver_whoever_started_them(thread: str) -> None:
    start = f"found.append(RankProcesses(2, [(), ()], 1, name='x', module={MODULE!r}))"
    code = f"""
import threading, time
from core_engine.parallel.processes import RankProcesses
found = []
def start():
    {start}
if {thread!r} == "main":
    start()
else:
    starter = threading.Thread(target=start)
    starter.start()
    starter.join()
found[0].ask(("echo", -1))  # the thread that started them has ended: they have not
print(*found[0].pids, flush=True)
time.sleep(600)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    driver = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment, text=True)
    assert driver.stdout is not None
    pids = [int(pid) for pid in driver.stdout.readline().split()]
    assert len(pids) == 2 and not any(map(gone, pids))
    driver.kill()
    driver.wait()
    driver.stdout.close()
    assert wait_gone(pids)


def test_cores_are_shared_and_apart_where_there_are_enough() -> None:
    threads, cpus = cores_of_ranks(1000, 4)
    assert threads == 1 and set(cpus) == {()}  # more ranks than cores: nobody is pinned
    threads, cpus = cores_of_ranks(1, 1)
    assert threads == 1 and len(cpus) == 1
    flat = [cpu for own in cores_of_ranks(2, 2)[1] for cpu in own]
    assert len(flat) == len(set(flat))
