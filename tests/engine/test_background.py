"""The thread that works while another one waits for a device."""

import threading
import weakref

import pytest

from engine.background import Background

GUARD = 10.0
"""Seconds. No test takes so long unless it fails."""


def test_work_runs_in_another_thread_until_it_is_waited_for() -> None:
    begun, may_end, threads = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        begun.set()
        assert may_end.wait(GUARD)
        threads.append(threading.current_thread().name)

    with Background("aside") as background:
        background.begin(work)
        assert begun.wait(GUARD)
        assert threads == []
        may_end.set()
        background.wait()
        assert threads == ["aside"]


def test_a_wait_without_work_returns_at_once() -> None:
    with Background("aside") as background:
        background.wait()
        background.begin(lambda: None)
        background.wait()
        background.wait()


def test_finished_work_is_forgotten() -> None:
    class Result:
        def apply(self) -> None:
            pass

    result = Result()
    left = weakref.ref(result)
    with Background("aside") as background:
        background.begin(result.apply)
        background.wait()
        del result
        assert left() is None


def test_an_error_is_raised_by_the_wait_and_ends_nothing() -> None:
    done: list[bool] = []

    def fail() -> None:
        raise ValueError("no luck")

    with Background("aside") as background:
        background.begin(fail)
        with pytest.raises(ValueError, match="no luck"):
            background.wait()
        background.begin(lambda: done.append(True))
        background.wait()
    assert done == [True]


def test_the_thread_ends_after_its_last_work() -> None:
    done: list[bool] = []
    with Background("aside") as background:
        background.begin(lambda: done.append(True))
    assert done == [True]
    assert "aside" not in [thread.name for thread in threading.enumerate()]
