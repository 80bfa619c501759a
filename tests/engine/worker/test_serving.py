"""The engine process from its first message to the end of its pipe, and the ends of its threads."""

import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from engine import logs
from engine.config import EngineConfig
from engine.errors import LoadError
from engine.events import Finished
from engine.protocol.codec import encode
from engine.protocol.messages import Configure, EndReasoning, Loaded, LoadFailed, Message, SetLogLevel, ToEngine
from engine.request import Reasoning
from engine.testing.fake_embedder import FakeEmbedder
from engine.testing.fake_model import FakeModel
from engine.testing.fake_runner import FakeRunner
from engine.worker.loaded import LoadedModel
from engine.worker.pipes import MessageReader, MessageWriter
from engine.worker.worker import EXIT_FAULT, EXIT_LOAD_FAILED, EXIT_OK, serve
from tests.engine.worker.worker_client import GUARD, Client, Gate

pytestmark = pytest.mark.usefixtures("root_level")

CONFIGURE = Configure(EngineConfig(model="fake"))


@pytest.fixture(autouse=True)
def _own_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "configure", lambda _level, _format, _fields: None)


class Engine:
    """A served engine: both pipes, and whether its model was loaded and freed."""

    def __init__(self) -> None:
        from_gateway, self._to_engine = os.pipe()
        self._from_engine, to_gateway = os.pipe()
        self._fds = [from_gateway, self._from_engine, to_gateway]
        self._reader = MessageReader(from_gateway)
        self._writer = MessageWriter(to_gateway)
        self._replies = MessageReader(self._from_engine)
        self.loaded, self.freed = threading.Event(), threading.Event()

    def load(self, _config: EngineConfig, _progress: Callable[[float], None], stack: ExitStack) -> LoadedModel:
        self.loaded.set()
        stack.callback(self.freed.set)
        model, embedder = FakeModel(), FakeEmbedder()
        return LoadedModel(model, FakeRunner(model), embedder.limits, lambda _cells: embedder)

    def send(self, *messages: ToEngine) -> None:
        """Send messages in one piece."""
        os.write(self._to_engine, b"".join(map(encode, messages)))

    def hang_up(self) -> None:
        os.close(self._to_engine)

    def expect(self, kind: type[Message]) -> None:
        while not any(isinstance(message, kind) for message in self._replies.read()):
            pass

    def serve(self) -> None:
        serve(self._reader, self._writer, self.load)

    def run(self, *messages: ToEngine) -> None:
        """Serve until the model is loaded, and hang up."""
        serving = threading.Thread(target=self.serve)
        serving.start()
        self.send(*messages)
        self.expect(Loaded)
        self.hang_up()
        serving.join(GUARD)

    def close(self) -> None:
        self._writer.close(GUARD if self.loaded.is_set() else 0)  # before, it has no thread
        for fd in self._fds:
            os.close(fd)


@pytest.fixture
def engine() -> Iterator[Engine]:
    served = Engine()
    yield served
    served.close()


def test_an_engine_that_is_not_wanted_any_more_loads_no_model(engine: Engine) -> None:
    engine.hang_up()
    engine.serve()
    assert not engine.loaded.is_set()


def test_messages_that_come_with_the_first_one_are_received(engine: Engine) -> None:
    engine.run(CONFIGURE, SetLogLevel("critical"))
    assert logging.getLogger().level == logging.CRITICAL


def test_the_end_of_the_pipe_frees_the_model(engine: Engine) -> None:
    engine.run(CONFIGURE)
    assert engine.freed.is_set()


def test_the_first_message_must_be_the_configuration(engine: Engine) -> None:
    engine.send(SetLogLevel("debug"), CONFIGURE)
    engine.hang_up()
    with pytest.raises(RuntimeError, match="must be Configure"):
        engine.serve()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BrokenPipeError(), EXIT_OK),
        (LoadError("no such file"), EXIT_LOAD_FAILED),
        (RuntimeError("a defect"), EXIT_FAULT),
        (SystemExit(0), EXIT_FAULT),
    ],
    ids=repr,
)
def test_an_error_ends_the_process_with_its_code(client: Client, error: BaseException, code: int) -> None:
    def work() -> None:
        raise error

    client.worker.guard(work)
    assert client.exits.get(timeout=GUARD) == code
    with pytest.raises(queue.Empty):
        client.exits.get_nowait()
    if isinstance(error, LoadError):
        assert client.expect(LoadFailed).message == "no such file"


def test_the_gateway_may_end_reasoning(client: Client, gate: Gate) -> None:
    reasoning = Reasoning(budget=None, opening="<think>", closing="</think>", opened=True, controlled=True)
    client.generate(1, "hello", max_tokens=20, reasoning=reasoning)
    gate.wait()
    client.worker.receive(EndReasoning(1))
    gate.open()
    assert "</think>" in client.event(1, Finished).text
