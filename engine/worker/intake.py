"""Intake thread: tokenises and validates requests, then queues or refuses them; answers queries."""

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
    """Request keys or query ids without a reply that were not cancelled. Thread-safe."""

    def __init__(self) -> None:
        self._keys: set[int] = set()
        self._lock = threading.Lock()

    def __contains__(self, key: int) -> bool:
        return key in self._keys

    def add(self, key: int) -> None:
        """Add a request or query that has arrived."""
        with self._lock:
            self._keys.add(key)

    def remove(self, key: int, then: Callable[[], None] = lambda: None) -> bool:
        """Remove a request or query that is answered or cancelled. Returns False if it was removed before.

        Args:
            key: Request key or query id.
            then: Called under the lock before the removal, so that a cancel comes either before or after both. If it
                raises, the key is not removed.
        """
        with self._lock:
            if key not in self._keys:
                return False
            then()
            self._keys.remove(key)
        return True

    def clear(self) -> None:
        """Cancel everything."""
        with self._lock:
            self._keys.clear()


class Intake:
    """Processes requests and queries one by one, in its own thread: cancels must not wait for tokenising."""

    def __init__(
        self,
        model: Model,
        lanes: Mapping[type[Request], AnyLane],
        loop: StepLoop,
        write: Callable[[FromEngine], None],
    ) -> None:
        """Queue requests in the lanes of a loop; each lane serves one kind of request."""
        self._model = model
        self._lanes = lanes
        self._loop = loop
        self._write = write
        self._arrivals: queue.SimpleQueue[Submission | Ask | None] = queue.SimpleQueue()
        self._requests = Pending()
        self._queries = Pending()

    def submit(self, arrival: Submission) -> None:
        """Queue a request for the intake. Unless it is cancelled first, `Accepted` or `Refused` replies."""
        self._requests.add(arrival.key)
        self._arrivals.put(arrival)

    def ask(self, arrival: Ask) -> None:
        """Queue a query for the intake. Unless it is cancelled first, `Answered` or `QueryFailed` replies."""
        self._queries.add(arrival.query_id)
        self._arrivals.put(arrival)

    def cancel_request(self, key: int) -> bool:
        """Cancel a request in the intake. Returns False if it is not, or no longer, in the intake."""
        return self._requests.remove(key)

    def cancel_query(self, query_id: int) -> None:
        """Cancel a query, unless it is already answered."""
        self._queries.remove(query_id)

    def stop(self) -> None:
        """End `run` after the current request or query, and drop the others."""
        self._requests.clear()
        self._queries.clear()
        self._arrivals.put(None)

    def run(self) -> None:
        """Process requests and queries until `stop`."""
        while arrival := self._arrivals.get():
            if isinstance(arrival, Ask):
                self._answer(arrival)
            elif arrival.key in self._requests:
                self._process(arrival)

    def _process(self, arrival: Submission) -> None:
        try:
            self._admit(arrival, self._lane_for(arrival.request))
        except EngineError as error:
            if self.cancel_request(arrival.key):
                logger.debug("request refused", extra={"request_id": arrival.request.id, "why": error.message})
                self._write(Refused(arrival.key, type(error).__name__, error.message, error.code, error.param))

    def _lane_for(self, request: Request) -> AnyLane:
        """Return the lane of a request.

        Raises:
            RequestError: The model has no lane for generation. It always has one for embeddings.
        """
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
