"""Cores and quotas of machines that are described by files."""

from __future__ import annotations

import os

import pytest

from core_engine import cores
from core_engine.environment import resolve_threads
from ledger.counted import counted


def cpus(folder, siblings, name="core_cpus_list"):
    """siblings: for each CPU the list as the kernel writes it."""
    for number, text in enumerate(siblings):
        topology = folder / f"cpu{number}" / "topology"
        topology.mkdir(parents=True)
        (topology / name).write_text(f"{text}\n")
    return folder


@pytest.mark.parametrize("name", ["core_cpus_list", "thread_siblings_list"])
def test_one_cpu_of_each_pair_of_hyperthreads(tmp_path, name):
    system = cpus(tmp_path, ["0,4", "1,5", "2,6", "3,7"] * 2, name)
    assert cores.physical_cores(range(8), system) == (0, 1, 2, 3)


def test_neighbouring_hyperthreads_and_a_sibling_that_is_not_allowed(tmp_path):
    system = cpus(tmp_path, ["0-1", "0-1", "2-3", "2-3"])
    assert cores.physical_cores((1, 2, 3), system) == (1, 2)


def test_cpus_without_topology_are_cores_of_their_own(tmp_path):
    assert cores.physical_cores((3, 5), tmp_path) == (3, 5)


def process(folder, kind, *, group="/", root="/", options="rw"):
    """A /proc/self whose one control group hierarchy is mounted at folder/mount; returns it and the mount."""
    mount = folder / "mount"
    mount.mkdir()
    (folder / "mountinfo").write_text(
        f"22 1 0:5 / /proc rw - proc proc rw\n31 23 0:29 {root} {mount} rw,relatime - {kind} cgroup {options}\n"
    )
    names = "0::" if kind == "cgroup2" else "4:cpu,cpuacct:"
    (folder / "cgroup").write_text(f"9:memory:/elsewhere\n{names}{group}\n")
    return folder, mount


@pytest.mark.parametrize(("text", "quota"), [("150000 100000", 1.5), ("max 100000", None), ("", None), ("5 0", None)])
def test_quota_of_version_2(tmp_path, text, quota):
    self, mount = process(tmp_path, "cgroup2")
    (mount / "cpu.max").write_text(text)
    assert cores.cpu_quota(self) == quota


@pytest.mark.parametrize(("microseconds", "quota"), [("400000", 4.0), ("-1", None)])
def test_quota_of_version_1(tmp_path, microseconds, quota):
    self, mount = process(tmp_path, "cgroup", options="rw,cpu,cpuacct")
    (mount / "cpu.cfs_quota_us").write_text(microseconds)
    (mount / "cpu.cfs_period_us").write_text("100000")
    assert cores.cpu_quota(self) == quota


def test_other_controllers_of_version_1_say_nothing_about_cpus(tmp_path):
    self, mount = process(tmp_path, "cgroup", options="rw,cpuset")
    (mount / "cpu.cfs_quota_us").write_text("100000")
    (mount / "cpu.cfs_period_us").write_text("100000")
    assert cores.cpu_quota(self) is None


def test_the_lowest_limit_on_the_way_to_the_root_counts(tmp_path):
    self, mount = process(tmp_path, "cgroup2", group="/slice/service/inner")
    inner = mount / "slice" / "service" / "inner"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("max 100000")
    (mount / "slice" / "cpu.max").write_text("250000 100000")
    (mount / "slice" / "service" / "cpu.max").write_text("800000 100000")
    assert cores.cpu_quota(self) == 2.5


def test_a_container_that_sees_only_its_own_part_of_the_hierarchy(tmp_path):
    """docker with version 1: the group's path is the host's, the mount shows its inside."""
    self, mount = process(tmp_path, "cgroup", group="/docker/abc", root="/docker/abc", options="rw,cpu")
    (mount / "cpu.cfs_quota_us").write_text("150000")
    (mount / "cpu.cfs_period_us").write_text("100000")
    assert cores.cpu_quota(self) == 1.5


def test_no_quota_where_nothing_can_be_read(tmp_path):
    assert cores.cpu_quota(tmp_path) is None


@pytest.mark.parametrize(
    ("quota", "threads"), [(None, 8), (1.5, 1), (0.5, 1), (4.0, 4), (12.0, 8)]
)  # 16 hyperthreads of 8 cores
def test_threads_found_are_cores_within_the_quota(monkeypatch, tmp_path, quota, threads):
    monkeypatch.setattr(cores, "allowed_cpus", lambda: tuple(range(16)))
    monkeypatch.setattr(cores, "physical_cores", lambda allowed: allowed[: len(allowed) // 2])
    monkeypatch.setattr(cores, "cpu_quota", lambda: quota)
    assert cores.threads_found() == resolve_threads(0) == threads
    cpus = counted(os.cpu_count() or 1, "CPU")
    assert f"{counted(threads, 'thread')} for 8 physical cores (16 of {cpus})" in cores.describe_cores()
    assert ("1.5 CPUs" in cores.describe_cores()) == (quota == 1.5)
    assert resolve_threads(3) == 3


def test_this_machines_threads_are_within_what_it_has():
    assert 1 <= cores.threads_found() <= len(cores.allowed_cpus())
