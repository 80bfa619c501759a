"""Storage of responses: what a store does, and its errors."""

from collections.abc import Callable, Collection
from http import HTTPStatus
from typing import Protocol

from gateway.apis.openai.conversations.store import TurnEnd
from gateway.apis.openai.responses.encoded import EncodedItem
from gateway.apis.openai.responses.store.stored_response import StoredResponse
from gateway.middleware.errors import Problem, RefusedError


class ResponseStore(Protocol):
    """Responses, each of them visible only to its owner.

    An owner is the digest of a caller's credentials; all callers without credentials are one owner. Responses and items
    are looked up among those of one owner, so that those of others look unknown. The store is limited as `Shares` is. A
    response larger than all of it is not kept. A store that several processes share may fail: its methods then raise
    `RefusedError` (503).
    """

    async def ready(self) -> None:
        """Return if a response could be stored now. Raises `RefusedError` (503) otherwise."""
        ...

    async def put(self, owner: str, stored: StoredResponse, end: TurnEnd | None = None) -> None:
        """Store a response that has ended, and end its turn: both or none of them.

        One that has run in the background was announced. It is not stored if it was removed meanwhile.
        """
        ...

    async def get(self, owner: str, response_id: str) -> StoredResponse:
        """Return a response, also one that was announced. Raises `RefusedError` (404) if its owner has no such id."""
        ...

    async def remove(self, owner: str, response_id: str) -> bool:
        """Remove a response and its items. Return False if its owner has no such id.

        One that runs in the background of another process is cancelled there.
        """
        ...

    async def history(self, owner: str, response_id: str) -> list[EncodedItem]:
        """Return all items of a conversation up to a response.

        Raises `RequestError` if any response of it is not stored, still runs or cannot be continued, or if it is too
        large.
        """
        ...

    async def items(self, owner: str, ids: Collection[str], param: str) -> dict[str, EncodedItem]:
        """Return the owner's items among these ids, to which a parameter of the request refers.

        Raises `RequestError`, which names it, if they are too large together.
        """
        ...

    async def announce(self, owner: str, stored: StoredResponse, cancel: Callable[[], None]) -> None:
        """Show other processes a response that runs in the background of this one.

        If this process dies, the response becomes a failed one.

        Args:
            owner: its owner.
            stored: the response now.
            cancel: cancels it, because another process asks for it. May be called after its end.
        """
        ...

    def forget(self, response_id: str) -> None:
        """Note that a response that was announced runs no more. If its end was not stored, it becomes a failed one."""
        ...

    async def update(self, owner: str, stored: StoredResponse) -> None:
        """Show other processes the new state of a response that was announced."""
        ...

    async def cancel(self, owner: str, response_id: str) -> StoredResponse:
        """Cancel a response that runs in the background of another process, and return it.

        Waits for its end, but not without bounds. Has no effect on one that has ended. Raises `RefusedError` as `get`.
        """
        ...


def not_found(response_id: str) -> RefusedError:
    """Return the 404 error for a response that its owner does not have."""
    message = f"Response with id {response_id[:100]!r} not found."
    return RefusedError(Problem(status=HTTPStatus.NOT_FOUND, message=message, code="response_not_found"))
