"""The default settings for a CPU."""

import os
import platform
from pathlib import Path

import pytest

from engine.llama.cpu import properties


def test_two_threads_of_one_core_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 5}, raising=False)
    monkeypatch.setattr(properties, "_siblings", lambda number: {0: "0,4", 1: "1,5", 2: "2,6", 5: "1,5"}[number])
    monkeypatch.setattr(properties, "cpu_quota", lambda: None)
    assert properties.usable_cores() == 3


@pytest.mark.parametrize(("quota", "cores"), [(0.5, 1), (1.9, 1), (2.0, 2), (16.0, 4)])
def test_a_quota_limits_the_cores(monkeypatch: pytest.MonkeyPatch, quota: float, cores: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(properties, "_siblings", str)
    monkeypatch.setattr(properties, "cpu_quota", lambda: quota)
    assert properties.usable_cores() == cores


def test_cores_are_counted_where_the_kernel_has_no_topology(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(properties, "cpu_quota", lambda: None)
    assert properties.usable_cores() == (os.cpu_count() or 1)


def test_this_machine_has_a_core() -> None:
    assert 1 <= properties.usable_cores() <= (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("machine", "flags", "gains"),
    [("aarch64", "asimddp", True), ("x86_64", "avx512f amx_int8", True), ("x86_64", "avx512f avx2", False)],
)
def test_weights_are_repacked_where_that_is_faster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, machine: str, flags: str, gains: bool
) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text(f"flags : fpu {flags}\n")
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(properties, "_CPU_INFO", info)
    assert properties.gains_by_repacking() is gains
