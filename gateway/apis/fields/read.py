"""Parsing and validation of request bodies."""

import logging
from collections.abc import Sequence
from typing import TypeVar

import orjson
from pydantic import BaseModel

from engine import RequestError
from gateway.apis.fields.base import unknown_fields
from gateway.middleware.caller import Caller

logger = logging.getLogger(__name__)

IGNORED = b"x-llama-gateway-ignored"
MAX_REPORTED = 32
"""Maximum of names in one header. Further names are only counted."""

_Body = TypeVar("_Body", bound=BaseModel)


class BodyReader:
    """Reads bodies as JSON, with any content type. Unknown fields are always reported.

    A response header names them, and the log names each of them once. In strict mode the request is refused instead.
    """

    max_fields = 400
    """Fields in one body."""
    max_logged = 256
    """Unknown fields that are logged."""
    max_name_length = 80
    """Characters. With `max_logged` it bounds `logged`: a client cannot fill the log and the memory with names."""

    def __init__(self, *, strict: bool = False) -> None:
        """Create a reader.

        Args:
            strict: refuse unknown fields.
        """
        self.logged: set[str] = set()
        """Unknown fields that are logged so far."""
        self._strict = strict

    def read(self, caller: Caller, data: bytes, model: type[_Body]) -> _Body:
        """Return the body as a `model`. Raises `JSONDecodeError`, `RequestError` or `ValidationError`, all 400."""
        content = orjson.loads(data)
        if not isinstance(content, dict):
            raise RequestError("The body should be a JSON object.", code="invalid_type")
        if len(content) > self.max_fields:
            raise RequestError(f"The body should have at most {self.max_fields} fields.", code="invalid_value")
        body = model.model_validate(content)
        if unknown := dict.fromkeys(name[: self.max_name_length] for name in unknown_fields(body)):
            self._report(caller, list(unknown))
        return body

    def _report(self, caller: Caller, names: list[str]) -> None:
        if self._strict:
            raise RequestError(f"Unknown field: {names[0]!r}", code="unknown_parameter", param=names[0])
        caller.reply_headers.append((IGNORED, ignored(names)))
        for name in names:
            self._log(name)

    def _log(self, name: str) -> None:
        if name not in self.logged and len(self.logged) < self.max_logged:
            self.logged.add(name)
            logger.warning("the unknown field %r of a request is ignored, now and later", name)


def ignored(names: Sequence[str]) -> bytes:
    """Return the header value that names ignored fields. Commas and bytes that a header may not have become `?`."""
    cleaned = ["".join(c if c.isascii() and c.isprintable() and c != "," else "?" for c in name) for name in names]
    more = [f"and {len(names) - MAX_REPORTED} more"] if len(names) > MAX_REPORTED else []
    return ", ".join(cleaned[:MAX_REPORTED] + more).encode("ascii")
