"""Items and responses as encoded JSON. They are encoded once, then kept, joined and sent as bytes."""

from dataclasses import dataclass
from typing import cast

import orjson

from gateway.apis.openai.responses.answer import RequestEcho, Response, ResponseHead
from gateway.apis.openai.responses.items import Item


@dataclass(frozen=True, slots=True)
class EncodedItem:
    """An item as JSON."""

    id: str
    """The item's id."""
    json: bytes
    """The whole item."""

    def fragment(self) -> Item:
        """Return the item as a value for `orjson.dumps` only, which copies its bytes."""
        return cast("Item", orjson.Fragment(self.json))


def encode_item(item: Item) -> EncodedItem:
    """Return an item as JSON."""
    return EncodedItem(item["id"], orjson.dumps(item))


def encode_head(head: ResponseHead) -> bytes:
    """Return the first fields of a response, for `EncodedResponse`."""
    return orjson.dumps(head)


def encode_echo(echo: RequestEcho) -> bytes:
    """Return the last fields of a response, for `EncodedResponse`."""
    return orjson.dumps(echo)


@dataclass(frozen=True, slots=True)
class EncodedResponse:
    """A response as JSON, in parts that are joined without decoding."""

    head: bytes
    """Object with the fields before the output."""
    output: tuple[EncodedItem, ...]
    """Items of the output."""
    echo: bytes
    """Object with the fields after the output."""

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
