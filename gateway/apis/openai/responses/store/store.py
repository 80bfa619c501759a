"""Store of responses in memory. A full store evicts the least recently used responses."""

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
class StoredResponse:
    """A response that has ended, as the store keeps it."""

    head: bytes
    """The response as JSON without its output."""
    input_items: tuple[bytes, ...]
    """Items of its own request, each as JSON."""
    output_items: tuple[bytes, ...]
    """Items of its output, each as JSON."""
    previous_id: str | None
    """Id of the previous response in the conversation."""
    can_continue: bool
    """True if another response may follow it."""
    background: bool
    """True if it ran in the background."""
    item_ids: list[str] = field(default_factory=list)
    """Ids under which its items can be referenced."""

    @property
    def items(self) -> tuple[bytes, ...]:
        """Items of its request and of its output, each as JSON."""
        return self.input_items + self.output_items

    @property
    def items_size(self) -> int:
        """Size of all items, in bytes."""
        return sum(map(len, self.items))

    @property
    def size(self) -> int:
        """Size that counts against the store's limit, in bytes."""
        return len(self.head) + self.items_size

    @property
    def response(self) -> bytes:
        """The whole response, as JSON."""
        return orjson.dumps(
            {**orjson.loads(self.head), "output": [orjson.Fragment(item) for item in self.output_items]}
        )

    @property
    def inputs(self) -> list[Item]:
        """Items of its own request."""
        return [orjson.loads(item) for item in self.input_items]


@dataclass(slots=True)
class _SharedItem:
    """An item that requests can reference by its id."""

    content: bytes
    """The item as JSON."""
    uses: int = 0
    """Number of stored items that are equal to it."""


class ResponseStore:
    """Keeps responses in the memory of this process. A response larger than the whole store is not kept.

    Clients may choose the ids of items. An id refers to the first item that was stored with it, until all responses
    with that same item are removed. A different item with the same id cannot be referenced.
    """

    def __init__(self, *, max_responses: int, max_bytes: int, max_recalled_bytes: int) -> None:
        """Create an empty store.

        Args:
            max_responses: maximum number of responses.
            max_bytes: maximum size of all responses as JSON, with their inputs.
            max_recalled_bytes: maximum size of one history, or of the items that one request references.
        """
        self._max_responses = max_responses
        self._max_bytes = self._free_bytes = max_bytes
        self._max_recalled_bytes = max_recalled_bytes
        self._stored: OrderedDict[str, StoredResponse] = OrderedDict()
        self._items: dict[str, _SharedItem] = {}

    def put(self, response: Response, inputs: Sequence[Item]) -> None:
        """Store a response that has ended, with the items of its own request."""
        stored = _stored(response, inputs)
        if stored.size > self._max_bytes:
            return
        self._stored[response["id"]] = stored
        for item, content in zip([*inputs, *response["output"]], stored.items, strict=True):
            shared = self._items.setdefault(item["id"], _SharedItem(content))
            if shared.content == content:
                shared.uses += 1
                stored.item_ids.append(item["id"])
        self._free_bytes -= stored.size
        while self._free_bytes < 0 or len(self._stored) > self._max_responses:
            self.remove(next(iter(self._stored)))

    def get(self, response_id: str) -> StoredResponse:
        """Return a response. Raises `RefusedError` (404) if it is not stored."""
        if (stored := self._used(response_id)) is None:
            raise not_found(response_id)
        return stored

    def remove(self, response_id: str) -> None:
        """Remove a response and its items. Raises `RefusedError` (404) if it is not stored."""
        if (stored := self._stored.pop(response_id, None)) is None:
            raise not_found(response_id)
        self._free_bytes += stored.size
        for item_id in stored.item_ids:
            self._items[item_id].uses -= 1
            if not self._items[item_id].uses:
                del self._items[item_id]

    def history(self, response_id: str) -> list[Item]:
        """Return all items of a conversation up to a response.

        Raises `RequestError` if any response of it is not stored or cannot be continued, or if it is too large.
        """
        parts: list[StoredResponse] = []
        size = 0
        follows: str | None = response_id
        while follows is not None:
            if (stored := self._used(follows)) is None:
                message = f"Previous response with id {follows[:100]!r} not found."
                raise _no_history(message, "previous_response_not_found")
            if not stored.can_continue:
                raise _no_history("The previous response failed or was cancelled.", "previous_response_not_completed")
            parts.append(stored)
            size += stored.items_size
            self._check(size, "previous_response_id")
            follows = stored.previous_id
        return [orjson.loads(item) for part in reversed(parts) for item in part.items]

    def items(self, ids: Collection[str]) -> dict[str, Item]:
        """Return the stored items among these ids. Raises `RequestError` if they are too large together."""
        found = {item_id: self._items[item_id].content for item_id in ids if item_id in self._items}
        self._check(sum(map(len, found.values())), "input")
        return {item_id: orjson.loads(content) for item_id, content in found.items()}

    def _check(self, size: int, param: str) -> None:
        if size > self._max_recalled_bytes:
            message = (
                f"The stored items that {param} refers to have more than {self._max_recalled_bytes} bytes together."
            )
            raise RequestError(message, code="context_length_exceeded", param=param)

    def _used(self, response_id: str) -> StoredResponse | None:
        stored = self._stored.get(response_id)
        if stored is not None:
            self._stored.move_to_end(response_id)
        return stored


def _stored(response: Response, inputs: Sequence[Item]) -> StoredResponse:
    head: Response = {**response, "output": []}
    return StoredResponse(
        head=orjson.dumps(head),
        input_items=tuple(map(orjson.dumps, inputs)),
        output_items=tuple(map(orjson.dumps, response["output"])),
        previous_id=response["previous_response_id"],
        can_continue=response["status"] in {"completed", "incomplete"},
        background=response["background"],
    )


def not_found(response_id: str) -> RefusedError:
    """Return the 404 error for a response that is not stored."""
    message = f"Response with id {response_id[:100]!r} not found."
    return RefusedError(Problem(status=HTTPStatus.NOT_FOUND, message=message, code="response_not_found"))


def _no_history(message: str, code: str) -> RequestError:
    return RequestError(message, code=code, param="previous_response_id")
