"""The OpenAPI document, made from the APIs' endpoints and the types that they name."""

import re
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from gateway import __version__
from gateway.apis.answers.shapes import ErrorAnswer
from gateway.apis.endpoint import AnyEndpoint, Api, Described, has_body
from gateway.apis.fields.read import BodyReader
from gateway.openapi.statuses import EVERYWHERE, HEADERS, PROTOCOL, REASONS, failure, headers

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


def describe(apis: Sequence[Api], *, strict: bool = False) -> Described:
    """Return the document.

    Args:
        apis: their endpoints are described.
        strict: whether unknown fields are refused.
    """
    schemas = _Schemas(apis, strict=strict)
    paths: dict[str, Described] = {}
    for api in apis:
        for endpoint in api.endpoints:
            methods = paths.setdefault(plain_path(endpoint.path), {})
            methods[endpoint.method.lower()] = _described(endpoint, api, schemas)
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

    def __init__(self, apis: Sequence[Api], *, strict: bool) -> None:
        endpoints = [endpoint for api in apis for endpoint in api.endpoints]
        kinds = dict.fromkeys([ErrorAnswer, *(api.error for api in apis)])
        kinds |= dict.fromkeys(kind for endpoint in endpoints for kind in _kinds(endpoint))
        found, shared = TypeAdapter.json_schemas(
            [(kind, "validation", TypeAdapter(kind)) for kind in kinds],
            ref_template="#/components/schemas/{model}",
            schema_generator=_Untitled,
        )
        self.definitions = shared["$defs"]
        self._found = {kind: schema for (kind, _), schema in found.items()}
        for body in {endpoint.body for endpoint in endpoints if has_body(endpoint)}:
            self._definition(body)["maxProperties"] = BodyReader.max_fields
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


def plain_path(path: str) -> str:
    """Return a path without the types that Starlette's parameters have."""
    return re.sub(r":\w+\}", "}", path)


def _kinds(endpoint: AnyEndpoint) -> Iterator[Any]:
    if has_body(endpoint):
        yield endpoint.body
    yield endpoint.answer
    yield from (kind for kind in (endpoint.events, endpoint.unready) if kind is not None)


def _described(endpoint: AnyEndpoint, api: Api, schemas: _Schemas) -> Described:
    described: Described = {"operationId": endpoint.id, "summary": endpoint.summary}
    if parameters := [*_path_parameters(plain_path(endpoint.path)), *endpoint.query]:
        described["parameters"] = parameters
    if has_body(endpoint):
        content = {"application/json": {"schema": schemas.of(endpoint.body)}}
        described["requestBody"] = {"required": True, "content": content}
    answers = {HTTPStatus.OK: _answer(endpoint, schemas), **_failures(endpoint, api, schemas)}
    return {**described, "responses": {str(int(status)): answer for status, answer in answers.items()}}


def _path_parameters(path: str) -> list[Described]:
    names = re.findall(r"\{(\w+)\}", path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _answer(endpoint: AnyEndpoint, schemas: _Schemas) -> Described:
    content = {"application/json": {"schema": schemas.of(endpoint.answer)}}
    if endpoint.events is not None:
        content["text/event-stream"] = {"schema": _event(endpoint, schemas)}
    return {"description": "The answer.", "headers": headers(), "content": content}


def _event(endpoint: AnyEndpoint, schemas: _Schemas) -> Described:
    """One event of a stream: its name, and its data."""
    schema = schemas.of(endpoint.events)
    encoded = {"type": "string", "contentMediaType": "application/json", "contentSchema": schema}
    data = {"anyOf": [encoded, {"const": "[DONE]"}]} if endpoint.ends_with_done else encoded
    return {"type": "object", "properties": {"event": {"type": "string"}, "data": data}, "required": ["data"]}


def _failures(endpoint: AnyEndpoint, api: Api, schemas: _Schemas) -> dict[int, Described]:
    """Those that every route tells alike by reference."""
    own, plain = schemas.of(api.error), schemas.of(ErrorAnswer)
    statuses = sorted(EVERYWHERE | endpoint.refusals)
    failures = {status: {"$ref": f"#/components/responses/Error{status}"} for status in statuses}
    if own != plain:
        failures |= {status: failure(status, own) for status in statuses if status not in PROTOCOL}
        failures[HTTPStatus.BAD_REQUEST] = failure(HTTPStatus.BAD_REQUEST, {"anyOf": [own, plain]})
    if endpoint.unready is not None:
        unready = {"anyOf": [schemas.of(endpoint.unready), own]}
        failures[HTTPStatus.SERVICE_UNAVAILABLE] = failure(HTTPStatus.SERVICE_UNAVAILABLE, unready)
    return failures
