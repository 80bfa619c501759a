"""Request bodies: bytes to a checked model."""

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
MOST_REPORTED = 32
"""Names in one header. Those behind them are counted."""

_Body = TypeVar("_Body", bound=BaseModel)


class BodyReader:
    """Reads bodies as JSON, whatever their content type says. Fields that we do not know are never ignored in silence.

    A header of the response names them, and the log does once for each; or the request is refused.

    Attributes:
        noted: unknown fields told of so far in the log.
    """

    most_fields = 400
    most_noted = 256
    longest_noted = 80
    """Characters. With `most_noted` it bounds `noted`, so that a client cannot fill log and memory with names."""

    def __init__(self, *, strict: bool = False) -> None:
        """Args: `strict` refuses unknown fields."""
        self.noted: set[str] = set()
        self._strict = strict

    def read(self, caller: Caller, data: bytes, model: type[_Body]) -> _Body:
        """Return the body as a `model`. Raises `JSONDecodeError`, `RequestError` or `ValidationError`, all 400."""
        content = orjson.loads(data)
        if not isinstance(content, dict):
            raise RequestError("The body should be a JSON object.", code="invalid_type")
        if len(content) > self.most_fields:
            raise RequestError(f"The body should have at most {self.most_fields} fields.", code="invalid_value")
        body = model.model_validate(content)
        if unknown := dict.fromkeys(name[: self.longest_noted] for name in unknown_fields(body)):
            self._report(caller, list(unknown))
        return body

    def _report(self, caller: Caller, names: list[str]) -> None:
        if self._strict:
            raise RequestError(f"Unknown field: {names[0]!r}", code="unknown_parameter", param=names[0])
        caller.reply_headers.append((IGNORED, ignored(names)))
        for name in names:
            self._note(name)

    def _note(self, name: str) -> None:
        if name not in self.noted and len(self.noted) < self.most_noted:
            self.noted.add(name)
            logger.warning("the unknown field %r of a request is ignored, now and later", name)


def ignored(names: Sequence[str]) -> bytes:
    """A header's value that names fields. Bytes that a header may not have, and commas, become `?`."""
    cleaned = ["".join(c if c.isascii() and c.isprintable() and c != "," else "?" for c in name) for name in names]
    more = [f"and {len(names) - MOST_REPORTED} more"] if len(names) > MOST_REPORTED else []
    return ", ".join(cleaned[:MOST_REPORTED] + more).encode("ascii")
