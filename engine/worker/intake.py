"""Intake of the engine process: validates and tokenises requests, then queues or refuses them; answers queries."""

import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from engine.core.lane import Job
from engine.core.model import Model
from engine.errors import Busy, EngineError, EngineFault, RequestError
from engine.protocol.fault import Fault
from engine.protocol.messages import (
    Accepted,
    Answered,
    AnyAnswer,
    Ask,
    FromEngine,
    QueryFailed,
    Refused,
    Submission,
    Working,
)
from engine.request import Request
from engine.worker.backlog import Arrival, Backlog, Kind
from engine.worker.lanes.lane import AnyLane
from engine.worker.loop import StepLoop
from engine.worker.progress import Progress
from engine.worker.queries import answer_query
from engine.worker.slices import Effort, Slices

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Intake:
    """Works on requests and queries in pieces, with a thread for each kind of effort: cancels never wait for a piece.

    Clients take turns, piece by piece, so that no client waits for more than a piece of each other client.
    """

    def __init__(
        self,
        model: Model,
        lanes: Mapping[type[Request], AnyLane],
        loop: StepLoop,
        write: Callable[[FromEngine], None],
        *,
        most: int,
        progress: Progress,
    ) -> None:
        """Queue requests in the lanes of a loop; each lane serves one kind of request.

        Args:
            model: Model of all lanes.
            lanes: Lane of each kind of request.
            loop: Loop that runs the lanes.
            write: Sends a message to the gateway. Thread-safe.
            most: Maximum number of requests, and of queries, that a client may have here.
            progress: Times the pieces.
        """
        self._model = model
        self._lanes = lanes
        self._loop = loop
        self._write = write
        self._progress = progress
        self._backlog = Backlog(most)

    def submit(self, arrival: Submission) -> None:
        """Add a request. Unless it is cancelled first, `Accepted` or `Refused` replies."""
        try:
            client = arrival.request.client
            self._backlog.add(Arrival((Kind.REQUEST, arrival.key), client, self._admit(arrival)))
        except Busy as error:
            self._write(Refused(arrival.key, Fault.of(error)))

    def ask(self, arrival: Ask) -> None:
        """Add a query. Unless it is cancelled first, `Answered` or `QueryFailed` replies."""
        try:
            self._backlog.add(Arrival((Kind.QUERY, arrival.query_id), arrival.client, self._answer(arrival)))
        except Busy as error:
            self._write(QueryFailed(arrival.query_id, Fault.of(error)))

    def cancel_request(self, key: int) -> bool:
        """Cancel a request in the intake. Returns False if it is not, or no longer, in the intake."""
        return self._backlog.remove((Kind.REQUEST, key))

    def cancel_query(self, query_id: int) -> None:
        """Cancel a query, unless it is already answered."""
        self._backlog.remove((Kind.QUERY, query_id))

    def stop(self) -> None:
        """End `run` in every thread after its current piece, and drop all requests and queries."""
        self._backlog.close()

    def run(self, effort: Effort) -> None:
        """Work on the pieces of one kind of effort until `stop`. For one thread of each kind."""
        while arrival := self._backlog.take(effort):
            with self._progress:
                following = next(arrival.slices, None)
            if following is not None:
                self._backlog.put_back(arrival, following)
            if self._backlog and self._progress.should_report():
                self._write(Working())

    def _admit(self, arrival: Submission) -> Slices[None]:
        try:
            lane = self._lane_for(arrival.request)
            self._loop.check_room(lane, arrival.request.client)
            job = yield from _guarded(lane.admit(arrival.key, arrival.request))
            self._queue(arrival, lane, job)
        except EngineError as error:
            if self.cancel_request(arrival.key):
                # Not the message, which may quote the request.
                logger.debug("request refused", extra={"request_id": arrival.request.id, "code": error.code})
                self._write(Refused(arrival.key, Fault.of(error)))

    def _lane_for(self, request: Request) -> AnyLane:
        """Return the lane of a request.

        Raises:
            RequestError: The model has no lane for generation. It always has one for embeddings.
        """
        lane = self._lanes.get(type(request))
        if lane is None:
            raise RequestError("this model does not generate text", param="model", code="unsupported_model")
        return lane

    def _queue(self, arrival: Submission, lane: AnyLane, job: Job) -> None:
        fields = {"request_id": arrival.request.id, "prompt_tokens": job.prompt_tokens}
        logger.debug("request checked", extra=fields)
        accepted = Accepted(arrival.key, job.prompt_tokens)
        self._backlog.remove(
            (Kind.REQUEST, arrival.key), lambda: self._loop.add(lane, job, lambda: self._write(accepted))
        )

    def _answer(self, arrival: Ask) -> Slices[None]:
        def send(part: AnyAnswer) -> None:
            self._write(Answered(arrival.query_id, part, more=True))

        try:
            answer = yield from _guarded(answer_query(arrival.query, self._model, send))
        except EngineError as error:
            reply: FromEngine = QueryFailed(arrival.query_id, Fault.of(error))
        else:
            reply = Answered(arrival.query_id, answer)
        if self._backlog.remove((Kind.QUERY, arrival.query_id)):
            self._write(reply)


def _guarded(slices: Slices[T]) -> Slices[T]:
    """Work on slices. An unexpected error of theirs ends only their request or query.

    Raises:
        EngineFault: The work raised something else than an `EngineError`.
    """
    try:
        return (yield from slices)
    except EngineError:
        raise
    except Exception as error:
        logger.exception("work on a request or query failed")
        raise EngineFault("The engine failed to read this request.", code="engine_failed") from error
