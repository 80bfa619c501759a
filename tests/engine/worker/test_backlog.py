"""The backlog of the intake: what it holds, and that it forgets."""

from collections.abc import Iterator

import pytest

from engine.errors import Busy
from engine.worker.backlog import Arrival, Backlog, Kind
from engine.worker.slices import Effort


def no_work() -> Iterator[Effort]:
    yield from ()


def arrival(number: int, client: str = "a", kind: Kind = Kind.REQUEST) -> Arrival:
    return Arrival((kind, number), client, no_work())  # type: ignore[arg-type]


def test_a_closed_backlog_gives_no_work() -> None:
    """The model that the work would use is freed."""
    backlog = Backlog(8)
    for number in range(3):
        backlog.add(arrival(number))
    taken = backlog.take(Effort.LIGHT)
    assert taken is not None
    backlog.close()
    backlog.put_back(taken, Effort.LIGHT)
    assert (backlog.take(Effort.LIGHT), len(backlog)) == (None, 0)


def test_clients_that_left_are_forgotten() -> None:
    backlog = Backlog(8)
    for number in range(100):
        backlog.add(arrival(number, f"client {number}"))
        assert backlog.remove((Kind.REQUEST, number))
    assert not backlog._sizes
    assert not any(backlog._turns.values())


def test_an_arrival_that_cannot_be_queued_stays_for_its_refusal() -> None:
    backlog = Backlog(8)
    backlog.add(arrival(1))

    def fail() -> None:
        raise Busy("full", code="queue_full")

    with pytest.raises(Busy):
        backlog.remove((Kind.REQUEST, 1), fail)
    assert backlog.remove((Kind.REQUEST, 1))
    assert not backlog.remove((Kind.REQUEST, 1))


def test_requests_and_queries_of_a_client_are_limited_apart() -> None:
    backlog = Backlog(2)
    for kind in Kind:
        for number in range(2):
            backlog.add(arrival(number, kind=kind))
        with pytest.raises(Busy):
            backlog.add(arrival(2, kind=kind))
        backlog.add(arrival(3, "another", kind))
