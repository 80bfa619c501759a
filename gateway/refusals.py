"""Refusals of invalid settings, as one line for the operator."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from gateway.flags import TABLES, file_key, flag_fields, meant_key
from gateway.settings import Settings
from gateway.settings.table import ModelTable

_NUMBERS = {"int_parsing": "should be a whole number", "float_parsing": "should be a number"}
"""Reasons for which a text is no number, by pydantic's types of errors."""
_UNITS = {
    "BYTES": " of bytes, or a size such as 512M or 8G",
    "SECONDS": " of seconds",
    "MS": " of milliseconds",
    "TOKENS": " of tokens",
}
"""Units of numbers, by the titles of their fields."""


def refusal(error: ValidationError, values: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    """Return one line about the first invalid value, under the name that its source uses.

    Values that exclude each other have no place; their message has the names of the flags.
    """
    # A key is often missing because it is mistyped, which is another error.
    first = min(error.errors(), key=lambda one: one["type"] == "missing")
    reason = first["msg"].removeprefix("Value error, ").removeprefix("Input ").removeprefix("String ")
    if not first["loc"]:
        return reason
    name, *inner = map(str, first["loc"])
    if number := _NUMBERS.get(first["type"]):
        reason = f"{number}{_unit(name, inner)}"
    if name == TABLES:
        reason = _reason_of_table(first["type"], inner, reason)
        return _refusal_of_table(inner, first["input"], reason, values.get("model", []), origins.get("model", ""))
    field = Settings.model_fields[name]
    if not field.repr:  # a secret is not shown
        return f"{origins[name]}: {reason}"
    given = values[name]
    value = repr(",".join(given) if isinstance(given, list) and first["type"] == "value_error" else given)
    return f"{origins[name]} {value}: {reason.removeprefix(f'{value}: ')}"


def _unit(name: str, inner: Sequence[str]) -> str:
    """Return the unit of a number, as the end of a reason. A number in a table of models is at `NAME`, `SETTING`."""
    fields, name = (ModelTable.model_fields, inner[1]) if name == TABLES else (Settings.model_fields, name)
    return _UNITS.get(fields[name].title or "", "")


def _reason_of_table(error: str, place: Sequence[str], otherwise: str) -> str:
    """Return the reason for which a table is refused, by pydantic's type of the error and its place."""
    if error == "missing":
        return "is required"
    if error != "extra_forbidden":
        return otherwise
    key = place[-1]
    of_server = "this is a setting of the server, and comes before all tables"
    reason = of_server if key in flag_fields() else "there is no such setting of a model"
    return f"{reason}{meant_key(key, ModelTable.model_fields)}"


def _refusal_of_table(
    place: Sequence[str], value: object, reason: str, models: str | Sequence[str], origin: str
) -> str:
    """Return one line about an invalid value of one model: by its flag or variable, or by its place in the file."""
    name, *_ = place
    texts = [models] if isinstance(models, str) else models
    if named := [text for text in (f"{name}={value}", value) if text in texts]:
        return f"{origin} {named[0]!r}: {reason}"
    shown = f" {value!r}" if place[-1] == "file" and isinstance(value, str) else ""
    setting = [file_key(part) for part in place[1:] if part != "[key]"]
    return f"{'.'.join([TABLES, name, *setting])}{shown}: {reason}"
