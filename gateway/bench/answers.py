"""Bodies of responses of OpenAI-compatible servers, whole or streamed: text, usage, errors."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Protocol

import orjson

from gateway.bench.events import EventReader
from gateway.bench.outcome import Failure, Usage

DONE = b"[DONE]"
"""Data of the last event of a stream."""
MESSAGE_LIMIT = 300
"""Characters of an error message in a report."""
_TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "tool_calls")


class Answer(Protocol):
    """Body of a response, parsed as it arrives."""

    @property
    def arrivals(self) -> Sequence[tuple[float, int]]:
        """Reads that contained streamed text: time of the read in seconds, and number of its chunks with text."""

    @property
    def usage(self) -> Usage | None:
        """Token counts of the server; unset if it sent no usage."""

    @property
    def server_error(self) -> Failure | None:
        """Error that the server reported."""

    def read(self, data: bytes, now: float) -> None:
        """Parse the next bytes. Never raises.

        Args:
            data: the bytes of one read.
            now: time of the read, in seconds.
        """

    def find_defect(self) -> Failure | None:
        """Return any other defect of the complete body."""


class StreamedAnswer:
    """A stream of chunks that ends in `[DONE]`."""

    def __init__(self) -> None:
        self.arrivals: list[tuple[float, int]] = []
        self.usage: Usage | None = None
        self.server_error: Failure | None = None
        self._events = EventReader()
        self._unreadable: Failure | None = None
        self._done = False

    def read(self, data: bytes, now: float) -> None:
        """Count the chunks with text in the bytes of one read."""
        if texts := sum([self._read_event(event) for event in self._events.feed(data)]):
            self.arrivals.append((now, texts))

    def find_defect(self) -> Failure | None:
        """Return a failure for an unreadable chunk, an end without `[DONE]`, or a stream without text."""
        if self._unreadable:
            return self._unreadable
        if not self._done:
            return Failure("cut", "the stream ended without [DONE]")
        return None if self.arrivals else Failure("empty", "the stream brought no text")

    def _read_event(self, event: bytes) -> bool:
        """Record one event, and return True if it is a chunk with text."""
        if event == DONE:
            self._done = True
            return False
        chunk = _json_object(event)
        if chunk is None:
            self._unreadable = self._unreadable or Failure("unreadable", error_message(event))
            return False
        if chunk.get("error"):
            self.server_error = self.server_error or Failure("error event", error_message(event))
        self.usage = _usage(chunk) or self.usage
        return _has_text(chunk)


class WholeAnswer:
    """One JSON object, or another body that the server sent instead of a stream or an answer."""

    def __init__(self, status: int, *, expected: bool) -> None:
        """Start with an empty body.

        Args:
            status: HTTP status of the response.
            expected: True if the request asked for an answer without streaming.
        """
        self.arrivals = ()
        """Always empty: a whole answer has no times of its own."""
        self._status = status
        self._expected = expected
        self._pieces: list[bytes] = []

    @property
    def body(self) -> bytes:
        """The bytes received so far."""
        return b"".join(self._pieces)

    @property
    def usage(self) -> Usage | None:
        """Token counts of the server; unset if it sent no usage."""
        return _usage(_json_object(self.body) or {})

    @property
    def server_error(self) -> Failure | None:
        """Failure for every status other than 200."""
        return None if self._status == HTTPStatus.OK else Failure(f"status {self._status}", error_message(self.body))

    def read(self, data: bytes, now: float) -> None:  # noqa: ARG002 - only the end of the exchange has a time
        """Append the bytes to the body."""
        self._pieces.append(data)

    def find_defect(self) -> Failure | None:
        """Return a failure for a missing stream, a body that is not JSON, or an answer without text."""
        if not self._expected:
            return Failure("no stream", error_message(self.body))
        answer = _json_object(self.body)
        if answer is None:
            return Failure("unreadable", error_message(self.body))
        return None if _has_text(answer) else Failure("empty", "the answer has no text")


def error_message(body: bytes) -> str:
    """Return the message of an error body in one line; the beginning of the body if it has no message."""
    match _json_object(body):
        case {"error": {"message": str(message)}} | {"error": str(message)} | {"message": str(message)}:
            text = message
        case {"detail": str(message)}:
            text = message
        case _:
            text = body[: 4 * MESSAGE_LIMIT].decode(errors="replace")
    line = " ".join(text.split())
    return line if len(line) <= MESSAGE_LIMIT else line[:MESSAGE_LIMIT] + "…"


def _json_object(data: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _usage(chunk: dict[str, Any]) -> Usage | None:
    match chunk.get("usage"):
        case {"prompt_tokens": int(prompt), "completion_tokens": int(completion)} if completion > 0:
            return Usage(prompt, completion)
    return None


def _has_text(chunk: dict[str, Any]) -> bool:
    choices = chunk.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        return False
    if choice.get("text"):
        return True
    message = choice.get("delta") or choice.get("message")
    return isinstance(message, dict) and any(message.get(field) for field in _TEXT_FIELDS)
