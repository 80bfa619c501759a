"""Requests and queries as they arrive: tokenised, checked, then queued, answered or refused. In its own thread."""

import logging
import queue
import threading
from collections.abc import Callable

from engine.core.embedding.step import EmbeddingLimits
from engine.core.model import Model
from engine.errors import EngineError
from engine.protocol.messages import (
    Accepted,
    Answered,
    Ask,
    Embed,
    FromEngine,
    Generate,
    QueryFailed,
    Refused,
    Submission,
)
from engine.worker.admission import admit, admit_embedding
from engine.worker.loop import StepLoop
from engine.worker.queries import answer_query

logger = logging.getLogger(__name__)


class Pending:
    """What has arrived, is not answered, and was not taken back, by key or query id. For any thread."""

    def __init__(self) -> None:
        self._names: set[int] = set()
        self._lock = threading.Lock()

    def __contains__(self, name: int) -> bool:
        return name in self._names

    def add(self, name: int) -> None:
        """Something has arrived."""
        with self._lock:
            self._names.add(name)

    def remove(self, name: int, then: Callable[[], None] = lambda: None) -> bool:
        """It is answered or taken back; gives False if it was before. `then` is done before anybody can take it back.

        If `then` raises, it stays.
        """
        with self._lock:
            if name not in self._names:
                return False
            then()
            self._names.remove(name)
        return True

    def clear(self) -> None:
        """Everything is taken back."""
        with self._lock:
            self._names.clear()


class Intake:
    """Takes arrivals one after another, because tokenising takes its time and cancels must not wait for it."""

    def __init__(
        self, model: Model, limits: EmbeddingLimits, loop: StepLoop, write: Callable[[FromEngine], None]
    ) -> None:
        """`limits` are those of the embedder."""
        self._model = model
        self._limits = limits
        self._loop = loop
        self._write = write
        self._arrivals: queue.SimpleQueue[Submission | Ask | None] = queue.SimpleQueue()
        self._requests = Pending()
        self._queries = Pending()

    def submit(self, arrival: Submission) -> None:
        """Hand in a request; `Accepted` or `Refused` answers it, unless it is withdrawn first."""
        self._requests.add(arrival.key)
        self._arrivals.put(arrival)

    def ask(self, arrival: Ask) -> None:
        """Hand in a query; `Answered` or `QueryFailed` answers it, unless it is cancelled first."""
        self._queries.add(arrival.query_id)
        self._arrivals.put(arrival)

    def withdraw(self, key: int) -> bool:
        """Take a request back; gives False if it has left the intake or never was in it."""
        return self._requests.remove(key)

    def cancel_query(self, query_id: int) -> None:
        """Cancel a query, if it is not answered yet."""
        self._queries.remove(query_id)

    def stop(self) -> None:
        """End `run` after what it works on; the rest is dropped."""
        self._requests.clear()
        self._queries.clear()
        self._arrivals.put(None)

    def run(self) -> None:
        """Answer arrivals until stopped."""
        while arrival := self._arrivals.get():
            if isinstance(arrival, Ask):
                self._answer(arrival)
            elif arrival.key in self._requests:
                self._take_in(arrival)

    def _take_in(self, arrival: Submission) -> None:
        try:
            if isinstance(arrival, Generate):
                self._admit(arrival)
            else:
                self._admit_embedding(arrival)
        except EngineError as error:
            if self.withdraw(arrival.key):
                logger.debug("request refused", extra={"request_id": arrival.request.id, "why": error.message})
                self._write(Refused(arrival.key, type(error).__name__, error.message, error.code, error.param))

    def _admit(self, arrival: Generate) -> None:
        self._loop.check_room()
        group = admit(arrival.key, arrival.request, self._model)
        accepted = self._accept(arrival, [sequence.prompt for sequence in list(group.waiting)[:: arrival.request.n]])
        self._requests.remove(arrival.key, lambda: self._loop.add(group, accepted))

    def _admit_embedding(self, arrival: Embed) -> None:
        self._loop.check_embedding_room()
        job = admit_embedding(arrival.key, arrival.request, self._model, self._limits)
        accepted = self._accept(arrival, [len(text.tokens) for text in job.waiting])
        self._requests.remove(arrival.key, lambda: self._loop.add_embedding(job, accepted))

    def _accept(self, arrival: Submission, tokens: list[int]) -> Callable[[], None]:
        """What tells that a request was accepted, with the tokens of its prompts."""
        logger.debug("request checked", extra={"request_id": arrival.request.id, "prompt_tokens": tokens})
        return lambda: self._write(Accepted(arrival.key, tuple(tokens)))

    def _answer(self, arrival: Ask) -> None:
        query_id = arrival.query_id
        try:
            answer = answer_query(arrival.query, self._model, wanted=lambda: query_id in self._queries)
        except EngineError as error:
            reply: FromEngine = QueryFailed(query_id, type(error).__name__, error.message, error.code, error.param)
        else:
            reply = Answered(query_id, answer)
        if self._queries.remove(query_id):
            self._write(reply)
