"""The items of a response's input, checked, and in the one form in which they are stored and told."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias
from uuid import uuid4

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from gateway.apis.fields.base import given
from gateway.apis.fields.nested import Nested, read_kind, refusal
from gateway.apis.fields.parts import TextPart, as_parts

Item: TypeAlias = dict[str, Any]
"""A message, reasoning, a call or a call's output, as OpenAI describes it; always with `id`, `type` and `status`."""

MOST_ITEMS = 2**14
"""In one request."""

_REFERENCE = "item_reference"


def new_id(prefix: str) -> str:
    """A fresh id such as `msg_…`."""
    return f"{prefix}_{uuid4().hex}"


def output_text(text: str, logprobs: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """A part of an assistant's message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": list(logprobs)}


class Part(TextPart):
    """Text that somebody gave, that the model wrote, or that it said instead of an answer."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                given("text", type={"enum": ["input_text", "output_text"]}),
                given("refusal", type={"const": "refusal"}),
            ]
        }
    )

    type: Literal["input_text", "output_text", "refusal"]

    def told(self, *, own: bool) -> dict[str, Any]:
        """Its stored form; `own` are the model's words."""
        if self.type == "refusal":
            return {"type": "refusal", "refusal": self.refusal}
        text = self.text or ""
        return output_text(text) if own else {"type": "input_text", "text": text}


class ReasoningText(Nested):
    """Text of the model's thinking."""

    type: Literal["reasoning_text"]
    text: str


class SummaryText(Nested):
    """What the thinking came to, in short."""

    type: Literal["summary_text"]
    text: str


Id: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]
Content: TypeAlias = Annotated[
    list[Part], BeforeValidator(as_parts("input_text"), json_schema_input_type=str | list[Part])
]


class MessageItem(Nested):
    """What somebody said."""

    type: Literal["message"] = "message"
    id: Id = Field(default_factory=lambda: new_id("msg"))
    status: Literal["in_progress", "completed", "incomplete"] = "completed"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content

    def item(self) -> Item:
        """Its stored form: the model's own words as output, all others' as input."""
        own = self.role == "assistant"
        return {**self.model_dump(), "content": [part.told(own=own) for part in self.content]}


class ReasoningItem(Nested):
    """What the model thought."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [given(**{name: {"type": "array", "minItems": 1}}) for name in ("content", "summary")]
        }
    )

    type: Literal["reasoning"]
    id: Id = Field(default_factory=lambda: new_id("rs"))
    status: Literal["in_progress", "completed", "incomplete"] = "completed"
    summary: list[SummaryText] = Field(default_factory=list)
    content: list[ReasoningText] = Field(default_factory=list)

    @model_validator(mode="after")
    def _readable(self) -> "ReasoningItem":
        if not self.content and not self.summary:
            raise ValueError("should have content or a summary; encrypted reasoning cannot be read here")
        return self

    def item(self) -> Item:
        """Its stored form."""
        return self.model_dump()


class CallItem(Nested):
    """A call that the model made; the arguments are JSON text, as it wrote them."""

    type: Literal["function_call"]
    id: Id = Field(default_factory=lambda: new_id("fc"))
    status: Literal["in_progress", "completed", "incomplete"] = "completed"
    call_id: Id
    name: Id
    arguments: str

    def item(self) -> Item:
        """Its stored form."""
        return self.model_dump()


class CallOutputItem(Nested):
    """What a call gave."""

    type: Literal["function_call_output"]
    id: Id = Field(default_factory=lambda: new_id("fco"))
    status: Literal["in_progress", "completed", "incomplete"] = "completed"
    call_id: Id
    output: Content

    def item(self) -> Item:
        """Its stored form."""
        return {**self.model_dump(), "output": [part.told(own=False) for part in self.output]}


class Reference(Nested):
    """Stands for a stored item."""

    type: Literal["item_reference"] = "item_reference"
    id: Id


InputItem: TypeAlias = MessageItem | ReasoningItem | CallItem | CallOutputItem | Reference
InputForms: TypeAlias = str | Annotated[list[InputItem], Field(min_length=1, max_length=MOST_ITEMS)]

_KINDS: dict[str, type[InputItem]] = {
    "message": MessageItem,
    "reasoning": ReasoningItem,
    "function_call": CallItem,
    "function_call_output": CallOutputItem,
    _REFERENCE: Reference,
}


def read_input(value: object) -> tuple[InputItem, ...]:
    """The items of an `input`, a string or an array.

    Raises `ValueError`, or `RequestError` that names the place in it that is wrong.
    """
    if isinstance(value, str):
        return (MessageItem.model_validate({"role": "user", "content": value}),)
    if not isinstance(value, list):
        raise ValueError("should be a string or an array of items")  # noqa: TRY004 (pydantic reports ValueError only)
    if not 0 < len(value) <= MOST_ITEMS:
        raise ValueError(f"should have 1 to {MOST_ITEMS} items")
    return tuple(_read_item(item, f"input[{at}]") for at, item in enumerate(value))


def _read_item(value: object, place: str) -> InputItem:
    if isinstance(value, dict) and value.get("type") is None:
        value = {**value, "type": "message" if "role" in value else _REFERENCE}
    return read_kind(_KINDS, value, place)


def resolve(items: Sequence[InputItem], find: Callable[[Collection[str]], Mapping[str, Item]]) -> list[Item]:
    """The items in their stored form, each reference replaced by what it stands for.

    Args: `find` gives the stored items among some ids. Raises `RequestError` where one is not stored or is referred to
    twice, which would let a small body stand for a large input; and what `find` raises.
    """
    found = find(_referred(items))
    return [_resolved(item, found, f"input[{at}].id") for at, item in enumerate(items)]


def _referred(items: Sequence[InputItem]) -> set[str]:
    ids: set[str] = set()
    for at, item in enumerate(items):
        if isinstance(item, Reference):
            if item.id in ids:
                raise refusal(f"input[{at}].id", f"refers to the item {item.id[:100]!r} a second time")
            ids.add(item.id)
    return ids


def _resolved(item: InputItem, found: Mapping[str, Item], place: str) -> Item:
    if not isinstance(item, Reference):
        return item.item()
    if item.id not in found:
        raise refusal(place, f"no stored item has the id {item.id[:100]!r}")
    return found[item.id]
