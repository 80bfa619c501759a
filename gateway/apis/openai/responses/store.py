"""Store of responses in memory. The least recently used go first when its room is full."""

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

import orjson

from engine import RequestError
from gateway.apis.openai.responses.answer import Response
from gateway.apis.openai.responses.items import Item
from gateway.middleware.errors import Problem, RefusedError


@dataclass(frozen=True, slots=True)
class Stored:
    """A response that has ended."""

    head: bytes
    """The response as JSON, without its output."""
    said: tuple[bytes, ...]
    """The items of its own request, each as JSON."""
    answered: tuple[bytes, ...]
    """The items of its output, each as JSON."""
    previous: str | None
    """The id of the response that it followed."""
    continues: bool
    """Whether another response may follow it."""
    background: bool
    """Whether it ran in the background."""
    holds: list[str] = field(default_factory=list)
    """The ids by which its items can be referred to."""

    @property
    def items(self) -> tuple[bytes, ...]:
        """The items of its request and of its output, each as JSON."""
        return self.said + self.answered

    @property
    def items_size(self) -> int:
        """Bytes of all items."""
        return sum(map(len, self.items))

    @property
    def size(self) -> int:
        """Bytes that count against the store's room."""
        return len(self.head) + self.items_size

    @property
    def response(self) -> bytes:
        """The whole response, as JSON."""
        return orjson.dumps({**orjson.loads(self.head), "output": [orjson.Fragment(item) for item in self.answered]})

    @property
    def inputs(self) -> list[Item]:
        """The items of its own request."""
        return [orjson.loads(item) for item in self.said]


@dataclass(slots=True)
class _Referable:
    """An item that references can name, and the number of stored items that are equal to it."""

    content: bytes
    times: int = 0


class ResponseStore:
    """Keeps responses in memory, for this process only. A response larger than all of the room is not kept.

    Clients may choose the ids of items. An id stands for the item that was stored with it first, until every response
    that has that very item is gone; an item that differs cannot be referred to by the same id.
    """

    def __init__(self, *, most: int, most_bytes: int, most_recalled: int) -> None:
        """Args: `most` responses, and `most_bytes` of them as JSON together with their inputs.

        `most_recalled` are the bytes that one history, or the references of one request, may come to.
        """
        self._most = most
        self._most_bytes = self._room = most_bytes
        self._most_recalled = most_recalled
        self._stored: OrderedDict[str, Stored] = OrderedDict()
        self._items: dict[str, _Referable] = {}

    def put(self, response: Response, inputs: Sequence[Item]) -> None:
        """Keep a response that has ended, and the items of its own request."""
        stored = _stored(response, inputs)
        if stored.size > self._most_bytes:
            return
        self._stored[response["id"]] = stored
        for item, content in zip([*inputs, *response["output"]], stored.items, strict=True):
            referable = self._items.setdefault(item["id"], _Referable(content))
            if referable.content == content:
                referable.times += 1
                stored.holds.append(item["id"])
        self._room -= stored.size
        while self._room < 0 or len(self._stored) > self._most:
            self.remove(next(iter(self._stored)))

    def get(self, response_id: str) -> Stored:
        """Return a response. Raises `RefusedError`, a 404, if it is not stored."""
        if (stored := self._used(response_id)) is None:
            raise not_found(response_id)
        return stored

    def remove(self, response_id: str) -> None:
        """Drop a response and its items. Raises `RefusedError`, a 404, if it is not stored."""
        if (stored := self._stored.pop(response_id, None)) is None:
            raise not_found(response_id)
        self._room += stored.size
        for item_id in stored.holds:
            self._items[item_id].times -= 1
            if not self._items[item_id].times:
                del self._items[item_id]

    def history(self, response_id: str) -> list[Item]:
        """Return every item of a conversation up to a response.

        Raises `RequestError` if any part of it is not stored, or if it is too large.
        """
        parts: list[Stored] = []
        size = 0
        follows: str | None = response_id
        while follows is not None:
            if (stored := self._used(follows)) is None:
                message = f"Previous response with id {follows[:100]!r} not found."
                raise _no_history(message, "previous_response_not_found")
            if not stored.continues:
                raise _no_history("The previous response failed or was cancelled.", "previous_response_not_completed")
            parts.append(stored)
            size += stored.items_size
            self._check(size, "previous_response_id")
            follows = stored.previous
        return [orjson.loads(item) for part in reversed(parts) for item in part.items]

    def items(self, ids: Collection[str]) -> dict[str, Item]:
        """Return the stored items among these ids. Raises `RequestError` if they are too large together."""
        found = {item_id: self._items[item_id].content for item_id in ids if item_id in self._items}
        self._check(sum(map(len, found.values())), "input")
        return {item_id: orjson.loads(content) for item_id, content in found.items()}

    def _check(self, size: int, param: str) -> None:
        if size > self._most_recalled:
            message = f"The stored items that {param} refers to have more than {self._most_recalled} bytes together."
            raise RequestError(message, code="context_length_exceeded", param=param)

    def _used(self, response_id: str) -> Stored | None:
        stored = self._stored.get(response_id)
        if stored is not None:
            self._stored.move_to_end(response_id)
        return stored


def _stored(response: Response, inputs: Sequence[Item]) -> Stored:
    head: Response = {**response, "output": []}
    return Stored(
        head=orjson.dumps(head),
        said=tuple(map(orjson.dumps, inputs)),
        answered=tuple(map(orjson.dumps, response["output"])),
        previous=response["previous_response_id"],
        continues=response["status"] in {"completed", "incomplete"},
        background=response["background"],
    )


def not_found(response_id: str) -> RefusedError:
    """Return the 404 for a response that is not stored."""
    message = f"Response with id {response_id[:100]!r} not found."
    return RefusedError(Problem(status=HTTPStatus.NOT_FOUND, message=message, code="response_not_found"))


def _no_history(message: str, code: str) -> RequestError:
    return RequestError(message, code=code, param="previous_response_id")
