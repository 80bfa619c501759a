"""Requests in flight on a clock: what is measured of them, and the estimate of the wait for a slot."""

import pytest

from engine.client.exchange import Exchange
from engine.client.mailbox import Mailbox
from engine.client.measurements.summary import summarize
from engine.events import Event, Finished, FinishReason, PromptProgress, Released, Started, Text
from engine.info import EngineMetrics
from engine.protocol.fault import Fault
from engine.protocol.messages import Accepted, Refused, ToEngine
from tests.engine.client.harness import ask

pytestmark = pytest.mark.anyio


class Clocked:
    """An exchange on a clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.exchange = Exchange(8, lambda: self.now, lambda: self.now)
        self.exchange.connect(self._send)

    def _send(self, message: ToEngine) -> None:
        """Drop a message."""

    def open(self, client: str = "") -> Mailbox:
        return self.exchange.open(ask("", client=client), None)

    def deliver(self, mailbox: Mailbox, event: Event) -> None:
        self.exchange.deliver([(mailbox.key or 0, event)], self.now)

    def replay(self) -> None:
        self.exchange.disconnect()
        self.exchange.connect(self._send)


async def test_a_request_that_is_sent_again_waits_for_a_slot_again() -> None:
    clocked = Clocked()
    mailbox = clocked.open()
    clocked.deliver(mailbox, Started())
    assert clocked.exchange.end_reasoning(mailbox)
    clocked.replay()
    assert mailbox.key is not None
    assert [queued.request_id for queued in clocked.exchange.queued([mailbox.key])] == ["r"]
    assert not clocked.exchange.end_reasoning(mailbox)


async def test_the_first_acceptance_of_a_request_counts() -> None:
    clocked = Clocked()
    mailbox = clocked.open()
    for clocked.now in (1.0, 5.0):
        clocked.exchange.accept(Accepted(mailbox.key or 0, (7,)))
        assert mailbox.accepted_at == 1.0
        clocked.replay()


async def test_until_a_request_has_ended_the_oldest_one_is_the_measure_of_the_wait() -> None:
    clocked = Clocked()
    metrics = EngineMetrics(slots=2, waiting=3)
    assert clocked.exchange.queue_seconds(ask(""), metrics) == 0.0
    clocked.open()
    clocked.now = 10.0
    clocked.open()
    assert clocked.exchange.queue_seconds(ask(""), metrics) == 10.0 * 3 / 2


async def test_an_engine_without_slots_has_no_wait_for_one() -> None:
    assert Clocked().exchange.queue_seconds(ask(""), EngineMetrics(slots=0)) is None


async def test_requests_that_have_their_slots_take_no_turns_in_the_queue() -> None:
    clocked = Clocked()
    clients = ["ours", "ours", "ours", "other", "other", "other"]
    started, others = [clocked.open(client) for client in clients[:2]], [clocked.open(client) for client in clients[2:]]
    for mailbox in started:
        clocked.deliver(mailbox, Started())
    clocked.now = 10.0
    metrics = EngineMetrics(slots=1, waiting=len(others))
    assert clocked.exchange.queue_seconds(ask("", client="ours"), metrics) == 10.0 * 3, (
        "the third of the other is later"
    )


async def test_the_progress_of_a_prompt_is_no_token() -> None:
    clocked = Clocked()
    mailbox = clocked.open()
    progress = Text(0, "", progress=PromptProgress(8, 0, 4, 0.5))
    for clocked.now, event in ((1.0, progress), (4.0, Text(0, "a")), (6.0, Text(0, "b"))):
        clocked.deliver(mailbox, event)
    assert (clocked.exchange.gaps.sum, sum(clocked.exchange.gaps.counts)) == (2.0, 1)


async def test_a_choice_that_ends_while_its_cancel_is_on_the_way_counts() -> None:
    clocked = Clocked()
    mailbox = clocked.open()
    clocked.exchange.accept(Accepted(mailbox.key or 0, (7,)))
    clocked.now = 2.0
    clocked.exchange.cancel(mailbox, "the client left")
    clocked.now = 2.5
    clocked.deliver(mailbox, Finished(0, "abc", FinishReason.STOP, 3, 2))
    clocked.deliver(mailbox, Released("gone", 0, 0))
    assert (mailbox.tally.completion_tokens, mailbox.tally.cached_tokens) == (3, 2)
    assert mailbox.release_seconds == 0.5
    summary = summarize(mailbox, 3.0)
    assert (summary.finished, summary.phase, summary.completion_tokens) == (False, "done", 3)


@pytest.mark.parametrize(("fault", "retry_after"), [("Busy", 10.0), ("RequestError", None)])
async def test_only_a_refusal_for_want_of_room_says_when_to_try_again(fault: str, retry_after: float | None) -> None:
    clocked = Clocked()
    clocked.open()
    mailbox = clocked.open()
    clocked.now = 10.0
    clocked.exchange.refuse(Refused(mailbox.key or 0, Fault(fault, "no", "code")), EngineMetrics(slots=1, waiting=1))
    assert mailbox.error is not None
    assert mailbox.error.retry_after == retry_after
