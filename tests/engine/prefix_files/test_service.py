"""The threads that read and write prefix files: reports, failing and hanging directories, and their limits."""

import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from engine.core.kv.prefix_file import FileGone, FileRead, FileReport, FileWritten, PrefixFile
from engine.prefix_files import service as module
from engine.prefix_files.directory import PrefixDirectory
from engine.prefix_files.format import DamagedError, State
from engine.prefix_files.service import PrefixFileService
from tests.engine.prefix_files.test_directory import BUDGET, MODEL, prefix_file, state
from tests.threads import refuse_thread

GUARD = 20


class Reports:
    """A service with a receiver of its reports."""

    def __init__(self, root: Path) -> None:
        self.directory = PrefixDirectory(root, MODEL, BUDGET)
        self.service = PrefixFileService(self.directory)
        self._reports = queue.SimpleQueue[FileReport]()
        self.start()

    def start(self) -> None:
        self.service.start(self._reports.put)

    def next(self) -> FileReport:
        return self._reports.get(timeout=GUARD)

    def written(self) -> PrefixFile:
        report = self.next()
        assert isinstance(report, FileWritten)
        return report.file

    def none(self) -> bool:
        return self._reports.empty()


@pytest.fixture
def reports(tmp_path: Path) -> Iterator[Reports]:
    made = Reports(tmp_path / "prefixes")
    yield made
    made.service.close()


