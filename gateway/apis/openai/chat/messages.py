"""Messages of OpenAI's chat requests: their fields, and their conversion for templates."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from gateway.apis.fields.base import given
from gateway.apis.fields.json_types import array_of
from gateway.apis.fields.nested import Nested, read_kind, refusal
from gateway.apis.fields.parts import ADDED_BY_CLIENTS, MAX_MESSAGES, MAX_PARTS, TextPart, as_parts
from gateway.chat.custom_inputs import arguments_of
from gateway.chat.template import to_json
from gateway.chat.template_capabilities import TemplateMessage, template_call


class ContentPart(TextPart):
    """One part of a message's content."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [given(kind, type={"const": kind}) for kind in ("text", "refusal")]}
    )

    type: Literal["text", "refusal"]
    annotations: list[Any] = Field(default_factory=list, description=ADDED_BY_CLIENTS)


OutputParts: TypeAlias = Annotated[list[ContentPart], Field(max_length=MAX_PARTS, fail_fast=True)]
ContentParts: TypeAlias = Annotated[OutputParts, Field(min_length=1)]
Content: TypeAlias = Annotated[
    ContentParts, BeforeValidator(as_parts("text"), json_schema_input_type=str | ContentParts)
]
Output: TypeAlias = Annotated[OutputParts, BeforeValidator(as_parts("text"), json_schema_input_type=str | OutputParts)]
"""The output of a tool. It may be empty: tools of MCP servers may return no parts."""


def joined(content: Sequence[ContentPart]) -> str:
    """Return the parts as one text with line breaks between them, as llama-server and vLLM join them."""
    return "\n".join(part.words for part in content)


class _MessageFields(Nested):
    """Fields of every message."""

    name: str | None = None

    def to_template(self, role: str, content: str | None) -> TemplateMessage:
        """Return the message in the template's format."""
        named = {} if self.name is None else {"name": self.name}
        return {"role": role, "content": content, **named}


class InstructionMessage(_MessageFields):
    """Instructions for the model."""

    role: Literal["system", "developer"]
    content: Content


class UserMessage(_MessageFields):
    """A message by the user."""

    role: Literal["user"]
    content: Content


def _as_text(arguments: object) -> object:
    """Return the JSON text of an object, which llama-server takes, too."""
    return to_json(arguments) if isinstance(arguments, dict) else arguments


class CalledFunction(Nested):
    """A function's name and its arguments as JSON text, unchanged from the model's output."""

    name: str = Field(min_length=1)
    arguments: Annotated[str, BeforeValidator(_as_text, json_schema_input_type=str | dict[str, Any])]
    parsed_arguments: Any = Field(None, description=ADDED_BY_CLIENTS)


class ToolCall(Nested):
    """A tool call by the assistant."""

    id: str = Field(min_length=1)
    type: Literal["function"]
    function: CalledFunction
    index: int | None = Field(None, description=ADDED_BY_CLIENTS)


class CalledCustom(Nested):
    """A custom tool's name and its input."""

    name: str = Field(min_length=1)
    input: str


class CustomToolCall(Nested):
    """A call of a custom tool by the assistant."""

    id: str = Field(min_length=1)
    type: Literal["custom"]
    custom: CalledCustom
    index: int | None = Field(None, description=ADDED_BY_CLIENTS)

    @property
    def function(self) -> CalledFunction:
        """The call as the model made it."""
        arguments = arguments_of(self.custom.input)
        return CalledFunction.model_construct(name=self.custom.name, arguments=arguments)


AnyToolCall: TypeAlias = Annotated[ToolCall | CustomToolCall, Field(discriminator="type")]


class AssistantMessage(_MessageFields):
    """A message by the model: text, reasoning and tool calls."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                *map(given, ("content", "refusal", "reasoning_content", "function_call")),
                given(tool_calls={"type": "array", "minItems": 1}),
            ]
        }
    )

    role: Literal["assistant"]
    content: Content | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[AnyToolCall] = Field(default_factory=list, max_length=MAX_PARTS, fail_fast=True)
    function_call: CalledFunction | None = None
    audio: dict[str, Any] | None = Field(None, json_schema_extra={"type": "null"})
    annotations: list[Any] = Field(default_factory=list, description=ADDED_BY_CLIENTS)
    parsed: Any = Field(None, description=ADDED_BY_CLIENTS)

    @field_validator("audio")
    @classmethod
    def _no_audio(cls, _audio: object) -> None:
        raise ValueError("is not supported: this server's models take text only")

    @model_validator(mode="after")
    def _has_content(self) -> "AssistantMessage":
        parts = (self.content, self.refusal, self.reasoning_content, self.function_call)
        if not self.tool_calls and all(part is None for part in parts):
            raise ValueError("should have content, a refusal or tool_calls")
        return self

    def without_calls(self) -> TemplateMessage:
        """Return the message in the template's format, without its calls."""
        message = self.to_template(self.role, self.refusal if self.content is None else joined(self.content))
        if self.reasoning_content is not None:
            message["reasoning_content"] = self.reasoning_content
        return message


