"""Requests in flight without a process: keys, replay, late events, patience, and the number of frames sent."""

from typing import Any

import anyio
import pytest

from engine import Busy, EngineFault, RequestError, Sampling, SlowReader, Unavailable
from engine.client import mailbox as mailbox_module
from engine.client.exchange import Exchange
from engine.client.mailbox import Mailbox
from engine.client.queries import Queries
from engine.events import (
    Alternative,
    Event,
    Failed,
    Finished,
    FinishReason,
    FirstToken,
    Released,
    Started,
    Text,
    TokenDetail,
)
from engine.info import EngineMetrics, QueuedRequest
from engine.protocol.codec import encode
from engine.protocol.fault import Fault
from engine.protocol.messages import Accepted, Answered, Cancel, EndReasoning, Generate, Inspected, Refused, ToEngine
from tests.engine.client.harness import ask

pytestmark = pytest.mark.anyio

HELLO = Text(0, "hello")
END = Finished(0, "", FinishReason.STOP, 2, 0)


class Line:
    """An exchange that sends its frames to a list."""

    def __init__(self) -> None:
        self.sent: list[ToEngine] = []
        self.now = 0.0
        self.exchange = Exchange(3, lambda: self.now, lambda: self.now)
        self.exchange.connect(self.sent.append)

    def open(self, script: str = "", **fields: Any) -> Mailbox:
        request = ask(script, **fields)
        return self.exchange.open(request, patience=5 if request.stream else None)

    def news(self, mailbox: Mailbox, *events: Event, now: float = 0) -> None:
        assert mailbox.key is not None
        self.now = now
        self.exchange.deliver([(mailbox.key, event) for event in events], now)

    def cancels(self) -> list[int]:
        return [message.key for message in self.sent if isinstance(message, Cancel)]

    def keys(self) -> list[int]:
        return [message.key for message in self.sent if isinstance(message, Generate)]


@pytest.fixture
def line() -> Line:
    return Line()


async def test_texts_are_passed_on_while_the_reader_waits(line: Line) -> None:
    mailbox = line.open()
    passed: list[Text] = []
    taken: list[list[Text | Finished]] = []

    def to(text: Text) -> bool:
        passed.append(text)
        return text.text != "waits"

    async def read() -> None:
        taken.append(await mailbox.take())

    mailbox.pass_on(to)
    line.news(mailbox, Started(), HELLO)
    assert await mailbox.take() == [HELLO], "no task waited for it"
    assert passed == []
    waits = Text(0, "waits")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        line.news(mailbox, HELLO, HELLO)
        await anyio.wait_all_tasks_blocked()
        assert (passed, taken) == ([HELLO, HELLO], [])
        line.news(mailbox, waits, HELLO, END)
    assert passed == [HELLO, HELLO, waits], "those behind one that waits do not overtake it"
    assert taken == [[waits, HELLO, END]]


async def test_the_texts_of_several_steps_that_are_ready_are_taken_together(line: Line) -> None:
    mailbox = line.open()
    passed: list[Text] = []
    taken: list[list[Text | Finished]] = []

    async def read() -> None:
        taken.append(await mailbox.take())

    def to(text: Text) -> bool:
        passed.append(text)
        return True

    mailbox.pass_on(to)
    key = mailbox.key
    assert key is not None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        line.exchange.deliver([(key, HELLO)], 0.0, last=False)
        line.exchange.deliver([(key, HELLO)], 0.0, last=False)
        line.exchange.deliver([(key, HELLO)], 0.0)
    assert (taken, passed) == ([[HELLO, HELLO, HELLO]], [])
    line.news(mailbox, END)


async def test_a_request_whose_text_was_passed_on_is_not_replayed(line: Line) -> None:
    mailbox = line.open()
    mailbox.pass_on(lambda _text: True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mailbox.take)
        await anyio.wait_all_tasks_blocked()
        line.news(mailbox, Started(), HELLO)
        assert not mailbox.can_replay
        line.news(mailbox, END)


async def test_a_reader_that_left_gets_nothing_passed_on(line: Line) -> None:
    mailbox = line.open()
    passed: list[Text] = []

    def to(text: Text) -> bool:
        passed.append(text)
        return True

    mailbox.pass_on(to)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(mailbox.take)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    line.news(mailbox, Started(), HELLO)
    line.exchange.cancel(mailbox, "the client left")
    line.news(mailbox, HELLO, Released("decode", 2, 5))
    assert passed == []


