"""The processors of this process, and its quota of CPU time, read from files as the kernel writes them."""

import os
from pathlib import Path

import pytest

from engine import control_groups, processors
from engine.errors import LoadError
from engine.hardware import Hardware
from engine.processors import check_processors, cpu_quota


@pytest.fixture(autouse=True)
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_groups, "_MOUNT", tmp_path / "mount")
    monkeypatch.setattr(control_groups, "_MEMBERSHIP", tmp_path / "membership")


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")


def quota(root: Path, membership: str) -> float | None:
    write(root, {"membership": membership})
    return cpu_quota()


@pytest.mark.parametrize(("limit", "cores"), [("50000 100000", 0.5), ("150000 100000", 1.5), ("max 100000", None)])
def test_version_2_has_one_file(tmp_path: Path, limit: str, cores: float | None) -> None:
    write(tmp_path, {"mount/a/b/cpu.max": limit, "mount/a/cpu.max": "max 100000"})
    assert quota(tmp_path, "0::/a/b") == cores


@pytest.mark.parametrize(("limit", "cores"), [("50000", 0.5), ("400000", 4.0), ("-1", None)])
def test_version_1_has_two_files(tmp_path: Path, limit: str, cores: float | None) -> None:
    write(tmp_path, {"mount/cpu/a/cpu.cfs_quota_us": limit, "mount/cpu/a/cpu.cfs_period_us": "100000"})
    assert quota(tmp_path, "9:name=systemd:/\n2:cpu,cpuacct:/a\n4:memory:/b") == cores


def test_the_smallest_quota_around_the_process_counts(tmp_path: Path) -> None:
    write(tmp_path, {"mount/cpu.max": "max 1", "mount/a/cpu.max": "100 100", "mount/a/b/cpu.max": "300 100"})
    assert quota(tmp_path, "0::/a/b") == 1.0


def test_a_path_from_outside_the_container_leads_to_its_root(tmp_path: Path) -> None:
    write(tmp_path, {"mount/cpu/cpu.cfs_quota_us": "50000", "mount/cpu/cpu.cfs_period_us": "100000"})
    assert quota(tmp_path, "2:cpuacct,cpu:/docker/0123\n0::/") == 0.5


@pytest.mark.parametrize("text", ["", "max", "a b", "1 2 3"])
def test_what_cannot_be_read_is_no_quota(tmp_path: Path, text: str) -> None:
    write(tmp_path, {"mount/cpu.max": text})
    assert cpu_quota() is None
    assert quota(tmp_path, "0::/") is None


@pytest.mark.parametrize(("quota", "most"), [(None, 4), (2.5, 2), (0.5, 1), (16.0, 4)])
def test_threads_need_a_processor_each(monkeypatch: pytest.MonkeyPatch, quota: float | None, most: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 4, 5}, raising=False)
    monkeypatch.setattr(processors, "cpu_quota", lambda: quota)
    assert processors.usable_processors() == most


def test_a_strategy_needs_several_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "_NODES", tmp_path)
    (tmp_path / "node0").mkdir()
    with pytest.raises(LoadError) as caught:
        check_processors(Hardware(numa="isolate"))
    assert str(caught.value) == "--numa isolate has no effect: this machine has a single NUMA node"
    (tmp_path / "node1").mkdir()
    check_processors(Hardware(numa="isolate"))


def test_cpus_need_an_operating_system_that_can_choose_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    with pytest.raises(LoadError) as caught:
        check_processors(Hardware(cpus=(0,)))
    assert str(caught.value) == "--cpus is not possible on this operating system"
