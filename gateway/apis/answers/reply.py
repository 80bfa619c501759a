"""Response with a JSON body."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Generic, Self, TypeVar

import anyio.lowlevel
import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

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


class LongJsonReply(JsonReply[AnswerT]):
    """A response with a long JSON body that is encoded in parts. Other tasks run while it is sent, part by part."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        """Create the response. The parts together are the body."""
        Response.__init__(self, None, HTTPStatus.OK)
        self.headers["content-length"] = str(sum(map(len, parts)))
        self._parts = parts

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
            await anyio.lowlevel.checkpoint()
        await send({"type": "http.response.body", "body": b""})