async def test_take_returns_all_ready_events_in_order(line: Line) -> None:
    mailbox = line.open()
    line.news(mailbox, Started(), HELLO, HELLO)
    line.news(mailbox, HELLO, END)
    assert await mailbox.take() == [HELLO, HELLO, HELLO, END]
    assert await mailbox.take() == []
    assert line.exchange.oldest_sent_at is None


async def test_a_step_wakes_its_reader_once_for_any_number_of_events(line: Line) -> None:
    mailbox = line.open()
    woken: list[int] = []

    async def read() -> None:
        while events := await mailbox.take():
            woken.append(len(events))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        for step in ([HELLO, HELLO, HELLO], [HELLO], [HELLO, END]):
            await anyio.wait_all_tasks_blocked()
            line.news(mailbox, *step)
    assert woken == [3, 1, 2]


async def test_only_the_reasoning_of_a_request_that_runs_is_ended(line: Line) -> None:
    mailbox, cancelled, other = line.open(), line.open(), line.open()
    assert not line.exchange.end_reasoning(mailbox)
    line.news(mailbox, Started())
    assert line.exchange.end_reasoning(mailbox)
    assert [message for message in line.sent if isinstance(message, EndReasoning)] == [EndReasoning(mailbox.key or 0)]
    line.news(mailbox, END)
    assert not line.exchange.end_reasoning(mailbox)
    line.news(cancelled, Started())
    line.exchange.cancel(cancelled, "gone")
    assert not line.exchange.end_reasoning(cancelled)
    line.news(other, Started())
    line.exchange.disconnect()
    assert not line.exchange.end_reasoning(other)


async def test_a_request_ends_when_every_choice_has(line: Line) -> None:
    mailbox = line.open(n=2)
    line.news(mailbox, Finished(1, "b", FinishReason.STOP, 1, 0))
    ended = [mailbox.ended]
    line.news(mailbox, Finished(0, "a", FinishReason.STOP, 1, 0))
    assert [*ended, mailbox.ended] == [False, True]
    assert [end.text for end in await mailbox.outcomes()] == ["a", "b"]


async def test_an_outcome_has_the_texts_that_came_before_its_end(line: Line) -> None:
    mailbox = line.open(stream=False, n=2)
    details = [TokenDetail(at, b"x") for at in range(3)]
    line.news(mailbox, Text(1, "o", (details[0],)), Text(0, "a"), Text(1, "n", (details[1],)), END)
    line.news(mailbox, Finished(1, "e", FinishReason.STOP, 3, 0, (details[2],)))
    other, one = await mailbox.outcomes()
    assert (one.text, one.details, one.tokens) == ("one", tuple(details), 3)
    assert (other.text, other.details) == ("a", ())


async def test_events_before_a_failure_are_returned_before_it(line: Line) -> None:
    mailbox = line.open()
    line.news(mailbox, HELLO, Failed("broken", "broke"))
    assert await mailbox.take() == [HELLO]
    for _ in range(2):
        with pytest.raises(EngineFault, match="broken"):
            await mailbox.take()


async def test_a_failure_by_a_field_of_the_request_names_it(line: Line) -> None:
    mailbox = line.open()
    line.news(mailbox, Failed("too large", "invalid_grammar", "grammar"))
    with pytest.raises(RequestError, match="too large") as caught:
        await mailbox.take()
    assert (caught.value.code, caught.value.param) == ("invalid_grammar", "grammar")


@pytest.mark.parametrize("kind", [RequestError, Busy, Unavailable, EngineFault])
async def test_a_refusal_raises_the_exception_of_its_kind(line: Line, kind: type[Exception]) -> None:
    mailbox = line.open()
    line.exchange.refuse(Refused(line.keys()[0], Fault(kind.__name__, "no", "code", "param", {"n_ctx": 8})), None)
    with pytest.raises(kind) as caught:
        await mailbox.accepted()
    told = {"message": "no", "code": "code", "param": "param", "retry_after": None, "figures": {"n_ctx": 8}}
    assert vars(caught.value) == told


async def test_a_cancel_is_sent_once_and_only_the_release_counts_after_it(line: Line) -> None:
    mailbox = line.open()
    line.news(mailbox, Started(), HELLO)
    line.exchange.cancel(mailbox, "gone")
    line.exchange.cancel(mailbox, "gone again")
    line.news(mailbox, HELLO, END)
    ended = [mailbox.ended]
    line.news(mailbox, Released("decode", 2, 9))
    assert [*ended, mailbox.ended] == [False, True]
    assert mailbox.reason == "gone"
    assert mailbox.released == Released("decode", 2, 9)
    assert line.cancels() == line.keys()


