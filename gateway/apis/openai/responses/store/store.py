"""Store of responses in memory, shared fairly among their owners."""

from collections import OrderedDict
from collections.abc import Collection
from http import HTTPStatus

from engine import RequestError
from gateway.apis.openai.responses.encoded import EncodedItem
from gateway.apis.openai.responses.store.owned import OwnedResponses
from gateway.apis.openai.responses.store.stored_response import StoredResponse
from gateway.middleware.errors import Problem, RefusedError

MAX_RECALLED_ITEMS = 2**13
"""Maximum of items in one history."""


class ResponseStore:
    """Keeps responses in the memory of this process.

    An owner is the digest of a caller's credentials; all callers without credentials are one owner. Responses and items
    are looked up among those of one owner, so that those of others look unknown. In a full store, the owner that uses
    most of it loses its least recently used responses. So an owner that uses at most its share keeps all. A response
    larger than the whole store is not kept.
    """

    def __init__(self, *, max_responses: int, max_bytes: int, max_recalled_bytes: int) -> None:
        """Create an empty store.

        Args:
            max_responses: maximum number of responses.
            max_bytes: maximum size of all responses as JSON, with their inputs.
            max_recalled_bytes: maximum size of one history, or of the items that one request references.
        """
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._max_recalled_bytes = max_recalled_bytes
        self._owners: OrderedDict[str, OwnedResponses] = OrderedDict()
        self._count = 0
        self._size = 0

    def put(self, owner: str, stored: StoredResponse) -> None:
        """Store a response."""
        if stored.size > self._max_bytes:
            return
        self._owners.setdefault(owner, OwnedResponses()).put(stored)
        self._owners.move_to_end(owner)
        self._count += 1
        self._size += stored.size
        while self._overflows():
            self._shrink_largest()

    def get(self, owner: str, response_id: str) -> StoredResponse:
        """Return a response. Raises `RefusedError` (404) if its owner has no such id."""
        if (stored := self._use(owner, response_id)) is None:
            raise not_found(response_id)
        return stored

    def remove(self, owner: str, response_id: str) -> bool:
        """Remove a response and its items. Return False if its owner has no such id."""
        owned = self._owners.get(owner)
        removed = owned.remove(response_id) if owned else None
        if owned is None or removed is None:
            return False
        self._count -= 1
        self._size -= removed.size
        if not len(owned):
            del self._owners[owner]
        return True

    def history(self, owner: str, response_id: str) -> list[EncodedItem]:
        """Return all items of a conversation up to a response.

        Raises `RequestError` if any response of it is not stored or cannot be continued, or if it is too large.
        """
        parts: list[StoredResponse] = []
        size = count = 0
        follows: str | None = response_id
        while follows is not None:
            if (stored := self._use(owner, follows)) is None:
                message = f"Previous response with id {follows[:100]!r} not found."
                raise _no_history(message, "previous_response_not_found")
            if not stored.can_continue:
                raise _no_history("The previous response failed or was cancelled.", "previous_response_not_completed")
            parts.append(stored)
            size += stored.items_size
            count += len(stored.items)
            if count > MAX_RECALLED_ITEMS:
                message = f"The stored items that previous_response_id refers to are more than {MAX_RECALLED_ITEMS}."
                raise _no_history(message, "context_length_exceeded")
            self._check(size, "previous_response_id")
            follows = stored.previous_id
        return [item for part in reversed(parts) for item in part.items]

    def items(self, owner: str, ids: Collection[str]) -> dict[str, EncodedItem]:
        """Return the owner's items among these ids. Raises `RequestError` if they are too large together."""
        owned = self._owners.get(owner, OwnedResponses())
        found = {item_id: item for item_id in ids if (item := owned.item(item_id)) is not None}
        self._check(sum(len(item.json) for item in found.values()), "input")
        return found

    def _use(self, owner: str, response_id: str) -> StoredResponse | None:
        if (owned := self._owners.get(owner)) is None:
            return None
        self._owners.move_to_end(owner)
        return owned.use(response_id)

    def _overflows(self) -> bool:
        return self._count > self._max_responses or self._size > self._max_bytes

    def _shrink_largest(self) -> None:
        """Evict responses of the owner that uses most, until the store fits or the owner has no more than its share."""
        largest = max(self._owners, key=self._part)
        share = 1 / len(self._owners)
        while self._overflows() and self._part(largest) > share:
            self.remove(largest, self._owners[largest].oldest())

    def _part(self, owner: str) -> float:
        """Return the part of the store that an owner uses."""
        if (owned := self._owners.get(owner)) is None:
            return 0.0
        return max(len(owned) / self._max_responses, owned.size / self._max_bytes)

    def _check(self, size: int, param: str) -> None:
        if size > self._max_recalled_bytes:
            message = (
                f"The stored items that {param} refers to have more than {self._max_recalled_bytes} bytes together."
            )
            raise RequestError(message, code="context_length_exceeded", param=param)


def not_found(response_id: str) -> RefusedError:
    """Return the 404 error for a response that its owner does not have."""
    message = f"Response with id {response_id[:100]!r} not found."
    return RefusedError(Problem(status=HTTPStatus.NOT_FOUND, message=message, code="response_not_found"))


def _no_history(message: str, code: str) -> RequestError:
    return RequestError(message, code=code, param="previous_response_id")
