"""The buffer of rows that wait for the disk."""

from typing import Any

from gateway.serving.records import Outcome
from gateway.usage.buffer import UsageBuffer
from gateway.usage.row import SUMMED, UsageRow
from tests.gateway.limits.virtual import JANUARY_2026, key_with, record_of

DAY = 86_400.0


def fill(buffer: UsageBuffer, count: int, time: float = JANUARY_2026, key_id: str = "key_1", **fields: Any) -> None:
    for _ in range(count):
        buffer.add(record_of(key_with(key_id), **{"prompt_tokens": 10, "cached_tokens": 4, **fields}), time)


def taken(buffer: UsageBuffer, batch: int = 2) -> list[UsageRow]:
    """Take every row, as the writer does."""
    rows: list[UsageRow] = []
    while part := buffer.first(batch):
        rows += part
        buffer.drop(part)
    return rows


def test_a_row_has_what_the_record_says() -> None:
    buffer = UsageBuffer(8)
    record = record_of(
        key_with("key_1"),
        prompt_tokens=10,
        cached_tokens=4,
        completion_tokens=7,
        wasted_tokens=3,
        outcome=Outcome.CANCELLED,
        phase="decode",
        cause="client_left",
        arrived_at=2.0,
        ended_at=3.5,
    )
    buffer.add(record, JANUARY_2026 + DAY - 0.5)
    (row,) = taken(buffer)
    assert (row.key_id, row.model, row.operation, row.request_id) == ("key_1", "tiny", "chat", "req_1")
    assert (row.prompt_tokens, row.cached_tokens, row.completion_tokens, row.charged_tokens) == (10, 4, 7, 13)
    assert (row.outcome, row.phase, row.cause) == ("cancelled", "decode", "client_left")
    assert (row.at, row.day, row.seconds, row.requests) == (JANUARY_2026 + DAY - 0.5, "2026-01-01", 1.5, 1)


def test_a_request_without_a_key_has_an_empty_one() -> None:
    buffer = UsageBuffer(8)
    buffer.add(record_of(None), JANUARY_2026)
    assert [row.key_id for row in taken(buffer)] == [""]


def test_refused_requests_take_no_row() -> None:
    buffer = UsageBuffer(8)
    fill(buffer, 3, outcome=Outcome.REFUSED)
    assert not taken(buffer)


def test_each_row_has_an_id_of_its_own() -> None:
    buffers = [UsageBuffer(3), UsageBuffer(3)]
    for buffer in buffers:
        fill(buffer, 6)
    rows = [row for buffer in buffers for row in taken(buffer)]
    assert len({row.id for row in rows}) == len(rows) == 8


def test_rows_beyond_the_capacity_are_summed_by_key_model_and_day() -> None:
    buffer = UsageBuffer(2)
    fill(buffer, 4)
    fill(buffer, 3, key_id="key_2", completion_tokens=1)
    fill(buffer, 2, JANUARY_2026 + DAY)
    fill(buffer, 1000, model="other")
    assert len(buffer) == 2 + 4
    assert (buffer.requests, buffer.tokens) == (1009, 1009 * 6 + 3)
    singles, sums = (rows := taken(buffer))[:2], rows[2:]
    assert [row.requests for row in singles] == [1, 1]
    assert [(row.key_id, row.model, row.day, row.requests, row.charged_tokens, row.outcome) for row in sums] == [
        ("key_1", "tiny", "2026-01-01", 2, 12, SUMMED),
        ("key_2", "tiny", "2026-01-01", 3, 21, SUMMED),
        ("key_1", "tiny", "2026-01-02", 2, 12, SUMMED),
        ("key_1", "other", "2026-01-01", 1000, 6000, SUMMED),
    ]


def test_a_batch_stays_until_it_is_dropped_and_does_not_change() -> None:
    buffer = UsageBuffer(0)
    fill(buffer, 2)
    batch = [(row.id, row.requests) for row in buffer.first(5)]
    fill(buffer, 1)
    assert [(row.id, row.requests) for row in buffer.first(5)] == batch
    assert buffer.requests == 3
    buffer.drop(buffer.first(5))
    assert [row.requests for row in taken(buffer)] == [1]


def test_a_request_that_ran_again_here_has_one_row_also_while_the_first_is_stored() -> None:
    buffer = UsageBuffer(8)
    first, other, again = (record_of(key_with(), prompt_tokens=tokens) for tokens in (1, 2, 3))
    again.id = first.id
    buffer.add(first, JANUARY_2026)
    buffer.add(other, JANUARY_2026)
    batch = buffer.first(8)
    buffer.add(again, JANUARY_2026)
    assert (buffer.requests, buffer.tokens) == (2, 5)
    buffer.drop(batch)
    assert [row.prompt_tokens for row in taken(buffer)] == [3]


def test_after_the_sums_are_taken_rows_are_single_again() -> None:
    buffer = UsageBuffer(1)
    fill(buffer, 5)
    taken(buffer)
    fill(buffer, 1)
    assert [row.outcome for row in taken(buffer)] == ["finished"]
