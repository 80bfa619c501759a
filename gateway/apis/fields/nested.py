"""Validation of nested values one by one, so that an error names the exact place."""

from collections.abc import Mapping
from typing import TypeVar

from pydantic import Discriminator, Tag, ValidationError

from engine import RequestError
from gateway.apis.fields.base import Fields
from gateway.middleware.errors import first_fault


class Nested(Fields):
    """An object inside a field, read by `read_nested`."""


_Nested = TypeVar("_Nested", bound=Nested)


def read_nested(model: type[_Nested], value: object, place: str) -> _Nested:
    """Return the value as a `model`. Raises `RequestError` with the place of the first fault, `messages[0].content`."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        fault = first_fault(error)
        raise refusal(place + "".join(map(_step, fault.place)), fault.reason) from error


def of_type(kind: str) -> Tag:
    """Return the mark of a member of a union that the value `kind` of a `type` chooses, as `by_type` reads it."""
    return Tag(f"{_KIND}{kind}")


def by_type(*kinds: str) -> Discriminator:
    """Return the mark of a union of models that `of_type` marks. Its choice leaves no trace in the place of a fault."""

    def chosen(value: object) -> str:
        return f"{_KIND}{value.get('type') if isinstance(value, dict) else getattr(value, 'type', None)}"

    return Discriminator(
        chosen, custom_error_type="unknown_type", custom_error_message=f"type should be one of {', '.join(kinds)}"
    )


_KIND = "of type "
"""Begins the names of a union's members in the places of faults, which no field's name does."""


def _step(part: int | str) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return "" if part.startswith(_KIND) else f".{part}"


def read_kind(kinds: Mapping[str, type[_Nested]], value: object, place: str, *, discriminator: str = "type") -> _Nested:
    """Return an object as one of several models, which its field `discriminator` names. Raises `RequestError`."""
    if not isinstance(value, dict):
        raise refusal(place, "should be an object")
    kind = value.get(discriminator)
    if not isinstance(kind, str) or kind not in kinds:
        raise refusal(f"{place}.{discriminator}", f"should be one of {', '.join(kinds)}")
    return read_nested(kinds[kind], value, place)


def refusal(place: str, reason: str) -> RequestError:
    """Return the error for one place in a request."""
    return RequestError(f"{place}: {reason}", code="invalid_value", param=place)
