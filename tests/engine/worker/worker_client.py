"""A worker with the fake runner and the fake embedder, and the gateway's side of it, in this process."""

import queue
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar

from engine.config import EngineConfig
from engine.core.step import StepPlan
from engine.errors import LoadError
from engine.events import Event, Released
from engine.protocol.codec import Decoder, encode
from engine.protocol.messages import (
    Answered,
    AnyQuery,
    Ask,
    Cancel,
    Embed,
    FromEngine,
    Generate,
    Inspect,
    Inspected,
    Loaded,
    Message,
    Step,
)
from engine.request import EmbeddingInput, EmbeddingRequest
from engine.testing.fake_embedder import FakeEmbedder
from engine.testing.fake_model import FakeModel
from engine.testing.fake_runner import FakeRunner
from engine.worker.loaded import LoadedModel
from engine.worker.progress import Progress
from engine.worker.worker import Worker
from tests.engine.driver import request

GUARD = 20.0
"""Seconds after which a test gives up waiting. Never a part of an assertion."""
M = TypeVar("M", bound=Message)


class Gate:
    """Holds every pass of a fake until the test releases it, as a long decode would; an abort ends it."""

    def __init__(self, fake: FakeRunner | FakeEmbedder) -> None:
        self._aborted = fake.aborted
        self._begun, self._open = threading.Semaphore(0), threading.Semaphore(0)
        self.closed = True
        fake.on_pass = self._hold

    def wait(self) -> None:
        """Wait for the next pass."""
        assert self._begun.acquire(timeout=GUARD)

    def let_through(self) -> None:
        self._open.release()

    def open(self) -> None:
        """Stop holding passes."""
        self.closed = False
        self._open.release()

    def _hold(self, *_plan: StepPlan) -> None:
        self._begun.release()
        while self.closed and not self._aborted.is_set() and not self._open.acquire(timeout=0.001):
            pass


class Client:
    """The gateway's side: it assigns keys and query ids, and keeps every message until a test reads it."""

    def __init__(
        self,
        config: EngineConfig | None = None,
        model: FakeModel | None = None,
        embedder: FakeEmbedder | None = None,
        fingerprint: bytes = b"",
    ) -> None:
        self.fingerprint = fingerprint
        self.model = model or FakeModel()
        self.runner = FakeRunner(self.model)
        self.embedder = embedder or FakeEmbedder()
        self.embedders: list[FakeEmbedder] = []
        self.open_errors: list[str] = []
        self.on_open: Callable[[], None] = lambda: None
        self.exits: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.closed = threading.Event()
        self.freed_at_exit: bool | None = None
        self.frames = self.bytes = 0
        self._received: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._waiting: list[Message] = []
        self.worker = Worker(config or EngineConfig(model="fake"), self.load, self._take, self._exit)
        self.worker.start()

    def load(self, _config: EngineConfig, progress: Callable[[float], None], stack: ExitStack) -> LoadedModel:
        progress(0.5)
        stack.callback(self.closed.set)
        runner = self.runner if self.model.info.generates else None
        limits = self.embedder.limits
        return LoadedModel(self.model, runner, limits, self.open_embedder, fingerprint=self.fingerprint)

    def _exit(self, code: int) -> None:
        self.freed_at_exit = self.closed.is_set()
        self.exits.put(code)

    def open_embedder(self, cells: int) -> FakeEmbedder:
        """Open `embedder`, and later others that are like it, but larger."""
        self.on_open()
        if self.open_errors:
            raise LoadError(self.open_errors.pop())
        if self.embedders:
            self.embedder = self.embedder.larger(cells)
        self.embedders.append(self.embedder)
        return self.embedder

    def _take(self, message: FromEngine) -> None:
        frame = encode(message)
        self.frames += 1
        self.bytes += len(frame)
        for decoded in Decoder().feed(frame):
            self._received.put(decoded)

    def loaded(self) -> "Client":
        self.expect(Loaded)
        return self

    def expect(self, kind: type[M], matching: Callable[[M], bool] = lambda _message: True) -> M:
        """Return the first unread message of a kind; others stay."""
        for message in self._waiting:
            if isinstance(message, kind) and matching(message):
                self._waiting.remove(message)
                return message
        while True:
            message = self._received.get(timeout=GUARD)
            if isinstance(message, kind) and matching(message):
                return message
            self._waiting.append(message)

    @property
    def unread(self) -> list[Message]:
        """Messages that came before those that the test has read."""
        return self._waiting

    @property
    def progress(self) -> Progress:
        """Progress of the threads of the loaded worker."""
        assert self.worker._serving is not None
        return self.worker._serving.loop._progress

    def generate(self, key: int, *prompts: str, **fields: Any) -> None:
        self.worker.receive(Generate(key, request(*prompts, **fields)))

    def embed(self, key: int, *inputs: EmbeddingInput) -> None:
        self.worker.receive(Embed(key, EmbeddingRequest(id="test", inputs=inputs)))

    def cancel(self, key: int) -> Released:
        self.worker.receive(Cancel(key))
        released: Released = self.event(key, Released)
        return released

    def event(self, key: int, *kinds: type[Event]) -> Any:
        """Return the next event of a request that is of one of these kinds."""

        def about(step: Step) -> bool:
            return any(k == key and isinstance(event, kinds) for k, event in step.events)

        step = self.expect(Step, about)
        [event] = [event for k, event in step.events if k == key and isinstance(event, kinds)][:1]
        rest = tuple(pair for pair in step.events if pair[1] is not event)
        if rest:
            self._waiting.insert(0, Step(rest, step.metrics))
        return event

    def ask(self, query_id: int, query: AnyQuery) -> None:
        self.worker.receive(Ask(query_id, query))

    def inspect(self) -> Inspected:
        self.ask(99, Inspect())
        answer = self.expect(Answered, lambda answered: answered.query_id == 99).answer
        assert isinstance(answer, Inspected)
        return answer


def slow_tokenizer(
    model: FakeModel, holds: Callable[[str], bool] = lambda _text: True
) -> tuple[threading.Event, threading.Event]:
    """Hold some texts that are tokenised. Return the events of their beginning, and of the test's leave to go on."""
    begun, go_on, tokenize = threading.Event(), threading.Event(), model.tokenize

    def slow(text: str, **options: bool) -> list[int]:
        if holds(text):
            begun.set()
            assert go_on.wait(GUARD)
        return tokenize(text, **options)

    model.tokenize = slow  # type: ignore[method-assign]
    return begun, go_on
