"""Items and responses as encoded JSON. They are encoded once, then kept, joined and sent as bytes."""

from dataclasses import dataclass
from typing import cast

import msgspec
import orjson

from gateway.apis.openai.responses.answer import Response
from gateway.apis.openai.responses.items import Item


class ItemOutline(msgspec.Struct, frozen=True):
    """The fields of an item that decide where a conversation can begin."""

    type: str
    """Type of the item."""
    role: str = ""
    """Role of a message."""
    call_id: str = ""
    """Id of a call, also in its output."""


class EncodedItem(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An item as JSON. A struct is decoded faster than a dataclass, and a request may have thousands."""

    id: str
    """The item's id."""
    json: bytes
    """The whole item."""

    def fragment(self) -> Item:
        """Return the item as a value for `orjson.dumps` only, which copies its bytes."""
        return cast("Item", orjson.Fragment(self.json))

    def outline(self) -> ItemOutline:
        """Return the item without its content."""
        return msgspec.json.decode(self.json, type=ItemOutline)


def encode_item(item: Item) -> EncodedItem:
    """Return an item as JSON."""
    return EncodedItem(item["id"], orjson.dumps(item))


@dataclass(frozen=True, slots=True)
class EncodedResponse:
    """A response as JSON, in parts that are joined without decoding."""

    head: bytes
    """Object with the fields before the output: a `ResponseHead`."""
    output: tuple[EncodedItem, ...]
    """Items of the output."""
    echo: bytes
    """Object with the fields after the output: a `RequestEcho`."""

    def to_json(self) -> bytes:
        """Return the whole response."""
        return b'%b,"output":[%b],%b' % (self.head[:-1], b",".join(item.json for item in self.output), self.echo[1:])

    def fragment(self) -> Response:
        """Return the response as a value for `orjson.dumps` only, which copies its bytes."""
        return cast("Response", orjson.Fragment(self.to_json()))

    @property
    def size(self) -> int:
        """Number of bytes of all parts."""
        return len(self.head) + sum(len(item.json) for item in self.output) + len(self.echo)
