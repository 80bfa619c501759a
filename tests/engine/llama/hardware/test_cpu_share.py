"""The engine process's CPUs and priority, set in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.errors import LoadError
from engine.hardware import Hardware
from engine.llama.hardware import cpu_share
from engine.llama.hardware.cpu_share import take_cpu_share

LINUX = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the kernel has no affinity")
ROOT = Path(__file__).parents[4]
PROGRAM = """
import json, os, threading
from engine.hardware import Hardware
from engine.llama.cpu.properties import usable_cores
from engine.llama.hardware.cpu_share import take_cpu_share

def state():
    return [sorted(os.sched_getaffinity(0)), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())]

begun, changed, other = threading.Event(), threading.Event(), []
def wait():
    begun.set()
    changed.wait()
    other.append(state())
early = threading.Thread(target=wait)
early.start()
begun.wait()
take_cpu_share(Hardware(cpus=(%d,), priority="low"))
changed.set()
early.join()
print(json.dumps([state(), *other, usable_cores()]))
"""


@LINUX
def test_all_threads_and_the_measured_number_of_threads_follow() -> None:
    cpu = max(os.sched_getaffinity(0))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM % cpu], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    own, other, cores = json.loads(done.stdout)
    assert own == other == [[cpu], 5]
    assert cores == 1


@LINUX
def test_cpus_that_the_process_may_not_use_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _thread: {0, 1, 2, 5})
    with pytest.raises(LoadError) as caught:
        take_cpu_share(Hardware(cpus=(1, 3, 4, 7)))
    assert str(caught.value) == "--cpus: this process may not use 3-4,7, only 0-2,5"


def test_a_priority_without_the_privilege_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", refuse)
    with pytest.raises(LoadError) as caught:
        take_cpu_share(Hardware(priority="high"))
    assert str(caught.value) == ("--engine-priority high needs the privilege CAP_SYS_NICE, or a higher RLIMIT_NICE")


def test_where_threads_have_no_ids_the_own_one_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed: list[tuple[int, ...]] = []
    monkeypatch.setattr(cpu_share, "_THREADS", tmp_path / "none")
    monkeypatch.setattr(os, "setpriority", lambda *given: changed.append(given))
    take_cpu_share(Hardware(priority="medium"))
    assert changed == [(os.PRIO_PROCESS, 0, -5)]


def test_by_default_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "setpriority", None)
    monkeypatch.setattr(os, "sched_setaffinity", None, raising=False)
    take_cpu_share(Hardware())
