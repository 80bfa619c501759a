"""Input items as JSON, with references to stored items that are replaced by these."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gateway.apis.fields.nested import refusal
from gateway.apis.openai.responses.encoded import EncodedItem, encode_item
from gateway.apis.openai.responses.input import InputItem, ReasoningItem, Reference


@dataclass(frozen=True, slots=True)
class ItemReference:
    """Place of a stored item in an input."""

    id: str
    """Id of the item."""
    required: bool
    """True if the input is refused without the item. Otherwise it is left out."""


EncodedInput: TypeAlias = tuple[EncodedItem | ItemReference, ...]
"""Items of a field as JSON, and references."""


def encode_input(items: Sequence[InputItem], place: str = "input") -> EncodedInput:
    """Return the items of a field as JSON, and references in their places.

    OpenAI's clients that do not read the events of reasoning send its item back without a text, as LangChain does.

    Raises `RequestError` if two references name the same item: they would turn a small body into a large input.
    """
    encoded = tuple(map(_encoded, items))
    referred: set[str] = set()
    for at, item in enumerate(encoded):
        if isinstance(item, ItemReference):
            if item.id in referred:
                raise refusal(f"{place}[{at}].id", f"refers to the item {item.id[:100]!r} a second time")
            referred.add(item.id)
    return encoded


def _encoded(item: InputItem) -> EncodedItem | ItemReference:
    match item:
        case Reference():
            return ItemReference(item.id, required=True)
        case ReasoningItem(has_text=False):
            return ItemReference(item.id, required=False)
        case _:
            return encode_item(item.to_json())


def referenced(inputs: EncodedInput) -> list[str]:
    """Return the ids of the references in the result of `encode_input`."""
    return [item.id for item in inputs if isinstance(item, ItemReference)]


def resolve(inputs: EncodedInput, found: Mapping[str, EncodedItem], place: str = "input") -> list[EncodedItem]:
    """Return the items of `encode_input`, with each reference replaced by its item.

    Args:
        inputs: items and references.
        found: stored items by their ids.
        place: name of the field.

    Raises:
        RequestError: a required item is unknown.
    """
    items: list[EncodedItem] = []
    for at, item in enumerate(inputs):
        if isinstance(item, EncodedItem):
            items.append(item)
        elif item.id in found:
            items.append(found[item.id])
        elif item.required:
            raise refusal(f"{place}[{at}].id", f"no stored item has the id {item.id[:100]!r}")
    return items
