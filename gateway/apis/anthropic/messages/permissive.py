"""Anthropic's bodies as llama-server takes them: without a model or a limit, or with no message, too."""

from dataclasses import replace
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field

from gateway.apis.anthropic.messages.blocks import AnyMessage, read_messages
from gateway.apis.anthropic.messages.request import CountBody, MessagesBody, PromptFields
from gateway.apis.endpoint import AnyEndpoint
from gateway.apis.fields.parts import MAX_MESSAGES
from gateway.apis.fields.sampling import MAX_INT

DEFAULT_LIMIT = 4096
"""llama-server's limit of an answer whose request has none."""


_Messages: TypeAlias = Annotated[list[AnyMessage], Field(max_length=MAX_MESSAGES)]


def _messages(value: object) -> tuple[AnyMessage, ...]:
    return () if value == [] else read_messages(value)


class PermissivePrompt(PromptFields):
    """Fields of the conversation. An empty one begins with the answer."""

    model: str | None = None  # type: ignore[assignment]
    messages: Annotated[tuple[AnyMessage, ...], BeforeValidator(_messages, json_schema_input_type=_Messages)]


class PermissiveCountBody(PermissivePrompt, CountBody):
    """The body of a request to llama-server that counts the tokens of a prompt."""


class PermissiveMessagesBody(PermissivePrompt, MessagesBody):
    """The body of a request to llama-server for a message."""

    max_tokens: int = Field(DEFAULT_LIMIT, ge=0, le=MAX_INT)


def permissive(endpoint: AnyEndpoint) -> AnyEndpoint:
    """Return an endpoint of Anthropic's API with the body that llama-server takes."""
    return replace(endpoint, body=PermissiveCountBody if endpoint.body is CountBody else PermissiveMessagesBody)
