"""Bounds of the stored items that a request recalls."""

from engine import RequestError

MAX_RECALLED_ITEMS = 2**13
"""Maximum of items in one history."""


class Recalled:
    """Responses of one history, which are visited from the last to the first."""

    def __init__(self, response_id: str, max_bytes: int) -> None:
        """Begin with the last response.

        Args:
            response_id: its id.
            max_bytes: maximum size of all items together.
        """
        self.follows: str | None = response_id
        """Id of the next response to visit; unset after the first one of the conversation."""
        self._max_bytes = max_bytes
        self._size = 0
        self._count = 0

    def add(self, previous_id: str | None, count: int, size: int, *, can_continue: bool) -> None:
        """Visit a response.

        Args:
            previous_id: id of the response before it.
            count: number of its items.
            size: size of its items, in bytes.
            can_continue: True if another response may follow it.

        Raises:
            RequestError: the history ends here, or is too large.
        """
        if not can_continue:
            raise _no_history("The previous response failed or was cancelled.", "previous_response_not_completed")
        self._size += size
        self._count += count
        if self._count > MAX_RECALLED_ITEMS:
            message = f"The stored items that previous_response_id refers to are more than {MAX_RECALLED_ITEMS}."
            raise _no_history(message, "context_length_exceeded")
        check_recalled(self._size, self._max_bytes, "previous_response_id")
        self.follows = previous_id

    def missing(self, *, running: bool) -> RequestError:
        """Return the error for a response to visit that is not stored, perhaps because it still runs."""
        if running:
            return _no_history("The previous response has not ended yet.", "previous_response_not_completed")
        message = f"Previous response with id {(self.follows or '')[:100]!r} not found."
        return _no_history(message, "previous_response_not_found")


def check_recalled(size: int, max_bytes: int, param: str) -> None:
    """Raise `RequestError` if the items to which a field refers are too large together."""
    if size > max_bytes:
        message = f"The stored items that {param} refers to have more than {max_bytes} bytes together."
        raise RequestError(message, code="context_length_exceeded", param=param)


def _no_history(message: str, code: str) -> RequestError:
    return RequestError(message, code=code, param="previous_response_id")
