"""Response with a JSON body."""

from http import HTTPStatus
from typing import Generic, Self, TypeVar

import orjson
from starlette.responses import Response

AnswerT = TypeVar("AnswerT")


class JsonReply(Response, Generic[AnswerT]):
    """A response with a JSON body of a type that the OpenAPI document describes."""

    media_type = "application/json"

    def __init__(self, content: AnswerT, status: int = HTTPStatus.OK) -> None:
        super().__init__(orjson.dumps(content), status)

    @classmethod
    def encoded(cls, content: bytes) -> Self:
        """Return a response with a body that is already encoded as JSON."""
        reply = cls.__new__(cls)
        Response.__init__(reply, content, HTTPStatus.OK)
        return reply
