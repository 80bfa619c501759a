"""Requests and questions as they arrive: tokenised, checked, then queued, answered or refused. In its own thread."""

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from typing import TypeAlias

from engine.core.lane import Job
from engine.core.model import Model
from engine.errors import EngineError, RequestError
from engine.protocol import wire
from engine.request import Request
from engine.worker.lanes.lane import AnyLane
from engine.worker.loop import StepLoop
from engine.worker.tokens import detokenize, tokenize

logger = logging.getLogger(__name__)

VocabularyQuestion: TypeAlias = wire.Tokenize | wire.Detokenize


class Pending:
    """What has arrived, is not answered, and was not taken back, by key or ticket. For any thread."""

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
        self,
        model: Model,
        lanes: Mapping[type[Request], AnyLane],
        loop: StepLoop,
        write: Callable[[wire.FromEngine], None],
    ) -> None:
        """Feed the lanes of a loop, each of which serves one kind of request."""
        self._model = model
        self._lanes = lanes
        self._loop = loop
        self._write = write
        self._arrivals: queue.SimpleQueue[wire.Submission | VocabularyQuestion | None] = queue.SimpleQueue()
        self._requests = Pending()
        self._questions = Pending()

    def submit(self, arrival: wire.Submission) -> None:
        """Hand in a request; `Accepted` or `Refused` answers it, unless it is withdrawn first."""
        self._requests.add(arrival.key)
        self._arrivals.put(arrival)

    def ask(self, question: VocabularyQuestion) -> None:
        """Hand in a question; it is answered, unless it is dropped first."""
        self._questions.add(question.ticket)
        self._arrivals.put(question)

    def withdraw(self, key: int) -> bool:
        """Take a request back; gives False if it has left the intake or never was in it."""
        return self._requests.remove(key)

    def drop(self, ticket: int) -> None:
        """Take a question back, if it is not answered yet."""
        self._questions.remove(ticket)

    def stop(self) -> None:
        """End `run` after what it works on; the rest is dropped."""
        self._requests.clear()
        self._questions.clear()
        self._arrivals.put(None)

    def run(self) -> None:
        """Answer arrivals until stopped."""
        while arrival := self._arrivals.get():
            if isinstance(arrival, VocabularyQuestion):
                self._answer(arrival)
            elif arrival.key in self._requests:
                self._take_in(arrival)

    def _take_in(self, arrival: wire.Submission) -> None:
        try:
            self._admit(arrival, self._lane_for(arrival.request))
        except EngineError as error:
            if self.withdraw(arrival.key):
                logger.debug("request refused", extra={"request_id": arrival.request.id, "why": error.message})
                self._write(wire.Refused(arrival.key, type(error).__name__, error.message, error.code, error.param))

    def _lane_for(self, request: Request) -> AnyLane:
        """Every model embeds; the one kind that may have no lane is generation."""
        lane = self._lanes.get(type(request))
        if lane is None:
            raise RequestError("this model only computes embeddings", param="model", code="unsupported_model")
        return lane

    def _admit(self, arrival: wire.Submission, lane: AnyLane) -> None:
        self._loop.check_room(lane)
        self._queue(arrival, lane, lane.admit(arrival.key, arrival.request))

    def _queue(self, arrival: wire.Submission, lane: AnyLane, job: Job) -> None:
        fields = {"request_id": arrival.request.id, "prompt_tokens": job.prompt_tokens}
        logger.debug("request checked", extra=fields)
        accepted = wire.Accepted(arrival.key, job.prompt_tokens)
        self._requests.remove(arrival.key, lambda: self._loop.add(lane, job, lambda: self._write(accepted)))

    def _answer(self, question: VocabularyQuestion) -> None:
        ticket = question.ticket
        answer: wire.FromEngine | None
        try:
            if isinstance(question, wire.Tokenize):
                answer = tokenize(question, self._model, wanted=lambda: ticket in self._questions)
            else:
                answer = detokenize(question, self._model)
        except EngineError as error:
            answer = wire.Declined(ticket, type(error).__name__, error.message, error.code, error.param)
        if answer is not None and self._questions.remove(ticket):
            self._write(answer)
