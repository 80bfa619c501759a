"""Waking whoever waits."""

import anyio


class Notifier:
    """Wakes every task that waits at the moment. Costs next to nothing while nobody does.

    It remembers nothing: a task looks at what it waits for, and only then waits, in a loop. No `await` lies between
    the look and the wait, so no news is missed.
    """

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def notify(self) -> None:
        """Wake those who wait. Never waits, never raises."""
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        """Wait for the next `notify`."""
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()
