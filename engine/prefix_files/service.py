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
"""The longest read of one file. A directory that takes longer, such as an unplugged one, is not used any more."""
SCAN_SECONDS = 5.0
"""The longest wait at the start for the headers of all files. Later ones are found, too."""
MOST_PENDING = 2**30
"""Bytes that wait to be written. Beyond that, prefixes are not written, because the disk is too slow for them."""

Report: TypeAlias = Callable[[FileReport], None]
PendingState: TypeAlias = Future[State]
"""A state that is being read."""


class PrefixFileService:
    """Writes in one thread, reads in another one, and finds the files of earlier engines in a third one.

    Its methods return at once, except `start` and `flush`, whose waits are bounded.

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
        self._reads: dict[int, PrefixFile] = {}  # whose ends are not reported, by their keys
        self._pending = 0
        self._usable = True
        self._warned = False
        self._report: Report = lambda _report: None

    def start(self, report: Report) -> None:
        """Find the files. Returns when all are reported, or after `SCAN_SECONDS`. Any thread calls `report`."""
        self._report = report
        scan = threading.Thread(target=self._scan, name="prefix scan", daemon=True)
        scan.start()
        scan.join(SCAN_SECONDS)

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
        self._reads[key] = file
        if not self._usable:  # the reader may not answer, and this thread may hold the lock of the reports
            _start(threading.Thread(target=self._end_reads))
        return self._reader.submit(self._read, file, key)

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

    def _read(self, file: PrefixFile, key: int) -> State:
        timer = threading.Timer(READ_SECONDS, self._give_up)
        _start(timer)
        began = time.perf_counter()
        try:
            self._check_usable()
            state = self._directory.read(file)
        except (OSError, MemoryError, DamagedError) as error:
            if not isinstance(error, FileNotFoundError | DamagedError):
                self._warn(error)
            self._end_read(key, found=False)
            raise
        finally:
            timer.cancel()
        self._end_read(key, found=True, seconds=time.perf_counter() - began)
        return state

    def _check_usable(self) -> None:
        if not self._usable:
            raise OSError("the directory does not answer")

    def _give_up(self) -> None:
        """Use the directory no more, and end the read that takes too long, with those that wait for it."""
        self._warn(OSError(f"a read took longer than {READ_SECONDS:.0f} seconds, so it is not used any more"))
        self._usable = False  # after the reason is in the log: from now on others fail, too
        self._end_reads()

    def _end_reads(self) -> None:
        for key in tuple(self._reads):
            self._end_read(key, found=False)

    def _end_read(self, key: int, *, found: bool, seconds: float = 0.0) -> None:
        """Report the end of a read, unless it was reported."""
        if file := self._reads.pop(key, None):
            self._report(FileRead(key, found, file.bytes if found else 0, seconds))
            if not found:
                self._report(FileGone(file.name))

    def _delete(self, name: str) -> None:
        try:
            self._directory.delete(name)
        except OSError as error:
            self._warn(error)

    def _warn(self, error: OSError | MemoryError) -> None:
        if not self._warned:
            self._warned = True
            logger.warning("the directory of prefixes fails, and the service goes on without it: %s", error)


def _start(thread: threading.Thread) -> None:
    """Start a thread if the process may have one more. Without it, the read that it is for has no limit."""
    thread.daemon = True
    with suppress(RuntimeError):
        thread.start()
