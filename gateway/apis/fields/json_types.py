"""JSON types: the error for a value of a wrong one, and unions in which the type of the value chooses the member."""

from pydantic import Discriminator, Tag
from pydantic_core import PydanticCustomError

from gateway.middleware.faults import MEMBER

_NAMES: dict[type, str] = {str: "string", bool: "boolean", int: "number", float: "number", list: "array"}


def wrong_type(reason: str) -> PydanticCustomError:
    """Return the error for a value of another JSON type than a field takes. A validator raises it."""
    return PydanticCustomError("wrong_type", reason)


def of_json(kind: str) -> Tag:
    """Return the mark of a member of a union that values of this JSON type choose, as `by_json` reads it."""
    return Tag(f"{MEMBER}{kind}")


def by_json(reason: str) -> Discriminator:
    """Return the mark of a union whose members `of_json` marks. An error is that of the member that was meant.

    Args:
        reason: the error for a value that chooses no member.
    """

    def chosen(value: object) -> str:
        return f"{MEMBER}{_NAMES.get(type(value), 'object')}"

    return Discriminator(chosen, custom_error_type="wrong_type", custom_error_message=reason)


def array_of(kind: str, value: object, *, most: int, least: int = 0) -> list[object]:
    """Return a value that should be an array of so many items. `kind` names the items. Raises `ValueError`."""
    if not isinstance(value, list):
        raise wrong_type(f"should be an array of {kind}")
    if not least <= len(value) <= most:
        raise ValueError(f"should have {f'{least} to' if least else 'at most'} {most} {kind}")
    return value
