"""Validation of a request's input items, and their conversion to the stored format."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from gateway.apis.fields.base import given
from gateway.apis.fields.json_types import wrong_type
from gateway.apis.fields.nested import Nested, read_kind, refusal
from gateway.apis.fields.parts import ADDED_BY_CLIENTS, MAX_PARTS, TextPart, as_parts
from gateway.apis.openai.responses.items import (
    ENCODED_REASONING,
    ItemStatus,
    MessagePart,
    MessagePhase,
    OutputCall,
    OutputCustomCall,
    StoredCallOutput,
    StoredMessage,
    StoredReasoning,
    decode_reasoning,
    in_namespace,
    new_id,
    output_text,
)

MAX_ITEMS = 2**13
"""Maximum of items in one request, as of messages in a chat."""

_REFERENCE = "item_reference"

IN_ANSWERS = "Has no effect. Answers have it, and become input again."
IN_CALLS = "Has no effect. The call with the same `call_id` has it."


class Part(TextPart):
    """A text by the client or the model, or a refusal by the model."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                given("text", type={"enum": ["input_text", "output_text"]}),
                given("refusal", type={"const": "refusal"}),
            ]
        }
    )

    type: Literal["input_text", "output_text", "refusal"]
    annotations: list[Any] = Field(default_factory=list, description=IN_ANSWERS)
    logprobs: list[Any] = Field(default_factory=list, description=IN_ANSWERS)
    parsed: Any = Field(None, description=ADDED_BY_CLIENTS)

    def to_json(self, *, own: bool) -> MessagePart:
        """Return the stored format. `own` marks text by the model."""
        if self.type == "refusal":
            return {"type": "refusal", "refusal": self.words}
        return output_text(self.words) if own else {"type": "input_text", "text": self.words}


class ReasoningText(Nested):
    """A text of the model's reasoning."""

    type: Literal["reasoning_text"]
    text: str


class SummaryText(Nested):
    """A summary of the model's reasoning."""

    type: Literal["summary_text"]
    text: str


Id: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]
Parts: TypeAlias = Annotated[list[Part], Field(max_length=MAX_PARTS, fail_fast=True)]
Content: TypeAlias = Annotated[Parts, BeforeValidator(as_parts("input_text"), json_schema_input_type=str | Parts)]


class MessageItem(Nested):
    """A message with any role."""

    type: Literal["message"] = "message"
    id: Id = Field(default_factory=lambda: new_id("msg"))
    status: ItemStatus = "completed"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content
    phase: MessagePhase | None = Field(None, description="Is stored. It does not change the prompt.")

    def to_json(self) -> StoredMessage:
        """Return the stored format. Text by the model becomes output text, other text becomes input text."""
        own = self.role == "assistant"
        content = [part.to_json(own=own) for part in self.content]
        item: StoredMessage = {
            "id": self.id,
            "type": self.type,
            "role": self.role,
            "status": self.status,
            "content": content,
        }
        return item if self.phase is None else {**item, "phase": self.phase}


class ReasoningItem(Nested):
    """Reasoning by the model, as text or encoded. Without both it stands for the stored item with its id, if any."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                *(given(**{name: {"type": "array", "minItems": 1}}) for name in ("content", "summary")),
                {"properties": {"encrypted_content": {"pattern": ENCODED_REASONING}}},
            ]
        }
    )

    type: Literal["reasoning"]
    id: Id = Field(default_factory=lambda: new_id("rs"))
    status: ItemStatus = "completed"
    summary: list[SummaryText] = Field(default_factory=list, max_length=MAX_PARTS, fail_fast=True)
    content: list[ReasoningText] = Field(default_factory=list, max_length=MAX_PARTS, fail_fast=True)
    encrypted_content: str | None = Field(None, description="Replaces missing content, if it is from this server.")

    @model_validator(mode="after")
    def _is_readable(self) -> "ReasoningItem":
        if self.content or self.encrypted_content is None:
            return self
        text = decode_reasoning(self.encrypted_content)
        if text is not None:
            self.content = [ReasoningText.model_construct(type="reasoning_text", text=text)]
        elif not self.summary:
            raise ValueError("should have content or a summary; encrypted reasoning of other servers cannot be read")
        return self

    @property
    def has_text(self) -> bool:
        """True if it has content or a summary."""
        return bool(self.content or self.summary)

    def to_json(self) -> StoredReasoning:
        """Return the stored format."""
        item: StoredReasoning = {
            "id": self.id,
            "type": self.type,
            "status": self.status,
            "summary": [{"type": "summary_text", "text": part.text} for part in self.summary],
            "content": [{"type": "reasoning_text", "text": part.text} for part in self.content],
        }
        return item if self.encrypted_content is None else {**item, "encrypted_content": self.encrypted_content}


class CallItem(Nested):
    """A function call by the model. Its arguments are JSON text, unchanged from the model's output."""

    type: Literal["function_call"]
    id: Id = Field(default_factory=lambda: new_id("fc"))
    status: ItemStatus = "completed"
    call_id: Id
    name: Id
    namespace: Id | None = None
    arguments: str
    parsed_arguments: Any = Field(None, description=ADDED_BY_CLIENTS)

    def to_json(self) -> OutputCall:
        """Return the stored format."""
        item: OutputCall = {
            "id": self.id,
            "type": self.type,
            "status": self.status,
            "call_id": self.call_id,
            "name": self.name,
            "arguments": self.arguments,
        }
        return in_namespace(item, self.namespace)


