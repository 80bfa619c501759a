"""News of steps, which are written without the writer's thread."""

import contextlib
import os
import select
import threading

import pytest

from engine.events import Failed, Started
from engine.info import EngineMetrics
from engine.protocol import codec
from engine.protocol.messages import Answered, FromEngine, Inspected, Loading, Message, QueueOrder, Step
from engine.worker.pipes import MessageReader, MessageWriter
from tests.engine.worker.worker_client import GUARD

METRICS = EngineMetrics(slots=2, free=1, held=1)


def written(writer: MessageWriter, reader: MessageReader, count: int) -> list[Message]:
    """Return so many messages that wait for the writer's thread, and close the writer."""
    writing = threading.Thread(target=writer.run)
    writing.start()
    received: list[Message] = []
    while len(received) < count:
        received += reader.read()
    writer.close(GUARD)
    writing.join(GUARD)
    return received


def test_the_news_of_a_step_are_written_at_once() -> None:
    read, write = os.pipe()
    reader, writer = MessageReader(read), MessageWriter(write)
    news = Step(((1, Started()),), METRICS)
    writer.write(news)
    assert reader.read() == [news], "without a thread that runs the writer"
    os.close(read)
    writer.write(news)
    os.close(write)


@pytest.mark.parametrize(
    "earlier", [Loading(0.5), Step(((1, Failed("x" * select.PIPE_BUF, "c")),), METRICS)], ids=["no step", "long"]
)
def test_the_news_of_a_step_come_behind_earlier_messages(earlier: FromEngine) -> None:
    read, write = os.pipe()
    reader, writer = MessageReader(read), MessageWriter(write)
    messages: list[FromEngine] = [earlier, Step(((1, Started()),), METRICS)]
    for message in messages:
        writer.write(message)
    assert not select.select([read], [], [], 0)[0], "they wait for the thread"
    assert written(writer, reader, len(messages)) == messages
    os.close(read)
    os.close(write)


def test_the_news_of_a_step_do_not_come_into_a_message_that_is_being_written(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    reader, writer = MessageReader(read), MessageWriter(write)
    begun, go_on = threading.Event(), threading.Event()
    write_frame = writer._write

    def wait(frame: memoryview) -> None:
        begun.set()
        assert go_on.wait(GUARD)
        write_frame(frame)

    monkeypatch.setattr(writer, "_write", wait)
    messages: list[FromEngine] = [Loading(0.5), Step(((1, Started()),), METRICS)]
    writing = threading.Thread(target=writer.run)
    writing.start()
    writer.write(messages[0])
    assert begun.wait(GUARD)
    writer.write(messages[1])
    go_on.set()
    received: list[Message] = []
    while len(received) < len(messages):
        received += reader.read()
    writer.close(GUARD)
    writing.join(GUARD)
    assert received == messages
    os.close(read)
    os.close(write)


def test_the_state_of_the_slots_does_not_wait_for_other_answers() -> None:
    read, write = os.pipe()
    reader, writer = MessageReader(read), MessageWriter(write)
    answers: list[FromEngine] = [Answered(1, QueueOrder((1,))), Answered(2, Inspected((), METRICS))]
    for answer in answers:
        writer.write(answer)
    assert written(writer, reader, len(answers)) == answers[::-1]
    os.close(read)
    os.close(write)


def test_the_news_of_a_step_wait_for_no_reader() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(write, bytes(select.PIPE_BUF)):
            pass
    os.set_blocking(write, True)
    MessageWriter(write).write(Step((), METRICS))
    os.close(read)
    os.close(write)


@pytest.mark.parametrize(("size", "frames"), [(100, 3), (200, 5)])
def test_the_events_of_a_step_may_be_too_long_for_one_frame(
    monkeypatch: pytest.MonkeyPatch, size: int, frames: int
) -> None:
    monkeypatch.setattr(codec, "MAX_FRAME", 300)
    read, write = os.pipe()
    reader, writer = MessageReader(read), MessageWriter(write)
    events = [(key, Failed("x" * size, "c")) for key in range(5)]
    writer.write(Step(tuple(events), METRICS))
    received = written(writer, reader, frames)
    assert [event for step in received if isinstance(step, Step) for event in step.events] == events
    os.close(read)
    os.close(write)


def test_only_parts_of_texts_wait_for_the_reader() -> None:
    read, write = os.pipe()
    reader, writer = MessageReader(read), MessageWriter(write)
    answers: list[FromEngine] = [Answered(query, QueueOrder((query,))) for query in range(100)]
    for answer in answers:
        writer.write(answer)  # returns, although no thread writes
    assert written(writer, reader, len(answers)) == answers
    os.close(read)
    os.close(write)
