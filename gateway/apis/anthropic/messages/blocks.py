"""Content blocks of Anthropic's messages, and the messages."""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from gateway.apis.anthropic.signature import is_changed
from gateway.apis.fields.json_types import array_of, wrong_type
from gateway.apis.fields.nested import Nested, read_kind
from gateway.apis.fields.parts import MAX_MESSAGES, MAX_PARTS

_REFUSED = {
    "image": "Could not process image: this server's models take text only",
    "document": "Could not process PDF: documents are not supported, send their text in a text block",
    "search_result": "search results are not supported: send their text in a text block",
    "container_upload": "files are not supported",
    "server_tool_use": "this server runs no tools",
}
"""Unsupported blocks that clients are likely to send, with the reasons.

Those of media begin in Anthropic's words, by which coding clients know that they have to send the conversation without.
"""


class CacheControl(Nested):
    """Has no effect: every prompt is cached, and its prefixes are found without marks."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class Block(Nested):
    """A content block."""

    cache_control: CacheControl | None = None


class TextBlockParam(Block):
    """A text."""

    type: Literal["text"]
    text: str
    citations: list[Any] | None = Field(
        None, description="Has no effect. Answers of Anthropic have it, which become input again."
    )


class ThinkingBlockParam(Block):
    """The model's reasoning in an earlier turn. A signature of this server must be that of the text."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""

    @model_validator(mode="after")
    def _is_unchanged(self) -> "ThinkingBlockParam":
        if is_changed(self.thinking, self.signature):
            raise ValueError("Invalid `signature` in `thinking` block: its text was changed")
        return self


class RedactedThinkingBlockParam(Block):
    """Encrypted reasoning of another server. It is ignored, because no other server can read it."""

    type: Literal["redacted_thinking"]
    data: str


class ToolUseBlockParam(Block):
    """A tool call by the assistant."""

    type: Literal["tool_use"]
    id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    input: dict[str, Any]
    caller: dict[str, Any] | None = Field(None, description="Has no effect.")


def _contents(value: object) -> object:
    """Return content as an array of blocks. Raises `ValueError` for unsupported blocks."""
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if not isinstance(value, list):
        raise wrong_type("should be a string or an array of blocks")
    for at, block in enumerate(value):
        kind = block.get("type") if isinstance(block, dict) else None
        if isinstance(kind, str) and kind in _REFUSED:
            raise ValueError(f"block {at}: {_REFUSED[kind]}")
    return value


Texts: TypeAlias = Annotated[list[TextBlockParam], Field(max_length=MAX_PARTS, fail_fast=True)]
TextContent: TypeAlias = Annotated[Texts, BeforeValidator(_contents, json_schema_input_type=str | Texts)]
"""A text or an array of text blocks."""


class ToolReferenceBlockParam(Block):
    """A tool that a search has found. It is in the prompt already, because `defer_loading` has no effect."""

    type: Literal["tool_reference"]
    tool_name: str

    @property
    def text(self) -> str:
        """Text for the model."""
        return self.tool_name


ResultBlock: TypeAlias = Annotated[TextBlockParam | ToolReferenceBlockParam, Field(discriminator="type")]
ResultBlocks: TypeAlias = Annotated[list[ResultBlock], Field(max_length=MAX_PARTS, fail_fast=True)]


class ToolResultBlockParam(Block):
    """The output of a tool call."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: Annotated[ResultBlocks, BeforeValidator(_contents, json_schema_input_type=str | ResultBlocks)] = Field(
        default_factory=list
    )
    is_error: bool = False


UserBlock: TypeAlias = Annotated[TextBlockParam | ToolResultBlockParam, Field(discriminator="type")]
AssistantBlock: TypeAlias = Annotated[
    TextBlockParam | ThinkingBlockParam | RedactedThinkingBlockParam | ToolUseBlockParam, Field(discriminator="type")
]
UserBlocks: TypeAlias = Annotated[list[UserBlock], Field(max_length=MAX_PARTS, fail_fast=True)]
AssistantBlocks: TypeAlias = Annotated[list[AssistantBlock], Field(max_length=MAX_PARTS, fail_fast=True)]


class UserMessageParam(Nested):
    """A message by the user, with texts and the outputs of tools."""

    role: Literal["user"]
    content: Annotated[UserBlocks, BeforeValidator(_contents, json_schema_input_type=str | UserBlocks)]


class AssistantMessageParam(Nested):
    """A message by the model. If it is the last one, the answer continues it."""

    role: Literal["assistant"]
    content: Annotated[AssistantBlocks, BeforeValidator(_contents, json_schema_input_type=str | AssistantBlocks)]


class SystemMessageParam(Nested):
    """Instructions in the middle of a conversation."""

    role: Literal["system"]
    content: TextContent


AnyMessage: TypeAlias = UserMessageParam | AssistantMessageParam | SystemMessageParam
Messages: TypeAlias = Annotated[list[AnyMessage], Field(min_length=1, max_length=MAX_MESSAGES)]

_KINDS: dict[str, type[AnyMessage]] = {
    "user": UserMessageParam,
    "assistant": AssistantMessageParam,
    "system": SystemMessageParam,
}


def read_messages(value: object) -> tuple[AnyMessage, ...]:
    """Return the messages in a list. Raises `ValueError`, or `RequestError` with the place of the fault."""
    messages = array_of("messages", value, least=1, most=MAX_MESSAGES)
    return tuple(
        read_kind(_KINDS, message, f"messages[{at}]", discriminator="role") for at, message in enumerate(messages)
    )