class CallOutputItem(Nested):
    """The output of a function call, or of a call of a custom tool."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    id: Id = Field(default_factory=lambda: new_id("fco"))
    status: ItemStatus = "completed"
    call_id: Id
    name: Id | None = Field(None, description=IN_CALLS)
    namespace: Id | None = Field(None, description=IN_CALLS)
    output: Content

    def to_json(self) -> StoredCallOutput:
        """Return the stored format."""
        output = [part.to_json(own=False) for part in self.output]
        return {"id": self.id, "type": self.type, "status": self.status, "call_id": self.call_id, "output": output}


class CustomCallItem(Nested):
    """A call of a custom tool by the model."""

    type: Literal["custom_tool_call"]
    id: Id = Field(default_factory=lambda: new_id("ctc"))
    status: ItemStatus = "completed"
    call_id: Id
    name: Id
    namespace: Id | None = None
    input: str

    def to_json(self) -> OutputCustomCall:
        """Return the stored format."""
        item: OutputCustomCall = {
            "id": self.id,
            "type": self.type,
            "status": self.status,
            "call_id": self.call_id,
            "name": self.name,
            "input": self.input,
        }
        return in_namespace(item, self.namespace)


class Reference(Nested):
    """A reference to a stored item."""

    type: Literal["item_reference"] = "item_reference"
    id: Id


InputItem: TypeAlias = MessageItem | ReasoningItem | CallItem | CustomCallItem | CallOutputItem | Reference
InputForms: TypeAlias = str | Annotated[list[InputItem], Field(max_length=MAX_ITEMS)]

EMPTY_INPUT = {
    "type": ["array", "null"],
    "items": {
        "required": ["type"],
        "properties": {
            "type": {"const": "reasoning"},
            "content": {"enum": [None, []]},
            "summary": {"enum": [None, []]},
            "encrypted_content": {"type": "null"},
        },
    },
}
"""JSON schema of an input that only an earlier response or a conversation makes valid. See `has_text`."""

_KINDS: dict[str, type[InputItem]] = {
    "message": MessageItem,
    "reasoning": ReasoningItem,
    "function_call": CallItem,
    "function_call_output": CallOutputItem,
    "custom_tool_call": CustomCallItem,
    "custom_tool_call_output": CallOutputItem,
    _REFERENCE: Reference,
}

_IMAGES = ("image_generation_call", "computer_call", "computer_call_output", "input_image")
"""Types of items with images, which OpenAI's tools make."""


def read_input(value: object) -> tuple[InputItem, ...]:
    """Return the items of an `input`, a string or an array.

    Raises `ValueError`, or `RequestError` with the place of the fault.
    """
    if isinstance(value, str):
        return (MessageItem.model_validate({"role": "user", "content": value}),)
    if not isinstance(value, list):
        raise wrong_type("should be a string or an array of items")
    if len(value) > MAX_ITEMS:
        raise ValueError(f"should have at most {MAX_ITEMS} items")
    return read_items(value, "input")


def has_text(items: Iterable[InputItem]) -> bool:
    """Return True if any of these items is more than reasoning without a text."""
    return any(not isinstance(item, ReasoningItem) or item.has_text for item in items)


def read_items(values: Sequence[object], place: str) -> tuple[InputItem, ...]:
    """Return the items of an array in a field named `place`. Raises the errors of `read_input`."""
    if sum(map(_parts, values)) > MAX_PARTS:
        raise ValueError(f"should have at most {MAX_PARTS} parts in total")
    return tuple(_read_item(item, f"{place}[{at}]") for at, item in enumerate(values))


def _parts(item: object) -> int:
    """Return the number of parts in an item that is not validated yet."""
    lists = (item.get(name) for name in ("content", "output", "summary")) if isinstance(item, dict) else ()
    return sum(len(parts) for parts in lists if isinstance(parts, list))


def _read_item(value: object, place: str) -> InputItem:
    if isinstance(value, dict) and value.get("type") is None:
        kind = "message" if value.keys() & {"role", "content"} else _REFERENCE if "id" in value else None
        value = {**value, "type": kind}
    if isinstance(value, dict) and any(value.get("type") == kind for kind in _IMAGES):
        raise refusal(place, "this server's models take text only, no images")
    return read_kind(_KINDS, value, place)
