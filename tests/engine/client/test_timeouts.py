"""The supervisor's timeouts, as plain arithmetic."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from engine import Supervision

LIMITS = Supervision(load_timeout=300, stall_timeout=60, backoff_first=0.1, backoff_longest=30, healthy_after=60)
seconds = st.floats(0, 1e6)


def test_the_wait_before_a_restart_doubles_up_to_a_bound_for_ever() -> None:
    waits: list[float | None] = [None]
    while len(waits) < 5000:
        waits.append(LIMITS.backoff(waits[-1], steps=0, ready=0.0))
    assert waits[1:12] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30]
    assert waits[-1] == 30


def test_a_process_that_was_ready_long_enough_resets_the_wait() -> None:
    assert LIMITS.backoff(30, steps=0, ready=59.9) == 30
    assert LIMITS.backoff(30, steps=0, ready=60) == 0.1


def test_a_process_that_finished_a_step_resets_the_wait() -> None:
    assert LIMITS.backoff(30, steps=1, ready=0.1) == 0.1


def test_loading_is_given_up_when_it_makes_no_progress() -> None:
    assert LIMITS.deadline(ready=False, progress_at=10, oldest_sent_at=None, now=200) == 310


def test_an_idle_engine_is_never_given_up() -> None:
    moments = [LIMITS.deadline(ready=True, progress_at=10, oldest_sent_at=None, now=now) for now in (10, 1000, 100_000)]
    assert all(moment - now == 60 for moment, now in zip(moments, (10, 1000, 100_000), strict=True))


def test_a_request_after_a_long_rest_has_the_whole_time() -> None:
    assert LIMITS.deadline(ready=True, progress_at=10, oldest_sent_at=5000, now=5001) == 5060


def test_an_engine_that_steps_is_not_given_up_however_old_its_requests_are() -> None:
    assert LIMITS.deadline(ready=True, progress_at=9000, oldest_sent_at=10, now=9001) == 9060


@given(st.booleans(), st.lists(seconds, min_size=2), seconds)
def test_progress_never_shortens_the_time_left(ready: bool, progress: list[float], oldest: float) -> None:
    ends = [
        LIMITS.deadline(ready=ready, progress_at=at, oldest_sent_at=oldest, now=max(progress))
        for at in sorted(progress)
    ]
    assert all(earlier <= later for earlier, later in pairwise(ends))
