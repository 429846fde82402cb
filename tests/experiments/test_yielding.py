"""Priorities of the page's process and of what it starts, in a process of its own: a lowered priority stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import os, subprocess, sys, threading
from experiments.yielding import AUTOGROUP, make_way, start_process

def own():
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

wait = threading.Event()
threading.Thread(target=wait.wait, daemon=True).start()
before = own()
make_way()
make_way()
later = []
thread = threading.Thread(target=lambda: later.append(own()))
thread.start(), thread.join()
shared = AUTOGROUP.exists() and AUTOGROUP.read_text()
ask = [sys.executable, "-c", "import os; print(os.nice(0), " +
       ("open('/proc/self/autogroup').read().split()[-1])" if shared else "0)")]
child = start_process(ask, stdout=subprocess.PIPE, start_new_session=True).communicate()[0].decode().split()
tasks = sorted(os.getpriority(os.PRIO_PROCESS, int(task)) for task in os.listdir("/proc/self/task"))
group = AUTOGROUP.read_text().split()[-1] if shared else "5"
print(before, own(), *later, *child, len(set(tasks)), tasks.count(before), group)
"""


def run(script, **settings):
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, **settings)
    assert not done.returncode, done.stderr
    return [int(word) for word in done.stdout.split()]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has a priority for each thread")
def test_every_thread_makes_way_and_the_worker_does_not_inherit_it():
    before, own, later, child, child_group, kinds, ordinary, group = run(SCRIPT, start_new_session=True)
    assert own == later == max(5, before)
    assert (child, child_group) == (before, 0)
    assert (kinds, ordinary) == ((2, 1) if before < 5 else (1, ordinary)), "one thread alone starts processes"
    assert group == 5


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has a priority for each thread")
def test_the_terminals_session_is_left_alone():
    """Only a session of its own: whatever else runs in the user's terminal keeps its priority."""
    group = Path("/proc/self/autogroup")
    if not group.exists() or not group.read_text():  # empty: this process belongs to no session's group
        pytest.skip("this system does not share cores between sessions")
    script = """
from experiments.yielding import AUTOGROUP, make_way
before = AUTOGROUP.read_text().split()[-1]
make_way()
print(before, AUTOGROUP.read_text().split()[-1])
"""
    before, after = run(script)
    assert before == after
