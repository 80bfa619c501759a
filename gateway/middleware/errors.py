"""Mapping of exceptions to problems in one table. Each API encodes the problems in its own shape.

The OpenAI SDK retries 408, 409, 429 and every 5xx twice, after `retry-after-ms` if it is present. `x-should-retry`,
`true` or `false`, decides against these rules. Every row of the table is chosen for this behavior.
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from json import JSONDecodeError
from typing import TypeAlias

import orjson
from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from engine.errors import Busy, EngineError, EngineFault, LoadError, RequestError, Unavailable, lacks_thread
from gateway.middleware.faults import first_fault
from gateway.middleware.request_id import current_request_id

logger = logging.getLogger(__name__)

INVALID_REQUEST = "invalid_request_error"
RATE_LIMIT = "rate_limit_error"
SERVER = "server_error"
FIRST_CLIENT_ERROR, FIRST_SERVER_ERROR = 400, 500
TEMPORARY = {408, 429}
"""Statuses of client errors after which the same request may succeed."""

RETRY, NO_RETRY = {"x-should-retry": "true"}, {"x-should-retry": "false"}
CLOSE = {"connection": "close"}
MAX_MESSAGE = 1000
"""Maximum of characters of a message: a name or a grammar of the client may be in it."""
INVALID_HTTP, CONTEXT_EXCEEDED = "invalid_http", "context_length_exceeded"


class RefusedError(Exception):
    """The gateway refuses a request."""

    def __init__(self, problem: "Problem") -> None:
        super().__init__(problem.message)
        self.problem = problem
        """Problem that the client receives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Failure as the client sees it, independent of the shape of an API."""

    status: int
    """Status of the response, if its head was not sent yet."""
    message: str
    """Explanation in one sentence."""
    type: str = INVALID_REQUEST
    """OpenAI's error class. Other APIs map it to theirs."""
    code: str | None = None
    """Stable name of the failure, for programs."""
    param: str | None = None
    """Field of the request that is at fault, or limit of its key that is reached."""
    figures: Mapping[str, int] = field(default_factory=dict)
    """Numbers in the message, by llama-server's names, for APIs that have fields for them."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of the response."""
    unexpected: bool = False
    """True for a defect of the gateway. Its traceback belongs in the log."""

    @property
    def placed_message(self) -> str:
        """The message with the name of the field at fault, for shapes of errors that have no place for it.

        Clients know a prompt that is too long by the beginning of the message.
        """
        if self.param is None or self.param in self.message or self.code == CONTEXT_EXCEEDED:
            return self.message
        return f"{self.param}: {self.message}"


EncodeError: TypeAlias = Callable[[Problem], bytes]
"""Encoder of a problem in an API's shape. Returns the JSON body of a response."""


def error_object(problem: Problem) -> dict[str, str | None]:
    """Return OpenAI's error object."""
    return {"message": problem.message, "type": problem.type, "param": problem.param, "code": problem.code}


def encode_error(problem: Problem) -> bytes:
    """Return `{"error": {...}}`, OpenAI's shape, which is also used while the API is still unknown."""
    return orjson.dumps({"error": error_object(problem)})


def response_for(problem: Problem, encode: EncodeError = encode_error) -> Response:
    """Return the error response for a problem. A client's error that a retry would repeat says so."""
    repeats = FIRST_CLIENT_ERROR <= problem.status < FIRST_SERVER_ERROR and problem.status not in TEMPORARY
    headers = {**(NO_RETRY if repeats else {}), **problem.headers}
    return Response(encode(problem), problem.status, headers, "application/json")


DEADLINE_PASSED = Problem(
    status=504,
    message="The request took longer than this server allows.",
    type=SERVER,
    code="deadline_exceeded",
    headers=NO_RETRY,
)


PROTOCOL_MESSAGES = {
    431: "The request's line and headers are larger, or more, than this server allows.",
    501: "The only transfer encoding is chunked.",
    505: "This server speaks HTTP/1.1 and HTTP/1.0 only.",
}


