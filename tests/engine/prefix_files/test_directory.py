"""The directory of prefix files: damage anywhere, its budget, other models and other processes."""

import logging
import multiprocessing
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.core.kv.prefix import Prefix
from engine.core.kv.prefix_file import PrefixFile, file_for
from engine.prefix_files.directory import PrefixDirectory
from engine.prefix_files.format import FORMAT, DamagedError, State

MODEL, OTHER = bytes(32), bytes([1] * 32)
SIZE = 1000
BUDGET = 10**6


def prefix_file(first: int = 0, *, tokens: int = 20, partial: bool = False) -> PrefixFile:
    return file_for(Prefix(list(range(first, first + tokens)), tokens, "a"), SIZE, partial=partial)


def state(seed: int = 0, size: int = SIZE) -> State:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def directory(root: Path, model: bytes = MODEL, budget: int = BUDGET) -> PrefixDirectory:
    return PrefixDirectory(root, model, budget)


def files_of(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


@pytest.mark.parametrize("partial", [False, True])
def test_a_file_is_found_and_read_after_a_restart(tmp_path: Path, partial: bool) -> None:
    wrong = prefix_file(partial=partial)
    written, removed = directory(tmp_path).write(wrong, state(size=1234))
    assert (written.bytes, removed) == (1234, [])
    [found] = directory(tmp_path).scan()
    assert (found.name, found.prefix, found.bytes, found.partial) == (wrong.name, wrong.prefix, 1234, partial)
    assert np.array_equal(directory(tmp_path).read(found), state(size=1234))


def test_files_are_private_to_the_user(tmp_path: Path) -> None:
    root = tmp_path / "new"
    directory(root).write(prefix_file(), state())
    [path] = files_of(root)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_damaged_at_any_byte_is_removed(tmp_path: Path, data: st.DataObject) -> None:
    written, _ = directory(tmp_path).write(prefix_file(), state())
    [path] = files_of(tmp_path)
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    if at < len(content) - SIZE:
        assert list(directory(tmp_path).scan()) == []
    else:
        with pytest.raises(DamagedError):
            directory(tmp_path).read(written)
    assert files_of(tmp_path) == []


@given(length=st.integers(0, 5000))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_of_another_length_is_removed(tmp_path: Path, length: int) -> None:
    directory(tmp_path).write(prefix_file(), state())
    [path] = files_of(tmp_path)
    length += length >= path.stat().st_size
    os.truncate(path, length)
    assert list(directory(tmp_path).scan()) == []
    assert files_of(tmp_path) == []


def test_a_file_that_is_truncated_or_longer_when_it_is_read_is_removed(tmp_path: Path) -> None:
    for change in (-1, 1):
        written, _ = directory(tmp_path).write(prefix_file(), state())
        [path] = files_of(tmp_path)
        os.truncate(path, path.stat().st_size + change)
        with pytest.raises(DamagedError):
            directory(tmp_path).read(written)
        assert files_of(tmp_path) == []


def test_a_file_of_another_version_is_removed_with_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory(tmp_path).write(prefix_file(), state())
    [path] = files_of(tmp_path)
    path.write_bytes(path.read_bytes().replace(FORMAT, FORMAT.replace(b"1", b"9")))
    with caplog.at_level(logging.WARNING):
        assert list(directory(tmp_path).scan()) == []
    assert len(caplog.records) == 1
    assert files_of(tmp_path) == []


def test_a_file_with_the_name_of_another_prefix_is_removed(tmp_path: Path) -> None:
    directory(tmp_path).write(prefix_file(), state())
    [path] = files_of(tmp_path)
    path.rename(path.with_name(prefix_file(50).name))
    with pytest.raises(DamagedError):
        directory(tmp_path).read(prefix_file(50))


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    written, _ = directory(tmp_path).write(prefix_file(), state())
    [path] = files_of(tmp_path)
    elsewhere = path.rename(tmp_path / "elsewhere")
    path.symlink_to(elsewhere)
    with pytest.raises(OSError, match="symbolic links"):
        directory(tmp_path).read(written)


def test_other_models_and_other_files_are_left_alone(tmp_path: Path) -> None:
    directory(tmp_path, OTHER).write(prefix_file(), state())
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "own.prefix").write_text("mine")
    assert list(directory(tmp_path).scan()) == []
    assert len(list(directory(tmp_path, OTHER).scan())) == 1
    directory(tmp_path, budget=SIZE + 500).write(prefix_file(), state())
    assert {path.name for path in files_of(tmp_path)} == {"notes.txt", "own.prefix", prefix_file().name}


