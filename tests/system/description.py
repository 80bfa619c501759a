"""OpenAI's own description of its interface, as a reference for our answers."""

import gzip
import json
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema_rs import Draft202012Validator, Registry

DOCUMENT = Path(__file__).parents[3] / "shared" / "openai" / "openapi.yaml.gz"
NAME = "urn:openai"


class Description:
    """The document, by the names of its schemas."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.schemas = document["components"]["schemas"]
        in_json = json.loads(json.dumps(document, default=str))  # YAML has dates
        self._registry = Registry([(NAME, in_json)])
        self._validator = cache(self._new_validator)

    def check(self, content: Any, name: str) -> None:
        """Raise `ValidationError` unless `content` matches the schema."""
        self._validator(name).validate(content)

    def _new_validator(self, name: str) -> Draft202012Validator:
        return Draft202012Validator({"$ref": f"{NAME}#/components/schemas/{name}"}, registry=self._registry)


def read_description() -> Description:
    """Return the document, completed by its missing facts about chunks of streams. Takes seconds."""
    with gzip.open(DOCUMENT) as file:
        document = yaml.load(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    schemas = document["components"]["schemas"]
    schemas["CompletionChunk"] = completion_chunk(schemas["CreateCompletionResponse"])
    allow_null_in_chat_chunks(schemas["CreateChatCompletionStreamResponse"]["properties"])
    return Description(document)


def completion_chunk(completion: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a completion's chunks.

    The document has one schema for whole answers and chunks, without two facts of its own text: before the last chunk
    the finish reason is null, and with `include_usage` the usage of all chunks but the last is null.
    """
    chunk = deepcopy(completion)
    chunk["properties"]["choices"]["items"]["properties"]["finish_reason"]["enum"].append(None)
    chunk["properties"]["choices"]["items"]["properties"]["finish_reason"]["type"] = ["string", "null"]
    chunk["properties"]["usage"] = {"anyOf": [chunk["properties"]["usage"], {"type": "null"}]}
    return chunk


def allow_null_in_chat_chunks(chunk: dict[str, Any]) -> None:
    """Replace `nullable`, which JSON Schema does not know, by a null type."""
    choice = chunk["choices"]["items"]["properties"]
    logprobs = choice["logprobs"]["properties"]
    places = [(logprobs, name) for name in logprobs] + [(choice, name) for name in ("finish_reason", "logprobs")]
    for owner, name in [*places, (chunk, "usage")]:
        assert owner[name].pop("nullable")
        owner[name] = {"anyOf": [owner[name], {"type": "null"}]}
