"""The default budget: a share of the machine's free memory."""

import os
import stat
from pathlib import Path

import pytest

from gateway.residency import machine
from gateway.residency.machine import machine_budget
from gateway.residency.memory import Memory

TWO_GPUS = "printf '0, GPU-a1, 1000\\n1, GPU-b2, 2000\\n'"


def nvidia_smi(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_what_is_given_is_taken() -> None:
    assert machine_budget(5, 7) == Memory(5, 7)


def test_the_default_is_a_part_of_what_is_available() -> None:
    host = machine_budget(None, 0).host
    assert 0 < host < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")


def test_the_default_is_four_fifths_of_what_the_host_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_host_memory", lambda: 1000)
    assert machine_budget(None, 0) == Memory(800, 0)
    monkeypatch.setattr(machine, "available_host_memory", lambda: None)  # as on macOS
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    assert machine_budget(None, 0) == Memory(int(whole * 0.8), 0)


def test_the_gpus_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    nvidia_smi(tmp_path, TWO_GPUS, monkeypatch)
    assert machine_budget(1, None) == Memory(1, int(3000 * 2**20 * 0.9))


@pytest.mark.parametrize(
    ("chosen", "free"),
    [("0", 1000), ("1", 2000), ("1, 0", 3000), ("GPU-b", 2000), ("", 0), ("-1", 0), ("2", 0), ("MIG-b", 0)],
)
def test_only_the_gpus_that_cuda_uses_are_counted(
    chosen: str, free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    nvidia_smi(tmp_path, TWO_GPUS, monkeypatch)
    assert machine_budget(1, None) == Memory(1, int(free * 2**20 * 0.9))


def test_a_gpu_with_the_memory_of_the_host_counts_as_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(machine, "available_host_memory", lambda: 1000)
    nvidia_smi(tmp_path, "echo '0, GPU-a1, [N/A]'", monkeypatch)
    assert machine_budget(None, None) == Memory(800, 800)
    assert machine_budget(5, None) == Memory(5, 800)


@pytest.mark.parametrize("script", ["exit 9", "echo '0, GPU-a1, [Insufficient Permissions]'"])
def test_a_tool_that_fails_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    nvidia_smi(tmp_path, script, monkeypatch)
    assert machine_budget(1, None) == Memory(1, 0)


def test_without_the_tool_there_is_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine_budget(1, None) == Memory(1, 0)
