"""The table of an API's endpoints: what the application, the OpenAPI document and the list of routes are made from."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from pydantic import BaseModel
from starlette.requests import Request

from gateway.apis.answers.reply import JsonReply
from gateway.middleware.caller import Caller
from gateway.middleware.errors import EncodeError
from gateway.middleware.sse import EventStream

BodyT = TypeVar("BodyT")
AnswerT = TypeVar("AnswerT")

Described: TypeAlias = dict[str, Any]
"""A part of an OpenAPI document."""


NO_SUCH_MODEL = frozenset({404})
"""Refusals of an endpoint that takes the name of a model."""
QUEUED = frozenset({404, 429})
"""Refusals of an endpoint whose requests wait for a model."""


@dataclass(frozen=True, slots=True)
class Call(Generic[BodyT]):
    """One request to an endpoint."""

    http: Request
    """The request's line and headers. Its body has been read."""
    caller: Caller
    """Who asks."""
    body: BodyT
    """The checked body; None for an endpoint without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Generic[BodyT, AnswerT]):
    """One method of one path. mypy holds the handler to the types of the body and of the answer."""

    method: str
    """In upper case."""
    path: str
    """With its parameters in braces, as Starlette has them."""
    id: str
    """The operation's name, OpenAI's where there is one."""
    summary: str
    """One sentence."""
    handler: Callable[[Call[BodyT]], Awaitable[JsonReply[AnswerT] | EventStream]]
    """Serves a call: returns the response, or raises."""
    body: type[BodyT]
    """The request body's model; `NoneType` for none."""
    answer: type[AnswerT]
    """Type of the JSON in a 200."""
    events: Any = None
    """Type of the JSON in the events of a stream, if the endpoint can stream."""
    ends_with_done: bool = True
    """Whether a stream that went well ends in `[DONE]`."""
    query: tuple[Described, ...] = field(default=(), hash=False)
    """The query's parameters, described."""
    refusals: frozenset[int] = frozenset()
    """Statuses of failures that not every endpoint may have."""
    unready: type[AnswerT] | None = None
    """Type of the JSON in a 503 besides the API's error."""


AnyEndpoint: TypeAlias = Endpoint[Any, Any]


@dataclass(frozen=True, slots=True)
class Api:
    """An API: its endpoints, and its shape of errors."""

    endpoints: tuple[AnyEndpoint, ...]
    """In the order of routing: the first that fits."""
    encode_error: EncodeError
    """Encodes failures of its endpoints, also those before routing."""
    error: Any
    """Type of the JSON that `encode_error` makes."""


def has_body(endpoint: AnyEndpoint) -> bool:
    """Return whether requests to an endpoint carry a body."""
    return issubclass(endpoint.body, BaseModel)
