"""How OpenMP's idle threads wait is said before torch is loaded, and what the user says stays."""

from __future__ import annotations

import os

import pytest

from experiments.threads import SPIN_COUNT, spin_shortly, worker_environment


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.setenv("GOMP_SPINCOUNT", "")  # so that the former value comes back, whatever a test does
    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)


def test_a_worker_spins_shortly():
    assert worker_environment()["GOMP_SPINCOUNT"] == SPIN_COUNT


@pytest.mark.parametrize(("name", "value"), [("GOMP_SPINCOUNT", "7"), ("OMP_WAIT_POLICY", "active")])
def test_what_the_user_says_stays(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    said = worker_environment()
    assert said[name] == value and said.get("GOMP_SPINCOUNT") in (None, "7")


def test_the_command_line_does_the_same_for_itself():
    spin_shortly()
    assert os.environ["GOMP_SPINCOUNT"] == SPIN_COUNT