async def test_taking_from_a_cancelled_request_raises_instead_of_an_empty_success(line: Line) -> None:
    mailbox = line.open()
    line.exchange.cancel(mailbox, "gone")
    for released in (False, True):
        if released:
            line.news(mailbox, Released("queued", 0, 0))
        for ask_for in (mailbox.take, mailbox.outcomes, mailbox.started, mailbox.accepted):
            with anyio.fail_after(20), pytest.raises(EngineFault, match="cancelled"):
                await ask_for()


async def test_a_request_that_ended_is_not_cancelled(line: Line) -> None:
    finished, failed, refused = line.open(), line.open(), line.open()
    line.news(finished, END)
    line.news(failed, Failed("broken", "broke"))
    line.exchange.refuse(Refused(line.keys()[2], Fault("Busy", "full")), None)
    for mailbox in (finished, failed, refused):
        line.exchange.cancel(mailbox, "gone")
    assert line.cancels() == []


async def test_a_refusal_that_crosses_with_a_cancel_leaves_the_release_to_come(line: Line) -> None:
    mailbox = line.open()
    line.exchange.cancel(mailbox, "gone")
    line.exchange.refuse(Refused(line.keys()[0], Fault("Busy", "full")), None)
    ended = [mailbox.ended]
    line.news(mailbox, Released("gone", 0, 0))
    assert [*ended, mailbox.ended] == [False, True]


async def test_events_for_an_unknown_key_are_dropped(line: Line) -> None:
    line.exchange.deliver([(999, HELLO), (999, END)], 0.0)
    line.exchange.accept(Accepted(999, (1,)))
    line.exchange.refuse(Refused(999, Fault("Busy", "full")), None)
    assert line.exchange.oldest_sent_at is None


async def test_an_unrequested_release_is_an_engine_fault(line: Line) -> None:
    mailbox = line.open()
    line.news(mailbox, Released("decode", 1, 1))
    with pytest.raises(EngineFault):
        await mailbox.take()


async def test_a_request_without_output_is_sent_again_under_a_new_key(line: Line) -> None:
    mailbox = line.open(n=2)
    (old,) = line.keys()
    line.exchange.accept(Accepted(old, (3,)))
    line.news(mailbox, Started(), HELLO, END)
    line.exchange.disconnect()
    line.exchange.connect(line.sent.append)
    assert len(line.keys()) == 2
    assert line.keys()[1] != old
    line.exchange.deliver([(old, Text(0, "late"))], 0.0)
    line.news(mailbox, HELLO, END, Finished(1, "", FinishReason.STOP, 1, 0))
    assert await mailbox.accepted() == (3,)
    assert len(await mailbox.take()) == 3


async def test_a_request_with_output_is_not_sent_again(line: Line) -> None:
    mailbox = line.open()
    line.news(mailbox, HELLO)
    await mailbox.take()
    line.news(mailbox, HELLO)
    line.exchange.disconnect()
    assert await mailbox.take() == [HELLO]
    with pytest.raises(EngineFault) as caught:
        await mailbox.take()
    assert caught.value.code == "engine_died"
    line.exchange.connect(line.sent.append)
    assert len(line.keys()) == 1


async def test_a_request_is_sent_at_most_twice(line: Line) -> None:
    mailbox = line.open()
    for _ in range(2):
        line.exchange.disconnect()
        line.exchange.connect(line.sent.append)
    with pytest.raises(EngineFault, match="died"):
        await mailbox.accepted()
    assert len(line.keys()) == 2


async def test_requests_are_sent_again_in_their_old_order_even_if_an_engine_dies_in_loading(line: Line) -> None:
    for seed in range(5):
        line.open(sampling=Sampling(seed=seed))
    line.exchange.disconnect()
    line.exchange.disconnect()
    line.exchange.connect(line.sent.append)
    again = [message for message in line.sent if isinstance(message, Generate)][5:]
    assert [message.request.sampling.seed for message in again] == [0, 1, 2, 3, 4]
    assert len(set(line.keys())) == 10


async def test_a_request_that_waits_for_its_replay_has_not_started(line: Line) -> None:
    mailbox, starts = line.open(), list[Mailbox]()

    async def start() -> None:
        await mailbox.started()
        starts.append(mailbox)

    line.news(mailbox, Started())
    line.exchange.disconnect()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(start)
        await anyio.wait_all_tasks_blocked()
        assert not starts
        line.exchange.connect(line.sent.append)
        line.news(mailbox, Started())
    assert starts


