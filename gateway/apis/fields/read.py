"""Parsing and validation of request bodies."""

from dataclasses import dataclass
from typing import Generic, TypeVar

import orjson
from pydantic import BaseModel

from engine import RequestError
from gateway.apis.fields.base import unknown_fields

MAX_FIELDS = 400
"""Maximum of fields in one body."""
MAX_NAME = 80
"""Maximum of characters that are kept of an unknown field's name."""

_Body = TypeVar("_Body", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ReadBody(Generic[_Body]):
    """A body that was read."""

    body: _Body
    """The validated body."""
    unknown: tuple[str, ...]
    """Names of its unknown fields. Those of inner objects have a path: `stream_options.x`."""


def read_body(data: bytes, model: type[_Body]) -> ReadBody[_Body]:
    """Return a JSON body, with any content type, as a `model`.

    Raises `JSONDecodeError`, `RequestError` or `ValidationError`, all 400.
    """
    content = orjson.loads(data)
    if not isinstance(content, dict):
        raise RequestError("The body should be a JSON object.", code="invalid_type")
    if len(content) > MAX_FIELDS:
        raise RequestError(f"The body should have at most {MAX_FIELDS} fields.", code="invalid_value")
    body = model.model_validate(content)
    return ReadBody(body, tuple(dict.fromkeys(name[:MAX_NAME] for name in unknown_fields(body))))
