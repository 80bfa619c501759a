"""`GET /openapi.json`: the OpenAPI document."""

from collections.abc import Sequence
from typing import Any

import anyio.to_thread
import orjson

from gateway.apis.answers.reply import JsonReply
from gateway.apis.answers.shapes import ErrorAnswer
from gateway.apis.endpoint import Api, BodilessEndpoint, Call
from gateway.middleware.errors import encode_error
from gateway.openapi.document import describe


class Description:
    """Endpoint that returns the document. The document is built on the first request, which takes 0.1 s."""

    def __init__(self, described: Sequence[Api], *, strict: bool) -> None:
        """Take the APIs to describe; this endpoint's own API is added to them.

        Args:
            described: all other APIs.
            strict: True if unknown fields are refused.
        """
        self._strict = strict
        self._document: bytes | None = None
        get = BodilessEndpoint(
            method="GET",
            path="/openapi.json",
            id="getDescription",
            summary="This document.",
            handler=self.get,
            answer=dict[str, Any],
        )
        self.api = Api((get,), encode_error, ErrorAnswer)
        """The API that consists of this endpoint."""
        self._apis = (*described, self.api)

    async def get(self, _call: Call[None]) -> JsonReply[dict[str, Any]]:
        """Return the document. Waits for a thread that builds it the first time."""
        if self._document is None:
            self._document = await anyio.to_thread.run_sync(self._make, abandon_on_cancel=True)
        return JsonReply.encoded(self._document)

    def _make(self) -> bytes:
        return orjson.dumps(describe(self._apis, strict=self._strict))