async def test_a_request_that_waits_for_its_replay_is_cancelled_without_a_frame(line: Line) -> None:
    mailbox = line.open()
    line.exchange.disconnect()
    line.exchange.cancel(mailbox, "gone")
    assert mailbox.released == Released("restarting", 0, 0)
    line.exchange.connect(line.sent.append)
    assert len(line.keys()) == 1
    assert line.cancels() == []


async def test_a_cancel_is_over_when_the_engine_dies(line: Line) -> None:
    mailbox = line.open()
    line.exchange.cancel(mailbox, "gone")
    line.exchange.disconnect()
    await mailbox.wait_ended()
    assert mailbox.released is None


async def test_a_reader_that_does_not_keep_up_is_cut_off(line: Line) -> None:
    mailbox = line.open()
    line.news(mailbox, HELLO, now=100)
    line.news(mailbox, HELLO, now=105)
    assert line.cancels() == []
    line.news(mailbox, HELLO, HELLO, now=105.1)
    assert line.cancels() == line.keys()
    with pytest.raises(SlowReader):
        await mailbox.take()
    line.news(mailbox, Released("decode", 4, 4))
    with pytest.raises(SlowReader):
        await mailbox.take()


async def test_patience_counts_from_the_oldest_event_that_was_not_taken(line: Line) -> None:
    mailbox = line.open()
    for now in range(0, 60, 4):
        line.news(mailbox, HELLO, now=now)
        await mailbox.take()
    line.news(mailbox, END, now=100)
    assert line.cancels() == []


async def test_patience_does_not_count_from_an_event_without_text(line: Line) -> None:
    mailbox = line.open()
    line.news(mailbox, Started(), now=0)
    line.news(mailbox, HELLO, now=100)
    assert line.cancels() == []


async def test_a_request_that_is_sent_again_is_counted_again(line: Line) -> None:
    mailbox = line.open(stream=False, n=2)
    line.news(mailbox, FirstToken(), END)
    line.exchange.disconnect()
    assert (mailbox.tally.first_token_at, mailbox.tally.completion_tokens) == (None, 0)


async def test_a_reader_may_leave_only_so_many_details_unread(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox_module, "MOST_UNREAD", 5)
    detail = TokenDetail(1, b"a", -1.0, (Alternative(2, b"b", -2.0),))
    two, many = Text(0, "a", (detail,)), Text(0, "an echoed prompt", (detail,) * 9)
    mailbox = line.open()
    for first in (many, two, two):
        line.news(mailbox, first, two, two, now=0)
        assert line.cancels() == []
        await mailbox.take()
    line.news(mailbox, two, two, two, two, now=0)
    assert len(line.cancels()) == 1
    with pytest.raises(SlowReader):
        await mailbox.take()


async def test_a_request_without_streaming_has_no_reader_to_cut_off(line: Line) -> None:
    mailbox = line.open(stream=False, n=3)
    for choice in range(3):
        line.news(mailbox, Finished(choice, "", FinishReason.STOP, 1, 0), now=1000 * choice)
    assert line.cancels() == []
    assert len(await mailbox.outcomes()) == 3


async def test_the_oldest_request_is_known_until_it_has_ended(line: Line) -> None:
    first, second = line.open(), line.open()
    line.exchange.cancel(first, "gone")
    assert line.exchange.oldest_sent_at == first.sent_at
    line.news(first, Released("queued", 0, 0))
    assert line.exchange.oldest_sent_at == second.sent_at
    line.exchange.refuse(Refused(line.keys()[1], Fault("Busy", "full")), None)
    assert line.exchange.oldest_sent_at is None


async def test_the_queue_has_the_requests_that_wait_in_the_order_of_the_keys(line: Line) -> None:
    first, second, started = line.open(name="first"), line.open(name="second", priority=3), line.open()
    first_key, second_key, started_key = line.keys()
    line.exchange.accept(Accepted(second_key, (4, 5)))
    line.news(started, Started(), now=2.0)
    keys = [second_key, 99, started_key, first_key]
    assert line.exchange.queued(keys) == (
        QueuedRequest(1, second.request.id, 9, 3, 2.0),
        QueuedRequest(2, first.request.id, 0, 0, 2.0),
    )


async def test_a_request_before_the_first_engine_and_after_the_last_is_refused(line: Line) -> None:
    first, last = Exchange(capacity=3), line.exchange
    first.disconnect()
    last.disconnect()
    last.close(lambda: Unavailable("It ended."))
    for exchange in (first, last):
        with pytest.raises(Unavailable):
            exchange.open(ask(""), patience=None)


