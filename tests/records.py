"""An observer that checks the order of the records it sees."""

import anyio

from gateway.serving.records import Outcome, RequestRecord


class Records:
    """The records of all requests. Each must begin once, be accepted at most once, and end once."""

    def __init__(self) -> None:
        self.begun: list[RequestRecord] = []
        self.accepted: list[RequestRecord] = []
        self.ended: list[RequestRecord] = []
        self.has_ended = anyio.Event()
        """Set once a request has ended."""

    def __call__(self, record: RequestRecord) -> None:
        seen = [any(record is other for other in others) for others in (self.begun, self.accepted, self.ended)]
        if record.outcome is not None:
            assert seen == [True, record.accepted, False], "a request ends before it begins, or twice"
            self.ended.append(record)
            self.has_ended.set()
        elif record.accepted:
            assert seen == [True, False, False], "a request is accepted before it begins, or twice"
            self.accepted.append(record)
        else:
            assert seen == [False, False, False], "a request begins twice"
            self.begun.append(record)

    def of(self, request_id: str) -> RequestRecord:
        """Return the record of the only request with this id that has ended."""
        (record,) = (record for record in self.ended if record.caller.request_id == request_id)
        return record

    def check(self) -> None:
        """Check that every request has ended, in a state that agrees with itself."""
        assert len(self.begun) == len(self.ended)
        for record in self.ended:
            check(record)


def check(record: RequestRecord) -> None:
    """Check that the fields of a record agree with each other."""
    assert (record.outcome is Outcome.FINISHED) == (record.cause == ""), record
    assert (record.accepted_at is None) or record.outcome is not Outcome.REFUSED, record
    assert record.phase != "done" or record.outcome in {Outcome.FINISHED, Outcome.CANCELLED}, record
    assert 0 <= record.cached_tokens <= record.prompt_tokens, record
    times = (record.arrived_at, record.accepted_at, record.started_at, record.first_token_at, record.ended_at)
    known = [time for time in times if time is not None]
    assert record.replayed or known == sorted(known), record
    if record.outcome is not Outcome.CANCELLED:
        assert record.release_seconds is None, record
        assert record.wasted_tokens == 0, record
