"""Endpoints of an API, from which the application's routes and the OpenAPI document are made."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from types import NoneType
from typing import Any, Generic, TypeAlias, TypeVar, get_type_hints

from pydantic import BaseModel
from starlette.requests import Request

from gateway.apis.answers.reply import JsonReply, TextReply
from gateway.middleware.caller import Caller
from gateway.middleware.conventions import Conventions, Header, no_headers, unchanged
from gateway.middleware.errors import EncodeError, Problem
from gateway.middleware.streams.sse import EventStream

BodyT = TypeVar("BodyT")
PreparedT = TypeVar("PreparedT")
AnswerT = TypeVar("AnswerT")

Described: TypeAlias = dict[str, Any]
"""An object in an OpenAPI document."""


MODEL_PARAMETER: Described = {"name": "model", "in": "query", "schema": {"type": "string"}}
"""Query parameter with the name of a model."""
EVENTS = "text/event-stream"
"""Media type of server-sent events."""
NOT_FOUND = frozenset({404})
"""Refusals of an endpoint that takes the name or the id of something."""
QUEUED = frozenset({404, 429})
"""Refusals of an endpoint that queues requests for a model."""


@dataclass(frozen=True, slots=True)
class Call(Generic[PreparedT]):
    """One request to an endpoint."""

    http: Request
    """Request line and headers. The body is already read."""
    caller: Caller
    """Sender of the request: its identity and its limits."""
    prepared: PreparedT
    """Result of `Endpoint.prepare` for the body, or None for an endpoint without a body."""


def never_streams(_prepared: object) -> bool:
    """Return False, for endpoints that cannot stream."""
    return False


def accept_unknown(_headers: Mapping[str, str], _names: Sequence[str]) -> None:
    """Accept unknown fields, which are then reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Generic[BodyT, PreparedT, AnswerT]):
    """One method of one path. mypy checks that body, `prepare`, handler and answer fit together."""

    method: str
    """HTTP method in upper case."""
    path: str
    """Path with its parameters in braces, in Starlette's format."""
    id: str
    """Operation id: that of OpenAI if it has one."""
    summary: str
    """Summary of one sentence for the OpenAPI document."""
    body: type[BodyT]
    """Model of the request body, or `NoneType` in a `BodilessEndpoint`."""
    prepare: Callable[[BodyT], PreparedT]
    """Converts a validated body to what the handler needs of it, or raises `RequestError`.

    It runs in another process if the body is large. So it is a function of a module, depends only on the body,
    and its annotated result is a type that `gateway.preparation.codec` can encode.
    """
    handler: Callable[[Call[PreparedT]], Awaitable[JsonReply[AnswerT] | TextReply | EventStream]]
    """Handler of a call. Returns the response, or raises."""
    answer: type[AnswerT]
    """Type of the successful answer."""
    status: HTTPStatus = HTTPStatus.OK
    """Status of a successful answer. With 204 it has no body."""
    media: tuple[str, ...] = ("application/json",)
    """Media types of this answer. The answer in another type than JSON is a `str`."""
    events: Any = None
    """Type of the JSON in the stream's events, if the endpoint can stream."""
    check_unknown: Callable[[Mapping[str, str], Sequence[str]], None] = accept_unknown
    """Checks the headers and the names of unknown fields of a valid body. Raises `RequestError` to refuse them."""
    streams: Callable[[PreparedT], bool] = never_streams
    """Returns True for a request whose answer is a stream."""
    stream_media: str = EVENTS
    """Media type of the stream. One of another type has a JSON object in each line."""
    ends_with_done: bool = True
    """True if a successful stream ends in `[DONE]`."""
    optional_body: bool = False
    """True if an empty body stands for an object without fields."""
    query: tuple[Described, ...] = field(default=(), hash=False)
    """Query parameters, as OpenAPI parameter objects."""
    refusals: frozenset[int] = frozenset()
    """Error statuses that are specific to some endpoints."""
    unready: type[AnswerT] | None = None
    """Type of the JSON answer with the status 503, besides the API's error."""
    shared: bool = False
    """True if clients of other APIs use it, too. Those with a header of an API get errors in its shape."""


AnyEndpoint: TypeAlias = Endpoint[Any, Any, Any]


def _no_body(_body: None) -> None:
    """Return None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodilessEndpoint(Endpoint[None, None, AnswerT]):
    """An endpoint whose requests have no body."""

    body: type[None] = NoneType
    prepare: Callable[[None], None] = _no_body


@dataclass(frozen=True, slots=True)
class Api:
    """An API: its endpoints and its error format."""

    endpoints: tuple[AnyEndpoint, ...]
    """Endpoints in routing order: the first match is used."""
    encode_error: EncodeError
    """Encoder of the endpoints' errors, including errors before routing."""
    error: Any
    """Type of the JSON that `encode_error` returns."""
    adapt_problem: Callable[[Problem], Problem] = unchanged
    """Returns a problem with the API's own status."""
    headers: Callable[[Sequence[Header]], Iterable[Header]] = no_headers
    """Returns the API's own headers for a response with these headers."""
    client_header: bytes = b""
    """Header, in lower case, that each client of the API sends; empty if there is no such header."""

    @property
    def conventions(self) -> Conventions:
        """Conventions of all responses of the API."""
        return Conventions(encode_error=self.encode_error, adapt=self.adapt_problem, headers=self.headers)


def has_body(endpoint: AnyEndpoint) -> bool:
    """Return True if requests to an endpoint have a body."""
    return issubclass(endpoint.body, BaseModel)


def prepared_type(endpoint: AnyEndpoint) -> Any:  # noqa: ANN401 (a type may be any object)
    """Return the annotated type of what `endpoint.prepare` returns."""
    return get_type_hints(endpoint.prepare)["return"]