class ToolMessage(_MessageFields):
    """The output of a tool call."""

    role: Literal["tool"]
    content: Output
    tool_call_id: str


class FunctionMessage(_MessageFields):
    """The output of a deprecated function call."""

    role: Literal["function"]
    name: str
    content: Content | None = None


RequestMessage: TypeAlias = InstructionMessage | UserMessage | AssistantMessage | ToolMessage | FunctionMessage
RequestMessages: TypeAlias = Annotated[list[RequestMessage], Field(min_length=1, max_length=MAX_MESSAGES)]

_KINDS: dict[str, type[RequestMessage]] = {
    "system": InstructionMessage,
    "developer": InstructionMessage,
    "user": UserMessage,
    "assistant": AssistantMessage,
    "tool": ToolMessage,
    "function": FunctionMessage,
}


def read_messages(value: object) -> tuple[RequestMessage, ...]:
    """Return the messages in a list. Raises `ValueError`, or `RequestError` with the place of the fault."""
    messages = array_of("messages", value, least=1, most=MAX_MESSAGES)
    if sum(map(_parts, messages)) > MAX_PARTS:
        raise ValueError(f"should have at most {MAX_PARTS} parts and calls in total")
    return tuple(
        read_kind(_KINDS, message, f"messages[{at}]", discriminator="role") for at, message in enumerate(messages)
    )


def _parts(message: object) -> int:
    """Return the number of parts and calls in a message that is not validated yet."""
    fields = (message.get("content"), message.get("tool_calls")) if isinstance(message, dict) else ()
    return sum(len(field) for field in fields if isinstance(field, list))


def for_template(messages: Sequence[RequestMessage]) -> tuple[TemplateMessage, ...]:
    """Return the messages in the format of `Conversation`. Deprecated function calls become tool calls.

    Raises `RequestError` for a tool's output without its call.
    """
    return _Translation().messages(messages)


class _Translation:
    """Conversion of the messages in order, with a record of the earlier calls."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # names of the called functions, by call id
        self._ids: dict[str, str] = {}  # id of the latest deprecated call of each function

    def messages(self, messages: Sequence[RequestMessage]) -> tuple[TemplateMessage, ...]:
        return tuple(self._message(message, f"messages[{at}]") for at, message in enumerate(messages))

    def _message(self, message: RequestMessage, place: str) -> TemplateMessage:
        match message:
            case AssistantMessage():
                return self._assistant(message, place)
            case ToolMessage():
                return self._tool(message, place)
            case FunctionMessage():
                return self._function(message, place)
        return message.to_template(message.role, joined(message.content))

    def _assistant(self, message: AssistantMessage, place: str) -> TemplateMessage:
        calls: list[ToolCall | CustomToolCall] = list(message.tool_calls)
        if message.function_call is not None:
            calls.append(ToolCall.model_construct(id=f"call_{place}", type="function", function=message.function_call))
            self._ids[message.function_call.name] = calls[-1].id
        self._names |= {call.id: call.function.name for call in calls}
        converted = message.without_calls()
        if calls:
            written = [template_call(call.id, call.function.name, call.function.arguments) for call in calls]
            converted["tool_calls"] = written
        return converted

    def _tool(self, message: ToolMessage, place: str) -> TemplateMessage:
        if message.tool_call_id not in self._names:
            raise refusal(f"{place}.tool_call_id", "should be the id of a call in an earlier assistant message")
        called = {"name": self._names[message.tool_call_id], "tool_call_id": message.tool_call_id}
        return {**called, **message.to_template(message.role, joined(message.content))}

    def _function(self, message: FunctionMessage, place: str) -> TemplateMessage:
        if message.name not in self._ids:
            raise refusal(f"{place}.name", "should be the name of a function called in an earlier assistant message")
        return {**message.to_template("tool", joined(message.content or ())), "tool_call_id": self._ids[message.name]}
