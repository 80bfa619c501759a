"""The threads that read and write prefix files, so that no step waits for a disk."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from engine.core.kv.prefix_file import FileGone, FileRead, FileReport, FileWritten, PrefixFile
from engine.prefix_files.directory import PrefixDirectory
from engine.prefix_files.format import DamagedError, State

logger = logging.getLogger(__name__)

READ_SECONDS = 10.0
"""The longest read. A directory that takes longer, such as an unplugged one, is not used any more."""
SCAN_SECONDS = 5.0
"""The longest wait at the start for the headers of all files. Later ones are found, too."""
MOST_PENDING = 2**30
"""Bytes that wait to be written. Beyond that, prefixes are not written, because the disk is too slow for them."""

Record: TypeAlias = Callable[[FileReport], None]
PendingState: TypeAlias = Future[State]
"""A state that is being read."""
Locked: TypeAlias = Callable[[Callable[[], None]], None]


class PrefixFileService:
    """Writes in one thread and reads in another one. Its methods, except `close`, return at once.

    A directory that fails is reported with one warning, and the service goes on; so the next failure after a success
    is reported again.
    """

    def __init__(self, directory: PrefixDirectory) -> None:
        """Start the threads. `start` begins to use the directory."""
        self._directory = directory
        self._reader = ThreadPoolExecutor(1, "prefix reader")
        self._writer = ThreadPoolExecutor(1, "prefix writer")
        for executor in (self._reader, self._writer):
            executor.submit(int)  # starts its thread: there may be none for it during a step
        self._lock = threading.Lock()
        self._writes: set[Future[None]] = set()
        self._pending = 0
        self._usable = True
        self._warned = False
        self._record: Record = lambda _report: None
        self._locked: Locked = lambda work: work()

    def attach(self, record: Record) -> None:
        """Set the function that receives the reports."""
        self._record = record

    def start(self, locked: Locked) -> None:
        """Find the files. Returns when all are reported, or after `SCAN_SECONDS`.

        Args:
            locked: calls a function under the lock that guards the receiver of the reports.
        """
        self._locked = locked
        wait([self._reader.submit(self._scan)], SCAN_SECONDS)

    def write(self, file: PrefixFile, state: State | None) -> None:
        """Write a file; None could not be saved. Reports `FileWritten` or `FileGone`."""
        size = 0 if state is None else state.nbytes
        with self._lock:
            late = self._pending and self._pending + size > MOST_PENDING
            self._pending += size
        work = (
            partial(self._report, FileGone(file.name)) if state is None or late else partial(self._write, file, state)
        )
        self._submit(work, size)

    def read(self, file: PrefixFile, key: int) -> PendingState:
        """Read a file. Reports `FileRead`, then the result is there, or `FileGone` follows."""
        read = _Read(file, key, self._report)
        timer = threading.Timer(READ_SECONDS, self._give_up, (read,))
        timer.daemon = True
        with suppress(RuntimeError):  # without a thread for it, the read has no limit
            timer.start()
        return self._reader.submit(self._read, read, timer)

    def delete(self, name: str) -> None:
        """Delete a file."""
        self._submit(partial(self._delete, name), 0)

    def flush(self, seconds: float) -> None:
        """Wait until everything is written, but no longer than so many seconds."""
        with self._lock:
            writes = set(self._writes)
        wait(writes, seconds)

    def close(self) -> None:
        """Drop what is not written yet. Repeatable."""
        self._usable = False
        for thread in (self._reader, self._writer):
            thread.shutdown(wait=False, cancel_futures=True)

    def _submit(self, work: Callable[[], None], size: int) -> None:
        future = self._writer.submit(work)
        with self._lock:
            self._writes.add(future)
        future.add_done_callback(partial(self._end, size))

    def _end(self, size: int, future: Future[None]) -> None:
        with self._lock:
            self._pending -= size
            self._writes.discard(future)

    def _scan(self) -> None:
        try:
            for file in self._directory.scan():
                self._report(FileWritten(file))
        except OSError as error:
            self._warn(error)

    def _write(self, file: PrefixFile, state: State) -> None:
        try:
            self._check_usable()
            written, removed = self._directory.write(file, state)
        except (OSError, MemoryError) as error:
            self._warn(error)
            self._report(FileGone(file.name))
            return
        self._warned = False
        self._report(FileWritten(written, tuple(removed)))

    def _read(self, read: "_Read", timer: threading.Timer) -> State:
        began = time.perf_counter()
        try:
            self._check_usable()
            state = self._directory.read(read.file)
        except (OSError, MemoryError, DamagedError) as error:
            if not isinstance(error, FileNotFoundError | DamagedError):
                self._warn(error)
            read.end(found=False, seconds=0.0)
            raise
        finally:
            timer.cancel()
        read.end(found=True, seconds=time.perf_counter() - began)
        return state

    def _check_usable(self) -> None:
        if not self._usable:
            raise OSError("the directory does not answer")

    def _give_up(self, read: "_Read") -> None:
        self._warn(OSError(f"a read took longer than {READ_SECONDS:.0f} seconds, so it is not used any more"))
        self._usable = False  # after the reason is in the log: from now on others fail, too
        read.end(found=False, seconds=READ_SECONDS)

    def _delete(self, name: str) -> None:
        try:
            self._directory.delete(name)
        except OSError as error:
            self._warn(error)

    def _report(self, report: FileReport) -> None:
        self._locked(partial(self._record, report))

    def _warn(self, error: OSError | MemoryError) -> None:
        if not self._warned:
            self._warned = True
            logger.warning("the directory of prefixes fails, and the service goes on without it: %s", error)


class _Read:
    """One read, whose end is reported once: by its thread or by its time limit."""

    def __init__(self, file: PrefixFile, key: int, report: Record) -> None:
        self.file = file
        self._key = key
        self._report = report
        self._ended = threading.Lock()

    def end(self, *, found: bool, seconds: float) -> None:
        """Report the end, unless it was reported."""
        if self._ended.acquire(blocking=False):
            self._report(FileRead(self._key, found, self.file.bytes if found else 0, seconds))
            if not found:
                self._report(FileGone(self.file.name))
