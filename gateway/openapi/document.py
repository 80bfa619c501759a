"""The document itself: the operations, and the schemas of all that they take and give."""

import re
from collections.abc import Iterator
from functools import cache
from http import HTTPStatus
from typing import Any

import orjson
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from gateway import __version__
from gateway.apis.answers.shapes import ErrorAnswer
from gateway.apis.fields.read import BodyReader
from gateway.apis.operations import OPERATIONS, Operation
from gateway.openapi.statuses import EVERYWHERE, HEADERS, PROTOCOL, REASONS, Described, failure, headers

VERSION = "3.1.1"

DESCRIPTION = """\
An OpenAI-compatible server on llama.cpp.

- Bodies are JSON, whatever their content type says. `null` means that a field is not given, and an integer is written \
without a fraction. Where fields do not fit together, or the model cannot do what they ask for, that is a 400, too.
- A field that this server does not know is accepted and named in `x-llama-gateway-ignored`, or refused where the \
operator wants it so.
- A path that is not described is answered 404, a method 405, each with the same error as elsewhere. Where there is \
GET, there is HEAD.
- A client that hangs up cancels its request.
- The events of a stream are described one by one. A comment line may stand between them. A failure before the first \
is a status, and one after it is the last event."""


class _Untitled(GenerateJsonSchema):
    """Without the titles of fields, which repeat their names."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - pydantic asks for each
        return False


@cache
def document(*, strict: bool = False) -> bytes:
    """The document as JSON. Args: `strict`, whether unknown fields are refused."""
    return orjson.dumps(describe(strict=strict))


def describe(*, strict: bool = False) -> Described:
    """As `document`, and not encoded."""
    schemas = _Schemas(strict=strict)
    paths: dict[str, Described] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation, schemas)
    return {
        "openapi": VERSION,
        "info": {"title": "llama-gateway", "version": __version__, "description": DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": schemas.definitions,
            "headers": dict(HEADERS),
            "responses": {f"Error{status}": failure(status, schemas.of(ErrorAnswer)) for status in REASONS},
        },
    }


class _Schemas:
    """What every type is described as.

    Attributes:
        definitions: of types with a name.
    """

    def __init__(self, *, strict: bool) -> None:
        asked = {kind: None for operation in OPERATIONS for kind in _kinds(operation)}
        found, shared = TypeAdapter.json_schemas(
            [(kind, "validation", TypeAdapter(kind)) for kind in asked],
            ref_template="#/components/schemas/{model}",
            schema_generator=_Untitled,
        )
        self.definitions = shared["$defs"]
        self._found = {kind: schema for (kind, _), schema in found.items()}
        for body in {operation.body for operation in OPERATIONS} - {None}:
            self._definition(body)["maxProperties"] = BodyReader.most_fields
        if strict:
            self._refuse_unknown_fields()

    def of(self, kind: object) -> Described:
        """The description of a type, by reference where it has a name."""
        return self._found[kind]

    def _definition(self, kind: object) -> Described:
        definition: Described = self.definitions[self.of(kind)["$ref"].rpartition("/")[2]]
        return definition

    def _refuse_unknown_fields(self) -> None:
        for definition in self.definitions.values():
            if "properties" in definition and definition.get("additionalProperties") is True:
                definition["additionalProperties"] = False


def _kinds(operation: Operation) -> Iterator[Any]:
    kinds = (operation.body, operation.answer, operation.events, operation.failure, operation.unready, ErrorAnswer)
    yield from (kind for kind in kinds if kind is not None)


def _described(operation: Operation, schemas: _Schemas) -> Described:
    described: Described = {"operationId": operation.id, "summary": operation.summary}
    if parameters := [*_path_parameters(operation.path), *operation.query]:
        described["parameters"] = parameters
    if operation.body is not None:
        content = {"application/json": {"schema": schemas.of(operation.body)}}
        described["requestBody"] = {"required": True, "content": content}
    answers = {HTTPStatus.OK: _answer(operation, schemas), **_failures(operation, schemas)}
    return {**described, "responses": {str(int(status)): answer for status, answer in answers.items()}}


def _path_parameters(path: str) -> list[Described]:
    names = re.findall(r"\{(\w+)\}", path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _answer(operation: Operation, schemas: _Schemas) -> Described:
    content = {"application/json": {"schema": schemas.of(operation.answer)}}
    if operation.events is not None:
        content["text/event-stream"] = {"schema": _event(operation, schemas)}
    return {"description": "The answer.", "headers": headers(), "content": content}


def _event(operation: Operation, schemas: _Schemas) -> Described:
    """One event of a stream: its name, and its data."""
    schema = schemas.of(operation.events)
    encoded = {"type": "string", "contentMediaType": "application/json", "contentSchema": schema}
    data = {"anyOf": [encoded, {"const": "[DONE]"}]} if operation.ends_with_done else encoded
    return {"type": "object", "properties": {"event": {"type": "string"}, "data": data}, "required": ["data"]}


def _failures(operation: Operation, schemas: _Schemas) -> dict[int, Described]:
    """Those that every route tells alike by reference."""
    own, plain = schemas.of(operation.failure), schemas.of(ErrorAnswer)
    statuses = sorted(EVERYWHERE | operation.refusals)
    failures = {status: {"$ref": f"#/components/responses/Error{status}"} for status in statuses}
    if own != plain:
        failures |= {status: failure(status, own) for status in statuses if status not in PROTOCOL}
        failures[HTTPStatus.BAD_REQUEST] = failure(HTTPStatus.BAD_REQUEST, {"anyOf": [own, plain]})
    if operation.unready is not None:
        unready = {"anyOf": [schemas.of(operation.unready), own]}
        failures[HTTPStatus.SERVICE_UNAVAILABLE] = failure(HTTPStatus.SERVICE_UNAVAILABLE, unready)
    return failures
