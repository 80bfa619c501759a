"""Store of responses in memory, shared fairly among their owners."""

from collections.abc import Collection
from functools import partial
from http import HTTPStatus

from engine import RequestError
from gateway.apis.openai.responses.encoded import EncodedItem
from gateway.apis.openai.responses.store.owned import OwnedResponses
from gateway.apis.openai.responses.store.shares import Shares
from gateway.apis.openai.responses.store.stored_response import StoredResponse
from gateway.middleware.errors import Problem, RefusedError

MAX_RECALLED_ITEMS = 2**13
"""Maximum of items in one history."""


class ResponseStore:
    """Keeps responses in the memory of this process.

    An owner is the digest of a caller's credentials; all callers without credentials are one owner. Responses and items
    are looked up among those of one owner, so that those of others look unknown. The memory is limited by `Shares`. A
    response larger than all of it is not kept.
    """

    def __init__(self, shares: Shares, *, max_recalled_bytes: int) -> None:
        """Create an empty store.

        Args:
            shares: counts the responses as JSON with their inputs, and evicts them.
            max_recalled_bytes: maximum size of one history, or of the items that one request references.
        """
        self._shares = shares
        self._max_recalled_bytes = max_recalled_bytes
        self._owners: dict[str, OwnedResponses] = {}

    def put(self, owner: str, stored: StoredResponse) -> None:
        """Store a response."""
        self._owners.setdefault(owner, OwnedResponses()).put(stored)
        self._shares.put(owner, stored.id, stored.size, partial(self._drop, owner, stored.id))

    def get(self, owner: str, response_id: str) -> StoredResponse:
        """Return a response. Raises `RefusedError` (404) if its owner has no such id."""
        if (stored := self._use(owner, response_id)) is None:
            raise not_found(response_id)
        return stored

    def remove(self, owner: str, response_id: str) -> bool:
        """Remove a response and its items. Return False if its owner has no such id."""
        self._shares.remove(owner, response_id)
        return self._drop(owner, response_id)

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
        self._shares.use(owner, response_id)
        owned = self._owners.get(owner)
        return owned.get(response_id) if owned else None

    def _drop(self, owner: str, response_id: str) -> bool:
        owned = self._owners.get(owner)
        if owned is None or not owned.remove(response_id):
            return False
        if not len(owned):
            del self._owners[owner]
        return True

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
