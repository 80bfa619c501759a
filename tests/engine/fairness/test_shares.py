"""Shares of a queue: greedy clients, in any number, leave room for one more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import Busy
from engine.fairness.shares import Shares


def fill(shares: Shares, client: str) -> int:
    """Queue as many requests of a client as there is room for, and return their number."""
    queued = 0
    while True:
        try:
            shares.check_room(client)
        except Busy:
            return queued
        shares.enter(client)
        queued += 1


@given(limit=st.integers(0, 600), clients=st.integers(1, 8))
def test_greedy_clients_leave_room_for_another_one(limit: int, clients: int) -> None:
    shares = Shares(limit)
    queued = [fill(shares, f"greedy{n}") for n in range(clients)]
    assert sum(queued) <= limit
    assert queued[0] == limit - limit // 9, "one alone gets almost everything"
    if limit >= 9**clients:
        assert fill(shares, "another") > 0


def test_a_request_that_no_longer_waits_makes_room() -> None:
    shares = Shares(9)
    assert fill(shares, "a") == 8
    shares.leave("a")
    assert fill(shares, "a") == 1


def test_requests_that_leave_at_once_do_not_count() -> None:
    shares = Shares(0)
    shares.check_room("a", free=1)
    shares.enter("a")
    with pytest.raises(Busy):
        shares.check_room("b", free=1)
