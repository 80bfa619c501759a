"""A whole JSON answer."""

from http import HTTPStatus
from typing import Generic, Self, TypeVar

import orjson
from starlette.responses import Response

AnswerT = TypeVar("AnswerT")


class JsonReply(Response, Generic[AnswerT]):
    """A response whose JSON body is of a type that the OpenAPI document describes."""

    media_type = "application/json"

    def __init__(self, content: AnswerT, status: int = HTTPStatus.OK) -> None:
        super().__init__(orjson.dumps(content), status)

    @classmethod
    def encoded(cls, content: bytes) -> Self:
        """Return the reply with an answer that is JSON already."""
        reply = cls.__new__(cls)
        Response.__init__(reply, content, HTTPStatus.OK)
        return reply
