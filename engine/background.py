"""A thread that does one piece of work at a time for another one."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Self

Work = Callable[[], None]


class Background:
    """Does one piece of work at a time in a thread of its own. All methods are for one other thread.

    `concurrent.futures` does the same, and takes 80 µs more for each piece.
    """

    def __init__(self, name: str) -> None:
        """Create the thread, which runs inside the context."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._begun: SimpleQueue[Work | None] = SimpleQueue()
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        self._busy = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._begun.put(None)
        self._thread.join()

    def begin(self, work: Work) -> None:
        """Begin a piece of work. `wait` must come before the next one."""
        self._busy = True
        self._begun.put(work)

    def wait(self) -> None:
        """Wait for the end of the work that has begun, if there is some.

        Raises:
            BaseException: The work raised it.
        """
        if self._busy:
            self._busy = False
            if error := self._done.get():
                raise error

    def _run(self) -> None:
        while work := self._begun.get():
            error = _try(work)
            del work  # it has a plan and its sequences, and the wait for the next one may be long
            self._done.put(error)


def _try(work: Work) -> BaseException | None:
    """Do a piece of work. Return the error that it raised."""
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - raised by `wait`
        return error
    return None
