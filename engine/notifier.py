"""Wake-up of waiting tasks without lost notifications."""

import anyio


class Notifier:
    """A condition variable for tasks of one event loop. Cheap while no task waits.

    It has no memory: a task checks its condition and then waits, in a loop. There is no `await` between the check and
    the wait, so a notification cannot be lost.
    """

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def notify(self) -> None:
        """Wake all waiting tasks. Never waits, never raises."""
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        """Wait for the next `notify`."""
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()
