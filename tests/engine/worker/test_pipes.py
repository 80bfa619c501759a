"""Messages of the engine over real pipes: their order, and the news of steps, which need no thread."""

import contextlib
import os
import queue
import select
import threading
from collections.abc import Iterator

import pytest

from engine.events import Failed, Started
from engine.info import EngineMetrics
from engine.protocol import codec
from engine.protocol.messages import (
    Answered,
    Detokenized,
    FromEngine,
    Inspected,
    LoadFailed,
    Loading,
    Message,
    QueueOrder,
    Step,
)
from engine.worker.pipes import MessageReader, MessageWriter
from tests.engine.worker.worker_client import GUARD

METRICS = EngineMetrics(slots=2, free=1, held=1)


class Pipe:
    """A pipe with a reader and a writer of messages. The writer's thread runs once a test starts it."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.reader, self.writer = MessageReader(self.reading), MessageWriter(self.writing)
        self.thread = threading.Thread(target=self._run)
        self.broken: list[OSError] = []
        self._open = {self.reading, self.writing}

    def _run(self) -> None:
        try:
            self.writer.run()
        except BrokenPipeError as error:
            self.broken.append(error)

    def read(self, count: int) -> list[Message]:
        """Read until so many messages have come."""
        received: list[Message] = []
        while len(received) < count:
            received += self.reader.read()
        return received

    def written(self, count: int) -> list[Message]:
        """Let the thread write the messages that wait, read so many, and close the writer."""
        self.thread.start()
        received = self.read(count)
        self.end()
        return received

    def end(self, timeout: float = GUARD) -> None:
        """Close the writer."""
        self.writer.close(timeout)
        self.thread.join(GUARD)

    def close(self, *fds: int) -> None:
        """Close these ends of the pipe, or those that are open."""
        for fd in fds or self._open.copy():
            self._open.remove(fd)
            os.close(fd)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def test_the_news_of_a_step_are_written_at_once(pipe: Pipe) -> None:
    news = Step(((1, Started()),), METRICS)
    pipe.writer.write(news)
    assert pipe.reader.read() == [news], "without a thread that runs the writer"
    pipe.close(pipe.reading)
    pipe.writer.write(news)


@pytest.mark.parametrize(
    "earlier", [Loading(0.5), Step(((1, Failed("x" * select.PIPE_BUF, "c")),), METRICS)], ids=["no step", "long"]
)
def test_the_news_of_a_step_come_behind_earlier_messages(pipe: Pipe, earlier: FromEngine) -> None:
    messages: list[FromEngine] = [earlier, Step(((1, Started()),), METRICS)]
    for message in messages:
        pipe.writer.write(message)
    assert not select.select([pipe.reading], [], [], 0)[0], "they wait for the thread"
    assert pipe.written(len(messages)) == messages


def test_the_news_of_a_step_do_not_come_into_a_message_that_is_being_written(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    write_frame = pipe.writer._write

    def wait(frame: memoryview) -> None:
        begun.set()
        assert go_on.wait(GUARD)
        write_frame(frame)

    monkeypatch.setattr(pipe.writer, "_write", wait)
    messages: list[FromEngine] = [Loading(0.5), Step(((1, Started()),), METRICS)]
    pipe.thread.start()
    pipe.writer.write(messages[0])
    assert begun.wait(GUARD)
    pipe.writer.write(messages[1])
    go_on.set()
    assert pipe.read(len(messages)) == messages
    pipe.end()


def test_the_state_of_the_slots_does_not_wait_for_other_answers(pipe: Pipe) -> None:
    answers: list[FromEngine] = [Answered(1, QueueOrder((1,))), Answered(2, Inspected((), METRICS))]
    for answer in answers:
        pipe.writer.write(answer)
    assert pipe.written(len(answers)) == answers[::-1]


def test_the_news_of_a_step_wait_for_no_reader(pipe: Pipe) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.write(pipe.writing, bytes(select.PIPE_BUF)):
            pass
    pipe.writer.write(Step((), METRICS))


@pytest.mark.parametrize(("size", "frames"), [(100, 3), (200, 5)])
def test_the_events_of_a_step_may_be_too_long_for_one_frame(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch, size: int, frames: int
) -> None:
    monkeypatch.setattr(codec, "MAX_FRAME", 300)
    events = [(key, Failed("x" * size, "c")) for key in range(5)]
    pipe.writer.write(Step(tuple(events), METRICS))
    received = pipe.written(frames)
    assert [event for step in received if isinstance(step, Step) for event in step.events] == events


def test_only_parts_of_texts_wait_for_the_reader(pipe: Pipe) -> None:
    answers: list[FromEngine] = [Answered(query, QueueOrder((query,))) for query in range(100)]
    for answer in answers:
        pipe.writer.write(answer)  # returns, although no thread writes
    assert pipe.written(len(answers)) == answers


def test_messages_cross_the_pipe_in_pieces(pipe: Pipe) -> None:
    messages: list[FromEngine] = [LoadFailed("x" * 300_000), Loading(1.0)]
    for message in messages:
        pipe.writer.write(message)
    assert pipe.written(len(messages)) == messages
    pipe.close(pipe.writing)
    assert pipe.reader.read() == [], "closed"


def test_events_are_written_before_answers_and_answers_wait_for_room(pipe: Pipe) -> None:
    parts = [Answered(1, Detokenized(b"%d" % n), more=True) for n in range(20)]
    queued: queue.SimpleQueue[FromEngine] = queue.SimpleQueue()

    def answer() -> None:
        for part in parts:
            pipe.writer.write(part)
            queued.put(part)

    sender = threading.Thread(target=answer)
    sender.start()
    assert [queued.get(timeout=GUARD) for _ in range(4)] == parts[:4]
    with pytest.raises(queue.Empty):
        queued.get(timeout=0.1)  # the next one would come at once if it did not wait
    pipe.writer.write(Loading(0.5))
    assert pipe.written(1 + len(parts)) == [Loading(0.5), *parts]
    sender.join(GUARD)


def test_a_closed_writer_lets_its_senders_go(pipe: Pipe) -> None:
    def answer() -> None:
        for _ in range(9):
            pipe.writer.write(Answered(1, Detokenized(b"")))

    sender = threading.Thread(target=answer)
    sender.start()
    pipe.writer.close(0)
    sender.join(GUARD)
    assert not sender.is_alive()


def test_a_writer_does_not_block_its_senders_and_detects_a_closed_pipe(pipe: Pipe) -> None:
    pipe.thread.start()
    for _ in range(100):
        pipe.writer.write(LoadFailed("x" * 10_000))
    pipe.close(pipe.reading)
    pipe.end(0)
    assert [type(error) for error in pipe.broken] == [BrokenPipeError]
