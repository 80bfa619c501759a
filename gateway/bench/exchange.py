"""One request and its answer, built from bytes and times, without I/O or a clock."""

from http import HTTPStatus

from gateway.bench.answers import Answer, StreamedAnswer, WholeAnswer
from gateway.bench.http1 import NotHTTP, Response
from gateway.bench.outcome import Failure, Outcome

EVENT_STREAM = "text/event-stream"


class Exchange:
    """State of one request until its answer ends or fails.

    Feed it the received bytes until `over`; then `outcome` returns the result. Never raises.
    """

    def __init__(self, *, streamed: bool) -> None:
        """Start before the first byte of the answer.

        Args:
            streamed: True if the request asked for a stream.
        """
        self.over = False
        """True once the answer has ended or failed."""
        self.answer: Answer | None = None
        """The body; unset until the head of the response has arrived."""
        self._streamed = streamed
        self._response = Response()
        self._failure: Failure | None = None
        self._ended = 0.0

    @property
    def reusable(self) -> bool:
        """True if the connection can carry another request."""
        return self._response.reusable and self._failure is None

    @property
    def problem(self) -> Failure | None:
        """Error that the server reported, else the failure of the connection or the timeout."""
        reported = self.answer.server_error if self.answer is not None else None
        return reported or self._failure

    def feed(self, data: bytes, now: float) -> None:
        """Parse the next bytes.

        Args:
            data: the bytes of one read.
            now: time of the read, in seconds.
        """
        try:
            body = self._response.feed(data)
        except NotHTTP as error:
            self.fail(Failure("not HTTP", str(error)), now)
            return
        if self.answer is None and self._response.status:
            self.answer = self._choose_answer()
        if body and self.answer is not None:
            self.answer.read(body, now)
        if self._response.complete:
            self._end(now)

    def close(self, now: float) -> None:
        """End the exchange because the server closed the connection."""
        try:
            self._response.close()
        except NotHTTP as error:
            self.fail(Failure("cut", str(error)), now)
        else:
            self._end(now)

    def fail(self, failure: Failure, now: float) -> None:
        """End the exchange with a failure of the connection or a timeout, unless it is over."""
        if not self.over:
            self._failure = failure
            self._end(now)

    def outcome(self, begun: float) -> Outcome:
        """Return the outcome. The exchange must be over.

        Args:
            begun: time at which the request was sent, in seconds.
        """
        if self.answer is None:
            return Outcome(begun, self._ended, failure=self._failure)
        failure = self.problem or self.answer.find_defect()
        return Outcome(begun, self._ended, tuple(self.answer.arrivals), self.answer.usage, failure)

    def _choose_answer(self) -> Answer:
        streams = self._response.headers.get("content-type", "").startswith(EVENT_STREAM)
        if self._streamed and streams and self._response.status == HTTPStatus.OK:
            return StreamedAnswer()
        return WholeAnswer(self._response.status, expected=not self._streamed)

    def _end(self, now: float) -> None:
        self.over = True
        self._ended = now
