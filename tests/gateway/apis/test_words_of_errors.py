"""The words of every error that a wrong value at any place of a body has."""

import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from pydantic import BaseModel

from gateway.apis.fields.base import Fields
from tests.gateway.apis.bodies import BODIES, Body, refused

WRONG: tuple[object, ...] = (
    None,
    True,
    5,
    -7,
    1.5,
    "zq",
    "",
    [],
    ["zq"],
    [5],
    [None],
    {},
    {"zq": 1},
    {"type": "zq"},
    [{}],
    [[]],
)


def places(value: object, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths to all values inside a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*place, key)
        yield from places(inner, (*place, key))


def replaced(body: Body, place: tuple[str | int, ...], value: object) -> Body:
    changed = deepcopy(body)
    inner: Any = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return changed


def classes(model: type[BaseModel]) -> Iterator[str]:
    for inner in model.__subclasses__():
        yield inner.__name__
        yield from classes(inner)


FOREIGN = re.compile(
    rf"\b(?:None|True|False|dict\w*|list|tuple|str|int|bool|instance|Input should|{'|'.join(classes(Fields))})\b"
)
"""Words of Python, of pydantic and of the code."""


@pytest.mark.parametrize("model", BODIES)
def test_every_error_names_its_place_without_foreign_words(model: type[BaseModel]) -> None:
    valid = BODIES[model]
    assert refused(model, valid) is None
    names = model.model_json_schema()["properties"].keys()
    fields = {**dict.fromkeys(names), **valid}
    for place in places(fields):
        for value in WRONG:
            body = replaced(fields, place, value)
            if (error := refused(model, body)) is None:
                continue
            assert error.param is not None, error.message
            assert re.split(r"[.[]", error.param)[0] in names, error.message
            assert re.fullmatch(r"\w+(?:\[\d+\]|\.\w+)*", error.param), error.param
            assert not FOREIGN.search(error.message), error.message