async def test_a_client_leaves_room_for_others_while_the_engine_restarts() -> None:
    exchange = Exchange(capacity=18)
    exchange.connect(lambda _message: None)
    exchange.open(ask("").replaced(client="greedy"), patience=None)
    exchange.disconnect()
    waiting = [exchange.open(ask("").replaced(client="greedy"), patience=None) for _ in range(15)]
    with pytest.raises(Busy, match=r"^16 requests of this client are waiting already"):
        exchange.open(ask("").replaced(client="greedy"), patience=None)
    exchange.open(ask("").replaced(client="other"), patience=None)
    for mailbox in waiting:
        exchange.cancel(mailbox, "gone")
    exchange.open(ask("").replaced(client="greedy"), patience=None)
    assert exchange.waiting == 3


async def test_requests_between_two_engines_wait_behind_the_replays_in_order(line: Line) -> None:
    replayed = line.open("replayed")
    line.exchange.disconnect()
    late, later = line.open("late"), line.open("later")
    assert len(line.keys()) == 1
    line.exchange.connect(line.sent.append)
    sent = [message.request.prompts for message in line.sent if isinstance(message, Generate)]
    assert sent == [("replayed",), ("replayed",), ("late",), ("later",)]
    assert [replayed.key, late.key, later.key] == line.keys()[1:]


async def test_requests_wait_also_after_an_engine_that_was_never_ready(line: Line) -> None:
    for _ in range(2):
        line.exchange.disconnect()
    mailbox = line.open()
    line.exchange.connect(line.sent.append)
    assert [mailbox.key] == line.keys()


async def test_only_so_many_requests_wait_for_an_engine(line: Line) -> None:
    line.open()
    line.exchange.disconnect()
    waiting = [line.open(), line.open()]
    with pytest.raises(Busy) as caught:
        line.open()
    assert caught.value.code == "queue_full"
    line.exchange.cancel(waiting[0], "gone")
    line.open()


async def test_a_request_that_is_cancelled_before_the_engine_is_back_is_never_sent(line: Line) -> None:
    line.exchange.disconnect()
    left, kept = line.open("left"), line.open("kept")
    line.exchange.cancel(left, "gone")
    assert left.ended
    assert left.released == Released("restarting", 0, 0)
    line.exchange.connect(line.sent.append)
    assert [kept.key] == line.keys()
    assert line.cancels() == []


async def test_a_request_that_waited_and_that_no_frame_can_carry_fails_alone(line: Line) -> None:
    line.exchange.disconnect()
    wrong, right = line.open("\ud800"), line.open("well")

    def send(message: ToEngine) -> None:
        encode(message)
        line.sent.append(message)

    line.exchange.connect(send)
    with pytest.raises(RequestError, match="cannot be sent"):
        await wrong.accepted()
    assert [right.key] == line.keys()


async def test_a_request_that_waited_may_be_replayed_once(line: Line) -> None:
    line.exchange.disconnect()
    mailbox = line.open()
    for _ in range(2):
        line.exchange.connect(line.sent.append)
        line.exchange.disconnect()
    with pytest.raises(EngineFault, match="died"):
        await mailbox.accepted()
    assert len(line.keys()) == 2


async def test_a_full_queue_is_an_error_with_the_time_that_the_queue_needs(line: Line) -> None:
    served, refused = line.open(), line.open()
    line.news(served, Started(), now=100)
    line.news(served, END, now=107)
    metrics = EngineMetrics(slots=2, waiting=4)
    line.exchange.refuse(Refused(line.keys()[1], Fault("Busy", "no", "queue_full")), metrics)
    with pytest.raises(Busy) as caught:
        await refused.accepted()
    assert caught.value.retry_after == 14


async def test_a_request_that_no_frame_can_carry_is_a_request_error(line: Line) -> None:
    frames: list[bytes] = []
    line.exchange.connect(lambda message: frames.append(encode(message)))
    with pytest.raises(RequestError, match="cannot be sent"):
        line.open("\ud800")
    assert frames == []
    assert line.exchange.oldest_sent_at is None


async def test_a_request_that_waits_for_its_replay_at_the_end_fails(line: Line) -> None:
    mailbox = line.open()
    line.exchange.disconnect()
    line.exchange.close(lambda: Unavailable("It ended."))
    with pytest.raises(Unavailable):
        await mailbox.take()


async def test_an_answer_to_a_cancelled_query_is_dropped() -> None:
    metrics = EngineMetrics(1, 1, 0, 0, 0, 0, 0, 0.0, 0, 0, 0)
    Queries().resolve(Answered(1, Inspected((), metrics)))
