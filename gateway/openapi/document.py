"""The OpenAPI document, generated from the endpoints of the APIs and their types."""

import re
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from gateway import __version__
from gateway.apis.answers.shapes import ErrorAnswer
from gateway.apis.endpoint import EVENTS, AnyEndpoint, Api, Described, has_body
from gateway.apis.fields.base import UNKNOWN
from gateway.apis.fields.read import MAX_FIELDS
from gateway.openapi.statuses import DESCRIPTIONS, EVERYWHERE, HEADERS, PROTOCOL, failure, headers

VERSION = "3.1.1"

DESCRIPTION = """\
An OpenAI-compatible server on llama.cpp.

- Request bodies are read as JSON; the content type is ignored. A field with the value `null` counts as not given. \
Status 400 is also the answer to fields that contradict each other, and to fields that the model does not support.
- Unknown fields are accepted and listed in the header `x-llama-gateway-ignored`. With the server's setting \
`strict-fields` they are refused.
- Other paths are answered with status 404, other methods with 405, both with the same error object. Paths with GET \
also support HEAD.
- A client that closes its connection cancels its request.
- The schema of a stream describes one event, or one line of JSON. Comment lines may occur between events. A failure \
before the first event is answered with an error status; a later failure is the last event of the stream."""

SECURITY: Described = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}
"""Headers with an API key. Whether one is needed depends on the server's settings."""


class _Untitled(GenerateJsonSchema):
    """JSON schema generator without field titles, because they only repeat the names."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - pydantic passes it
        return False


def describe(apis: Sequence[Api], *, strict: bool = False) -> Described:
    """Return the OpenAPI document of all endpoints.

    Args:
        apis: the APIs with the endpoints.
        strict: True if unknown fields are refused.
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
        "security": [{}, *({name: []} for name in SECURITY)],
        "paths": paths,
        "components": {
            "securitySchemes": SECURITY,
            "schemas": schemas.definitions,
            "headers": dict(HEADERS),
            "responses": {
                f"Error{status}": failure(status, schemas.schema_for(ErrorAnswer)) for status in DESCRIPTIONS
            },
        },
    }


class _Schemas:
    """JSON schemas of all types that the endpoints use."""

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
        """Schemas of the named types, by name."""
        self._found = {kind: schema for (kind, _), schema in found.items()}
        self._of_clients = [api.error for api in apis if api.client_header]
        for body in {endpoint.body for endpoint in endpoints if has_body(endpoint)}:
            if "properties" in (definition := self._definition(body)):
                definition["maxProperties"] = MAX_FIELDS
        if strict:
            self._refuse_unknown_fields()

    def schema_for(self, kind: object) -> Described:
        """Return the schema of a type; a reference if the type has a name."""
        return self._found[kind]

    def error_of(self, endpoint: AnyEndpoint, api: Api) -> Described:
        """Return the schema of an endpoint's errors, in the shapes of all APIs whose clients use it."""
        kinds = dict.fromkeys([api.error, *(self._of_clients if endpoint.shared else ())])
        schemas = [self.schema_for(kind) for kind in kinds]
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}

    def _definition(self, kind: object) -> Described:
        definition: Described = self.definitions[self.schema_for(kind)["$ref"].rpartition("/")[2]]
        return definition

    def _refuse_unknown_fields(self) -> None:
        for definition in self.definitions.values():
            if definition.pop(UNKNOWN, False):
                definition["not"] = {}
            elif "properties" in definition and definition.get("additionalProperties") is True:
                definition["additionalProperties"] = False


def plain_path(path: str) -> str:
    """Return a path without the types of Starlette's path parameters."""
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
        content = {"application/json": {"schema": schemas.schema_for(endpoint.body)}}
        described["requestBody"] = {"required": not endpoint.optional_body, "content": content}
    answers = {endpoint.status: _answer(endpoint, schemas), **_failures(endpoint, api, schemas)}
    return {**described, "responses": {str(int(status)): answer for status, answer in answers.items()}}


def _path_parameters(path: str) -> list[Described]:
    names = re.findall(r"\{(\w+)\}", path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _answer(endpoint: AnyEndpoint, schemas: _Schemas) -> Described:
    if endpoint.status is HTTPStatus.NO_CONTENT:
        return {"description": "Done.", "headers": headers()}
    content = {media: {"schema": schemas.schema_for(endpoint.answer)} for media in endpoint.media}
    if endpoint.events is not None:
        content[endpoint.stream_media] = {"schema": _event(endpoint, schemas)}
    return {"description": "The answer.", "headers": headers(), "content": content}


def _event(endpoint: AnyEndpoint, schemas: _Schemas) -> Described:
    """Return the schema of one stream event, its name and its data, or of one line."""
    schema = schemas.schema_for(endpoint.events)
    if endpoint.stream_media != EVENTS:
        return schema
    encoded = {"type": "string", "contentMediaType": "application/json", "contentSchema": schema}
    data = {"anyOf": [encoded, {"const": "[DONE]"}]} if endpoint.ends_with_done else encoded
    return {"type": "object", "properties": {"event": {"type": "string"}, "data": data}, "required": ["data"]}


def _failures(endpoint: AnyEndpoint, api: Api, schemas: _Schemas) -> dict[int, Described]:
    """Return the error responses by status: references for shared ones, inline for those of the API's own shape."""
    own, plain = schemas.error_of(endpoint, api), schemas.schema_for(ErrorAnswer)
    statuses = sorted(EVERYWHERE | endpoint.refusals)
    failures = {status: {"$ref": f"#/components/responses/Error{status}"} for status in statuses}
    if own != plain:
        failures |= {status: failure(status, own) for status in statuses if status not in PROTOCOL}
        for status in endpoint.refusals & PROTOCOL:
            failures[status] = failure(status, {"anyOf": [own, plain]})
        failures[HTTPStatus.BAD_REQUEST] = failure(HTTPStatus.BAD_REQUEST, {"anyOf": [own, plain]})
    if endpoint.unready is not None:
        unready = {"anyOf": [schemas.schema_for(endpoint.unready), own]}
        failures[HTTPStatus.SERVICE_UNAVAILABLE] = failure(HTTPStatus.SERVICE_UNAVAILABLE, unready)
    return failures
