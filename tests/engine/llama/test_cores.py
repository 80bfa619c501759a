"""How many threads a pass gets when nobody says."""

import os

import pytest

from engine.llama import cores


def test_two_threads_of_one_core_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 5}, raising=False)
    monkeypatch.setattr(cores, "_siblings", lambda cpu: {0: "0,4", 1: "1,5", 2: "2,6", 5: "1,5"}[cpu])
    assert cores.physical_cores() == 3


def test_where_the_kernel_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert cores.physical_cores() == (os.cpu_count() or 1)


def test_this_machine_has_a_core() -> None:
    assert 1 <= cores.physical_cores() <= (os.cpu_count() or 1)
