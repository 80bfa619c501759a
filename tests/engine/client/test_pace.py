"""Estimates of waits, as plain arithmetic."""

import pytest

from engine.client.mailbox import Mailbox
from engine.client.measurements.histogram import Histogram
from engine.client.pace import LoadPace, QueuePace
from engine.events import Embedded, Finished, FinishReason, Released, Started
from engine.info import EngineMetrics
from engine.request import EmbeddingRequest, GenerationRequest, Request

GENERATION = GenerationRequest(id="r", prompts=("x",))
EMBEDDING = EmbeddingRequest(id="r", inputs=("x",))
END = Finished(0, "x", FinishReason.STOP, 1, 0)


def ended(request: Request, *, sent: float = 0, started: float | None = None, end: float) -> Mailbox:
    mailbox = Mailbox(request, None, Histogram(()))
    mailbox.sent_at = sent
    if started is not None:
        mailbox.deliver(Started(), started)
    mailbox.deliver(Embedded(0, b"") if isinstance(request, EmbeddingRequest) else END, end)
    return mailbox


def metrics(*, slots: int, waiting: int) -> EngineMetrics:
    return EngineMetrics(slots=slots, waiting=waiting)


@pytest.mark.parametrize(
    ("slots", "waiting", "seconds"), [(1, 1, 7.0), (1, 0, 7.0), (2, 1, 3.5), (4, 8, 14.0), (8, 256, 224.0)]
)
def test_the_queue_needs_the_time_of_its_requests_in_the_slots(slots: int, waiting: int, seconds: float) -> None:
    pace = QueuePace()
    pace.record(ended(GENERATION, started=100, end=107))
    assert pace.seconds(GENERATION, metrics(slots=slots, waiting=waiting), oldest=0) == seconds


@pytest.mark.parametrize(("client", "seconds"), [("greedy", 101.0), ("other", 5.0), ("new", 4.0)])
def test_requests_that_a_client_overtakes_do_not_count(client: str, seconds: float) -> None:
    """98 requests of one client wait, and one of each of three others."""
    pace = QueuePace()
    pace.record(ended(GENERATION, started=0, end=1))
    waiting = [*["greedy"] * 98, "other", "third", "fourth"]
    assert pace.seconds(GENERATION.replaced(client=client), metrics(slots=1, waiting=101), 0, waiting) == seconds


def test_the_wait_in_the_queue_is_no_time_in_a_slot() -> None:
    pace = QueuePace()
    pace.record(ended(GENERATION, sent=0, started=100, end=107))
    assert pace.seconds(GENERATION, metrics(slots=1, waiting=1), oldest=0) == 7


def test_a_request_that_was_cancelled_in_the_queue_does_not_count() -> None:
    pace, left = QueuePace(), Mailbox(GENERATION, None, Histogram(()))
    left.deliver(Released("queued", 0, 0), 50)
    pace.record(left)
    assert pace.seconds(GENERATION, metrics(slots=1, waiting=1), oldest=9) == 9


def test_the_average_follows_recent_requests() -> None:
    pace = QueuePace()
    for held in [100.0] + 40 * [2.0]:
        pace.record(ended(GENERATION, started=0, end=held))
    assert pace.seconds(GENERATION, metrics(slots=1, waiting=1), oldest=0) == pytest.approx(2, abs=0.1)


def test_until_a_request_has_ended_the_age_of_the_oldest_counts() -> None:
    assert QueuePace().seconds(GENERATION, metrics(slots=2, waiting=4), oldest=30) == 60


def test_an_embedding_waits_as_long_as_those_before_it() -> None:
    pace = QueuePace()
    assert pace.seconds(EMBEDDING, None, oldest=1) is None
    pace.record(ended(EMBEDDING, sent=10, end=13))
    assert pace.seconds(EMBEDDING, None, oldest=0) == 3
    assert pace.seconds(GENERATION, None, oldest=0) is None


def test_an_embedding_that_was_cancelled_does_not_count() -> None:
    pace, left = QueuePace(), Mailbox(EMBEDDING, None, Histogram(()))
    left.deliver(Released("queued", 0, 0), 0.1)
    pace.record(left)
    assert pace.seconds(EMBEDDING, None, oldest=0) is None


def test_the_first_load_is_estimated_by_its_progress() -> None:
    pace = LoadPace()
    assert pace.seconds(0.0, 0) is None
    pace.begin(100)
    assert pace.seconds(0.0, 110) is None
    assert pace.seconds(0.25, 110) == 30


def test_a_later_load_is_estimated_by_the_one_before() -> None:
    pace = LoadPace()
    pace.begin(100)
    pace.end(120)
    assert pace.seconds(1.0, 500) is None, "the engine is ready"
    pace.begin(510)
    assert [pace.seconds(0.0, now) for now in (500, 510, 525, 540)] == [30, 20, 5, 0]
