from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.routing.report import HeldBlocks, Report
from gateway.routing.view import ReplicaView

STATES = st.lists(st.sets(st.integers(0, 2**64 - 1) | st.integers(0, 6), max_size=6), max_size=8)


def log_of(states: list[set[int]]) -> tuple[HeldBlocks, list[set[int]]]:
    """A log, and its state by sequence number."""
    log, known = HeldBlocks(1), [set[int]()]
    for state in states:
        log.update(state)
        if log.sequence == len(known):
            known.append(state)
    return log, known


def view_at(state: set[int], sequence: int) -> ReplicaView:
    view = ReplicaView(1)
    view.apply(Report(1, 0, sequence, frozenset(state), frozenset()))
    return view


@settings(max_examples=30, deadline=None)
@given(STATES, st.data())
def test_a_report_leads_from_every_state_since_its_base_to_the_reported_one(
    states: list[set[int]], data: st.DataObject
) -> None:
    log, known = log_of(states)
    report = log.report(data.draw(st.integers(0, log.sequence + 2)))
    at = data.draw(st.integers(report.base, report.sequence))
    view = view_at(known[at], at)
    assert view.apply(report) is not None
    assert view.blocks() == known[-1]
    assert view.sequence == log.sequence


@settings(max_examples=30, deadline=None)
@given(STATES, st.integers(0, 14))
def test_a_report_is_not_larger_than_everything(states: list[set[int]], since: int) -> None:
    log, known = log_of(states)
    report = log.report(since)
    assert len(report.held) + len(report.dropped) <= max(len(known[-1]), 0)


@settings(max_examples=30, deadline=None)
@given(STATES, st.integers(0, 14))
def test_a_report_survives_json(states: list[set[int]], since: int) -> None:
    report = log_of(states)[0].report(since)
    assert Report.from_json(report.to_json()) == report


def test_the_same_blocks_are_no_new_state() -> None:
    log = HeldBlocks(1)
    log.update({1})
    log.update({1})
    assert (log.sequence, len(log.report().held)) == (1, 1)
    assert log.report(1) == Report(1, 1, 1, frozenset(), frozenset())


def test_the_latest_states_are_reported_for_routers_that_cannot_ask() -> None:
    log = HeldBlocks(1)
    for last in range(10, 20):
        log.update(set(range(last)))
    assert log.latest(2) == Report(1, 8, 10, frozenset({17, 18}), frozenset())
    assert log.latest(100).base == 0