@pytest.mark.parametrize("name", ["best.checkpoint", "start.prefix", "download.unfinished"])
def test_files_of_others_are_not_removed_for_room(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / name).write_bytes(bytes(2 * SIZE))
    os.utime(folder / name, (0, 0))
    directory(tmp_path, budget=2 * SIZE).write(prefix_file(), state())
    assert (folder / name).exists()


def test_a_file_that_cannot_be_opened_hides_no_other_one(tmp_path: Path) -> None:
    for first in range(3):
        written, _ = directory(tmp_path).write(prefix_file(first), state())
    [path] = tmp_path.glob(f"*/{prefix_file(0).name}")
    path.unlink()
    path.symlink_to(tmp_path)
    os.utime(path, (0, 0), follow_symlinks=False)
    assert {file.name for file in directory(tmp_path).scan()} == {prefix_file(1).name, written.name}


def test_the_least_recently_used_files_of_all_models_go_first(tmp_path: Path) -> None:
    for at, model in enumerate([MODEL, OTHER, MODEL]):
        written, _ = directory(tmp_path, model).write(prefix_file(at), state())
        [path] = tmp_path.glob(f"*/{written.name}")
        os.utime(path, (at, at))
    directory(tmp_path).read(prefix_file(0))
    each = path.stat().st_size
    _, removed = directory(tmp_path, budget=3 * each).write(prefix_file(3), state())
    assert removed == []  # that of the other model
    _, removed = directory(tmp_path, budget=3 * each).write(prefix_file(4), state())
    assert removed == [prefix_file(2).name]
    assert sum(path.stat().st_size for path in files_of(tmp_path)) <= 3 * each


def test_files_that_a_wrong_clock_left_go_before_all_others(tmp_path: Path) -> None:
    """They are of a year to come, and would otherwise outlive every file that is written until then."""
    for at in range(3):
        directory(tmp_path).write(prefix_file(at), state())
    [path] = tmp_path.glob(f"*/{prefix_file(2).name}")
    unfinished = path.with_name(f"{path.name}-1-0.unfinished")
    unfinished.write_bytes(b"half")
    for left in (path, unfinished):
        os.utime(left, (2**33, 2**33))
    _, removed = directory(tmp_path, budget=3 * path.stat().st_size).write(prefix_file(3), state())
    assert removed == [prefix_file(2).name]
    assert unfinished not in files_of(tmp_path)


def test_a_file_larger_than_the_budget_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="may hold"):
        directory(tmp_path, budget=SIZE - 1).write(prefix_file(), state())
    assert files_of(tmp_path) == []


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("engine.prefix_files.format.write", fail)
    with pytest.raises(OSError, match="no space"):
        directory(tmp_path).write(prefix_file(), state())
    assert files_of(tmp_path) == []


def test_unfinished_files_of_a_killed_engine_are_removed_after_a_while(tmp_path: Path) -> None:
    directory(tmp_path).write(prefix_file(), state())
    [path] = files_of(tmp_path)
    old, new = (path.with_name(f"{path.name}-1-{number}.unfinished") for number in (0, 1))
    for left in (old, new):
        left.write_bytes(b"half")
    os.utime(old, (0, 0))
    assert len(list(directory(tmp_path).scan())) == 1
    assert set(files_of(tmp_path)) == {path, new}


def _write_many(root: Path, first: int) -> None:
    for at in range(first, first + 40):
        directory(root, budget=20 * SIZE).write(prefix_file(at % 30), state(at % 30))


def test_two_processes_share_a_directory(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")  # a fork of a process with threads is a warning from Python 3.15 on
    writers = [spawn.Process(target=_write_many, args=(tmp_path, first)) for first in (0, 15)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
    assert [writer.exitcode for writer in writers] == [0, 0]
    found = list(directory(tmp_path).scan())
    assert found
    for file in found:
        assert np.array_equal(directory(tmp_path).read(file), state(file.prefix.tokens[0]))
    assert sum(path.stat().st_size for path in files_of(tmp_path)) <= 22 * SIZE  # two may write at the same time
