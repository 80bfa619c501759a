"""Responses with a JSON body, and with a text."""

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Generic, Self, TypeVar

import anyio.lowlevel
import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from gateway.middleware.streams.blocks import blocks

AnswerT = TypeVar("AnswerT")


class JsonReply(Response, Generic[AnswerT]):
    """A response with a JSON body of a type that the OpenAPI document describes."""

    media_type = "application/json"

    def __init__(self, content: AnswerT, status: int = HTTPStatus.OK) -> None:
        self.blocks: Sequence[bytes] = (orjson.dumps(content),)
        """The body in blocks, each of which is sent as one message."""
        super().__init__(None, status, _headers(self.blocks))

    @classmethod
    def encoded(cls, *blocks: bytes) -> Self:
        """Return a response with a body that is already encoded as JSON, in one block or several."""
        reply = cls.__new__(cls)
        reply.blocks = blocks
        Response.__init__(reply, None, HTTPStatus.OK, _headers(blocks))
        return reply

    @classmethod
    async def in_pieces(cls, pieces: Iterable[bytes]) -> Self:
        """Return a response with a body in pieces. Lets other tasks run between blocks of them."""
        encoded: list[bytes] = []
        for block in blocks(pieces):
            if encoded:
                await anyio.lowlevel.checkpoint()
            encoded.append(block)
        return cls.encoded(*encoded)

    @override
    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the response, with one message for each block."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for block in self.blocks[:-1]:
            await send({"type": "http.response.body", "body": block, "more_body": True})
        await send({"type": "http.response.body", "body": self.blocks[-1]})


class TextReply(Response):
    """A response with a text body of one of the media types of its endpoint."""


def _headers(encoded: Sequence[bytes]) -> dict[str, str]:
    return {"content-length": str(sum(map(len, encoded)))}
