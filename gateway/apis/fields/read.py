"""Parsing and validation of request bodies."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import orjson
from pydantic import BaseModel

from engine import RequestError
from gateway.apis.fields.base import unknown_fields

MAX_FIELDS = 400
"""Maximum of fields in one body."""
MAX_NESTING = 64
"""Maximum of arrays and objects inside each other, with the body itself."""
MAX_UNKNOWN = 1024
"""Maximum of different unknown fields in one body, with those of inner objects."""
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
    _check_nesting(content)
    body = model.model_validate(content)
    unknown = dict.fromkeys(name[:MAX_NAME] for name in unknown_fields(body))
    if len(unknown) > MAX_UNKNOWN:
        raise RequestError(f"The body should have at most {MAX_UNKNOWN} unknown fields.", code="invalid_value")
    return ReadBody(body, tuple(unknown))


def _check_nesting(content: dict[str, Any]) -> None:
    for name, value in content.items():
        if isinstance(value, dict | list) and _is_deeper(value, MAX_NESTING - 1):
            param = name[:MAX_NAME]
            message = f"{param}: should have at most {MAX_NESTING - 1} arrays and objects inside each other"
            raise RequestError(message, code="invalid_value", param=param)


def _is_deeper(value: dict[str, Any] | list[Any], levels: int) -> bool:
    layer = [value]
    for _ in range(levels):
        layer = [
            item
            for container in layer
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, dict | list)
        ]
        if not layer:
            return False
    return True
