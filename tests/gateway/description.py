"""A check of responses against our own description of them."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any
from urllib.parse import quote

import orjson
from jsonschema_rs import Draft202012Validator, Registry

from gateway.openapi.document import describe
from tests.gateway.application import apis

NAME = "urn:llama-gateway"
EVENTS, JSON_LINES = "text/event-stream", "application/x-ndjson"


def check(method: str, path: str, status: int, headers: Mapping[str, str], content: bytes) -> None:
    """Raise `AssertionError` or `ValidationError` if a response of a described route differs from its description."""
    place = _place_of(method, path)
    if place is None:
        return
    assert str(status) in _at(place)["responses"], f"{method} {path} is not described to answer {status}"
    place = (*place, "responses", str(status))
    if reference := _at(place).get("$ref"):
        place = tuple(reference.removeprefix("#/").split("/"))
    _check_headers(_at(place)["headers"], headers)
    if "content" not in _at(place):
        assert not content, f"{method} {path} is not described to answer {status} with a body"
        return
    kind = headers["content-type"].partition(";")[0]
    assert kind in _at(place)["content"], f"{method} {path} is not described to answer {status} with {kind}"
    place = (*place, "content", kind, "schema")
    if kind == EVENTS and "properties" in _at(place):
        _check_events(place, content)
    elif kind == JSON_LINES and _at(place) != {"type": "string"}:
        for line in content.splitlines():
            validator(place).validate(orjson.loads(line))
    elif method != "HEAD":
        validator(place).validate(orjson.loads(content) if kind == "application/json" else content.decode())


def _check_headers(described: Mapping[str, Any], headers: Mapping[str, str]) -> None:
    components = document()["components"]["headers"]
    own = {name for name in headers if name in components}
    assert own <= described.keys(), f"{own - described.keys()} are not described"
    required = {name for name in described if components[name].get("required")}
    assert required <= headers.keys(), f"{required - headers.keys()} are missing"


def _check_events(place: tuple[str, ...], content: bytes) -> None:
    data = (*place, "properties", "data")
    ends = "anyOf" in _at(data)
    schema = (*data, "anyOf", "0", "contentSchema") if ends else (*data, "contentSchema")
    for event in _events(content):
        validator(place).validate(event)
        if not (ends and event["data"] == "[DONE]"):
            validator(schema).validate(orjson.loads(event["data"]))


def _events(content: bytes) -> Iterator[dict[str, str]]:
    """Return the events of a stream; a failure or a hang-up may cut off the last one."""
    *blocks, _ = content.decode().split("\n\n")
    for block in blocks:
        if not block.startswith(":"):
            yield dict(line.split(": ", 1) for line in block.split("\n"))


@cache
def document() -> dict[str, Any]:
    return describe(apis())


def _place_of(method: str, path: str) -> tuple[str, ...] | None:
    """Return the document's place of a path and a method. A path without parameters goes first, as in the router."""
    paths = document()["paths"]
    method = "get" if method == "HEAD" else method.lower()
    for template in sorted(paths, key=lambda template: "{" in template):
        ids = ".*" if template == "/v1/models/{id}" else "[^/]+"
        if re.fullmatch(re.sub(r"\{\w+\}", ids, template), path) and method in paths[template]:
            return "paths", template, method
    return None


def _at(place: tuple[str, ...]) -> Any:
    part: Any = document()
    for step in place:
        part = part[int(step)] if isinstance(part, list) else part[step]
    return part


@cache
def validator(place: tuple[str, ...]) -> Draft202012Validator:
    pointer = "/".join(step.replace("~", "~0").replace("/", "~1") for step in place)
    return Draft202012Validator({"$ref": f"{NAME}#/{quote(pointer)}"}, registry=_registry())


@cache
def _registry() -> Registry:
    return Registry([(NAME, document())])