def protocol_problem(status: int) -> Problem:
    """Return the problem for bytes that are not a valid request. The connection then closes."""
    message = PROTOCOL_MESSAGES.get(status, "These bytes are no valid HTTP/1.1 request.")
    return Problem(status=status, message=message, code=INVALID_HTTP, headers={**CLOSE, **NO_RETRY})


PLAIN_HTTP = Problem(
    status=400,
    message="This port speaks HTTPS. Use an https:// URL.",
    code="https_required",
    headers={**CLOSE, **NO_RETRY},
)
"""Problem of a request that came in plain text to a port for TLS."""

LEAST_WAIT, MOST_WAIT = 1.0, 60.0
"""Bounds of the time that a client is asked to wait, in seconds. OpenAI's clients ignore a longer one."""


def retry_after(seconds: float) -> dict[str, str]:
    """Return headers that ask the client to retry after `seconds`, within the bounds."""
    wait = min(max(seconds, LEAST_WAIT), MOST_WAIT)
    return {"retry-after": str(math.ceil(wait)), "retry-after-ms": str(math.ceil(wait * 1000)), **RETRY}


NO_THREAD = Problem(
    status=503,
    message="The server can start no thread now.",
    type=SERVER,
    code="no_thread",
    headers=retry_after(1),
)
"""Problem at a limit of processes and threads."""


ENGINE_ROWS: tuple[tuple[type[EngineError], str | None, int, str, Mapping[str, str]], ...] = (
    # error, its code (None: any), status, type, headers where the error has no `retry_after`; the first row that
    # matches is used
    (RequestError, None, 400, INVALID_REQUEST, {}),
    (Busy, "queue_full", 429, RATE_LIMIT, retry_after(1)),
    (Busy, None, 503, SERVER, retry_after(1)),  # it had a place in the queue, but waited too long there
    (Unavailable, None, 503, SERVER, retry_after(2)),
    (EngineFault, "engine_died", 503, SERVER, retry_after(2)),
    (EngineFault, None, 500, SERVER, {}),
    (LoadError, "model_not_found", 404, INVALID_REQUEST, {}),
    (LoadError, None, 503, SERVER, NO_RETRY),
    (EngineError, None, 500, SERVER, {}),
)


def problem_for(error: Exception) -> Problem:
    """Return the problem that the client receives for `error`."""
    match error:
        case RefusedError():
            return error.problem
        case EngineError():
            return _engine_problem(error)
        case ValidationError():
            return validation_problem(error)
        case JSONDecodeError():
            return Problem(status=400, message=f"The body is not valid JSON: {error}", code="invalid_json")
        case RuntimeError() if lacks_thread(error):
            return NO_THREAD
    return _internal_problem()


def _engine_problem(error: EngineError) -> Problem:
    status, type_, headers = next(
        row[2:] for row in ENGINE_ROWS if isinstance(error, row[0]) and row[1] in {None, error.code}
    )
    if error.retry_after is not None:
        headers = retry_after(error.retry_after)
    return Problem(
        status=status,
        message=error.message if len(error.message) <= MAX_MESSAGE else f"{error.message[:MAX_MESSAGE]}…",
        type=type_,
        code=error.code,
        param=error.param,
        figures=error.figures,
        headers=headers,
    )


def validation_problem(error: ValidationError, model: type[BaseModel] | None = None) -> Problem:
    """Return the response to an invalid value. Given its model, it names a field of an inner object by its path."""
    path, code, reason = first_fault(error, model)
    return Problem(status=400, message=f"{path}: {reason}" if path else reason, code=code, param=path or None)


def _internal_problem() -> Problem:
    return Problem(
        status=500,
        message=f"The server failed to process the request. Its id is {current_request_id.get()}.",
        type=SERVER,
        code="internal_error",
        headers=NO_RETRY,  # a retry would meet the same defect
        unexpected=True,
    )


def report(error: Exception) -> Problem:
    """Return `problem_for(error)`, and log a defect of the gateway with its traceback, and a lack of threads."""
    problem = problem_for(error)
    if problem.unexpected:
        logger.error("unexpected %s", type(error).__name__, exc_info=error)
    elif problem is NO_THREAD:
        logger.error("a request failed: %s", error)
    return problem
