"""Request bodies: bytes to a checked model."""

import logging
from typing import TypeVar

import orjson
from pydantic import BaseModel
from starlette.requests import Request

from engine import RequestError

logger = logging.getLogger(__name__)

_Body = TypeVar("_Body", bound=BaseModel)


class BodyReader:
    """Reads bodies as JSON, whatever their content type says, and tells once of each field that we do not know.

    Attributes:
        noted: unknown fields told of so far.
    """

    most_fields = 400
    most_noted = 256
    longest_noted = 80
    """Characters. With `most_noted` it bounds `noted`, so that a client cannot fill log and memory with names."""

    def __init__(self) -> None:
        self.noted: set[str] = set()

    async def read(self, request: Request, model: type[_Body]) -> _Body:
        """The body as a `model`. Raises `JSONDecodeError`, `RequestError` or `ValidationError`, all 400."""
        content = orjson.loads(await request.body())
        if not isinstance(content, dict):
            raise RequestError("The body should be a JSON object.", code="invalid_type")
        if len(content) > self.most_fields:
            raise RequestError(f"The body should have at most {self.most_fields} fields.", code="invalid_value")
        body = model.model_validate(content)
        for name in body.model_extra or ():
            self._note(name[: self.longest_noted])
        return body

    def _note(self, name: str) -> None:
        if name not in self.noted and len(self.noted) < self.most_noted:
            self.noted.add(name)
            logger.warning("the unknown field %r of a request is ignored, now and later", name)
