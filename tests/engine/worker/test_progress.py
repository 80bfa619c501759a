"""Reports of progress: once a second, and not while a thread may be stuck."""

import threading

import pytest

from engine.worker.progress import PATIENCE, Progress
from tests.engine.worker.worker_client import GUARD


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_progress_is_reported_once_a_second() -> None:
    clock = Clock()
    progress = Progress(clock)
    reports = []
    for clock.now in (0.5, 1.0, 1.5, 1.9, 2.0, 10.0):
        reports.append(progress.should_report())
    assert reports == [False, True, False, False, True, True]


def test_a_thread_that_takes_too_long_hides_the_progress_of_others() -> None:
    clock, begun, go_on = Clock(), threading.Event(), threading.Event()
    progress = Progress(clock)

    def hang() -> None:
        with progress:
            begun.set()
            assert go_on.wait(GUARD)

    thread = threading.Thread(target=hang)
    thread.start()
    assert begun.wait(GUARD)
    clock.now = PATIENCE
    assert progress.should_report()
    clock.now = PATIENCE + 1
    with progress:
        assert not progress.should_report()
    go_on.set()
    thread.join(GUARD)
    assert progress.should_report()


def test_work_that_goes_on_does_not_hide_progress() -> None:
    clock = Clock()
    progress = Progress(clock)
    with progress:
        clock.now = PATIENCE + 1
        assert not progress.should_report()
        progress.go_on()
        assert progress.should_report()
        clock.now = 2 * (PATIENCE + 1)
        assert not progress.should_report()


def test_work_that_failed_has_ended() -> None:
    clock = Clock()
    progress = Progress(clock)
    with pytest.raises(RuntimeError), progress:
        raise RuntimeError
    clock.now = PATIENCE + 1
    assert progress.should_report()
