"""The connection, as its protocol and its requests see it."""

from typing import Protocol

Address = tuple[str, int]


class Wire(Protocol):
    """Interface of the connection that the protocol and its requests use."""

    reason: str
    """Reason for the end of the connection; empty while it is open."""
    client: Address
    """Address of the client."""
    server: Address | None
    """Address of the server; unset if it is unknown."""
    secure: bool
    """True if the connection is encrypted. Its requests then have the scheme `https`."""

    async def send(self, data: bytes) -> None:
        """Send bytes. Returns normally even if the client is gone."""

    @property
    def has_taken_all(self) -> bool:
        """True if the connection is open, and the kernel has all bytes that were sent."""

    def offer(self, data: bytes) -> None:
        """Send bytes without a wait. What the kernel does not take at once follows."""

    def set_idle(self, idle: bool) -> None:
        """Mark the connection as busy when a request begins, and as idle when its response is complete."""

    def finish(self, reason: str) -> None:
        """End the connection after the last byte. The reason is empty after a complete response."""

    def abort(self, reason: str) -> None:
        """Close with a reset, which does not look like a clean end."""

    def has_hung_up(self) -> bool:
        """Return True if the client has hung up behind unread bytes. The connection is closed then."""
