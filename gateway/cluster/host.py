"""A context that is open as long as an object lives, for programs that call methods instead of entering contexts."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

OpenT = TypeVar("OpenT")


class Host(Generic[OpenT]):
    """Keeps an asynchronous context open in a task of its own.

    Task groups must be left by the task that entered them. Ray calls the constructor and the destructor of a replica in
    different tasks.
    """

    def __init__(self, context: AbstractAsyncContextManager[OpenT]) -> None:
        self._context = context
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> OpenT:
        """Enter the context, and return what it yields. Raises what it raises, without groups of one exception."""
        opened: asyncio.Future[OpenT] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(opened))
        self._task.add_done_callback(lambda _task: opened.cancel())  # without effect once it is open
        try:
            return await opened
        except asyncio.CancelledError:
            if self._task.done() and (failure := self._task.exception()) is not None:
                raise _alone(failure) from None
            raise

    async def close(self) -> None:
        """Leave the context."""
        self._closing.set()
        if self._task is not None:
            await self._task

    @property
    def ended(self) -> bool:
        """True once the context has ended, because it failed or was closed."""
        return self._task is not None and self._task.done()

    async def _run(self, opened: asyncio.Future[OpenT]) -> None:
        async with self._context as value:
            opened.set_result(value)
            await self._closing.wait()


def _alone(failure: BaseException) -> BaseException:
    """Return the exception in groups of one."""
    while isinstance(failure, BaseExceptionGroup) and len(failure.exceptions) == 1:
        failure = failure.exceptions[0]
    return failure
