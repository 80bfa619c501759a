"""Requests and queries as they arrive: tokenised, checked, then queued, answered or refused. In its own thread."""

import logging
import queue
import threading
from collections.abc import Callable, Mapping

from engine.core.lane import Job
from engine.core.model import Model
from engine.errors import EngineError, RequestError
from engine.protocol.messages import Accepted, Answered, Ask, FromEngine, QueryFailed, Refused, Submission
from engine.request import Request
from engine.worker.lanes.lane import AnyLane
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
        self,
        model: Model,
        lanes: Mapping[type[Request], AnyLane],
        loop: StepLoop,
        write: Callable[[FromEngine], None],
    ) -> None:
        """Feed the lanes of a loop, each of which serves one kind of request."""
        self._model = model
        self._lanes = lanes
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
            self._admit(arrival, self._lane_for(arrival.request))
        except EngineError as error:
            if self.withdraw(arrival.key):
                logger.debug("request refused", extra={"request_id": arrival.request.id, "why": error.message})
                self._write(Refused(arrival.key, type(error).__name__, error.message, error.code, error.param))

    def _lane_for(self, request: Request) -> AnyLane:
        """Return the lane of a request. Every model embeds; generation is the one kind that may have no lane."""
        lane = self._lanes.get(type(request))
        if lane is None:
            raise RequestError("this model only computes embeddings", param="model", code="unsupported_model")
        return lane

    def _admit(self, arrival: Submission, lane: AnyLane) -> None:
        self._loop.check_room(lane)
        self._queue(arrival, lane, lane.admit(arrival.key, arrival.request))

    def _queue(self, arrival: Submission, lane: AnyLane, job: Job) -> None:
        fields = {"request_id": arrival.request.id, "prompt_tokens": job.prompt_tokens}
        logger.debug("request checked", extra=fields)
        accepted = Accepted(arrival.key, job.prompt_tokens)
        self._requests.remove(arrival.key, lambda: self._loop.add(lane, job, lambda: self._write(accepted)))

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
