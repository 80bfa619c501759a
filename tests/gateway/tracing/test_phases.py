"""Phases of a request from the times of its record."""

import pytest

from gateway.serving.records import Operation
from gateway.tracing.phases import phases_of
from tests.gateway.tracing.requests import exchange_of, record_of

REACHED = {
    "intake": {"accepted_at": None, "started_at": None, "first_token_at": None},
    "queue": {"started_at": None, "first_token_at": None},
    "prefill": {"first_token_at": None},
    "decode": {},
}


@pytest.mark.parametrize("last", REACHED)
def test_the_phases_end_with_the_request(last: str) -> None:
    record = record_of(exchange_of(), **REACHED[last])
    phases = list(phases_of(record))
    assert [phase.name for phase in phases] == list(REACHED)[: list(REACHED).index(last) + 1]
    assert [phase.begin for phase in phases] == [record.arrived_at, *(phase.end for phase in phases[:-1])]
    assert phases[-1].end == record.ended_at


def test_an_embedding_has_one_phase_after_its_intake() -> None:
    record = record_of(exchange_of(), operation=Operation.EMBEDDINGS, started_at=None, first_token_at=None)
    assert [phase.name for phase in phases_of(record)] == ["intake", "embedding"]


def test_no_phase_ends_before_it_begins() -> None:
    record = record_of(exchange_of(), accepted_at=12.0, started_at=11.0)
    assert all(phase.end >= phase.begin for phase in phases_of(record))