def test_no_thread_is_needed_later(reports: Reports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", refuse_thread)
    reports.service.write(prefix_file(), state())
    assert np.array_equal(reports.service.read(reports.written(), 7).result(GUARD), state())


def test_files_are_written_found_read_and_deleted(reports: Reports) -> None:
    reports.service.write(prefix_file(), state())
    written = reports.written()
    reports.start()
    assert reports.written().name == written.name
    future = reports.service.read(written, 7)
    report = reports.next()
    assert isinstance(report, FileRead)
    assert (report.key, report.found, report.bytes) == (7, True, state().nbytes)
    assert np.array_equal(future.result(GUARD), state())
    reports.service.delete(written.name)
    reports.service.flush(GUARD)
    assert list(reports.directory.scan()) == []


def test_cells_that_could_not_be_saved_are_reported(reports: Reports) -> None:
    reports.service.write(prefix_file(), None)
    assert reports.next() == FileGone(prefix_file().name)


def test_a_removed_file_is_reported(reports: Reports) -> None:
    reports.start()
    future = reports.service.read(prefix_file(), 7)
    assert reports.next() == FileRead(7, found=False)
    assert reports.next() == FileGone(prefix_file().name)
    with pytest.raises(FileNotFoundError):
        future.result(GUARD)


def test_a_damaged_file_is_reported(reports: Reports, tmp_path: Path) -> None:
    reports.service.write(prefix_file(), state())
    written = reports.written()
    [path] = tmp_path.rglob(written.name)
    path.write_bytes(b"?")
    future = reports.service.read(written, 7)
    assert [reports.next(), reports.next()] == [FileRead(7, found=False), FileGone(written.name)]
    with pytest.raises(DamagedError):
        future.result(GUARD)


def test_a_lack_of_memory_is_reported(reports: Reports, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(reports.directory, "read", fail)
    monkeypatch.setattr(reports.directory, "write", fail)
    late = reports.service.read(prefix_file(), 7)
    assert [reports.next(), reports.next()] == [FileRead(7, found=False), FileGone(prefix_file().name)]
    with pytest.raises(MemoryError):
        late.result(GUARD)
    reports.service.write(prefix_file(), state())
    assert reports.next() == FileGone(prefix_file().name)


def test_a_directory_that_cannot_be_made_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("no directory")
    reports = Reports(tmp_path / "file")
    with caplog.at_level(logging.WARNING):
        reports.start()
        for first in range(3):
            reports.service.write(prefix_file(first), state())
            assert reports.next() == FileGone(prefix_file(first).name)
        reports.service.flush(GUARD)
    assert len(caplog.records) == 1
    reports.service.close()


def test_a_full_disk_is_one_warning_until_a_write_succeeds(
    reports: Reports, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full = True
    write = reports.directory.write

    def fail(*arguments: object) -> object:
        if full:
            raise OSError("no space left on device")
        return write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(reports.directory, "write", fail)
    with caplog.at_level(logging.WARNING):
        for full in (True, True, False, True):
            reports.service.write(prefix_file(), state())
            assert isinstance(reports.next(), FileWritten if not full else FileGone)
        reports.service.flush(GUARD)
    assert len(caplog.records) == 2


def test_a_directory_that_does_not_answer_is_given_up(
    reports: Reports, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(module, "READ_SECONDS", 0.0)
    monkeypatch.setattr(reports.directory, "read", lambda _file: answers.wait(GUARD))
    with caplog.at_level(logging.WARNING):
        late = reports.service.read(prefix_file(), 1)
        assert reports.next() == FileRead(1, found=False, seconds=0.0)
        assert reports.next() == FileGone(prefix_file().name)
        reports.service.write(prefix_file(), state())
        assert reports.next() == FileGone(prefix_file().name)
        answers.set()
        wait([late], GUARD)
    assert reports.none()
    assert len(caplog.records) == 1


def test_reads_do_not_wait_until_all_files_are_found(reports: Reports, monkeypatch: pytest.MonkeyPatch) -> None:
    reports.service.write(prefix_file(), state())
    written, found = reports.written(), threading.Event()
    scan = reports.directory.scan
    monkeypatch.setattr(module, "SCAN_SECONDS", 0.0)
    monkeypatch.setattr(reports.directory, "scan", lambda: (found.wait(GUARD), scan())[1])
    reports.start()
    future = reports.service.read(written, 7)
    assert np.array_equal(future.result(GUARD / 4), state())
    found.set()


class Timers:
    """Timers that end when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._started: list[Callable[[], None]] = []
        monkeypatch.setattr(threading, "Timer", self._make)

    def _make(self, _seconds: float, end: Callable[..., None], arguments: Sequence[object] = ()) -> Mock:
        return Mock(start=lambda: self._started.append(lambda: end(*arguments)))

    def end(self) -> None:
        """End all timers that were started."""
        for end in self._started:
            end()


def test_a_read_is_timed_from_its_beginning(reports: Reports, monkeypatch: pytest.MonkeyPatch) -> None:
    reports.service.write(prefix_file(), state())
    written, begun, answers = reports.written(), threading.Event(), threading.Event()

    def read_slowly(file: PrefixFile) -> State:
        monkeypatch.undo()
        begun.set()
        answers.wait(GUARD)
        return reports.directory.read(file)

    monkeypatch.setattr(reports.directory, "read", read_slowly)
    first = reports.service.read(written, 6)
    assert begun.wait(GUARD)
    timers = Timers(monkeypatch)
    future = reports.service.read(written, 7)
    timers.end()
    answers.set()
    assert np.array_equal(first.result(GUARD), state())
    assert np.array_equal(future.result(GUARD), state())


def test_reads_that_wait_for_one_without_an_end_are_ended(reports: Reports, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, answers = threading.Event(), threading.Event()

    def hang(_file: PrefixFile) -> None:
        begun.set()
        answers.wait(GUARD)

    monkeypatch.setattr(reports.directory, "read", hang)
    timers = Timers(monkeypatch)
    for key in (1, 2):
        reports.service.read(prefix_file(key), key)
    assert begun.wait(GUARD)
    timers.end()
    reports.service.read(prefix_file(3), 3)
    for key in (1, 2, 3):
        assert [reports.next(), reports.next()] == [FileRead(key, found=False), FileGone(prefix_file(key).name)]
    answers.set()


def test_a_disk_that_is_too_slow_does_not_fill_the_memory(reports: Reports, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    write = reports.directory.write
    monkeypatch.setattr(module, "MOST_PENDING", 2 * state().nbytes)
    monkeypatch.setattr(reports.directory, "write", lambda *work: (answers.wait(GUARD), write(*work))[1])
    for first in range(4):
        reports.service.write(prefix_file(first), state())
    answers.set()
    ends = [reports.next() for _ in range(4)]
    assert [type(end) for end in ends] == [FileWritten, FileWritten, FileGone, FileGone]
    reports.service.flush(GUARD)
    reports.service.write(prefix_file(5), state())
    assert isinstance(reports.next(), FileWritten)
