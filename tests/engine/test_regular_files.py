"""Which paths are those of regular files."""

import os
import socket
from pathlib import Path

import pytest

from engine.regular_files import require_regular


def test_a_regular_file_and_a_link_to_one_are_regular(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.touch()
    link.symlink_to(file)
    require_regular(file)
    require_regular(link)


def test_a_folder_is_refused_as_one(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="Is a directory"):
        require_regular(tmp_path)


@pytest.mark.parametrize("kind", ["fifo", "socket", "device"])
def test_what_may_have_no_end_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the address of a socket is short
    os.mkfifo("fifo")
    Path("device").symlink_to(os.devnull)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        with pytest.raises(OSError, match="not a regular file"):
            require_regular(Path(kind))


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        require_regular(tmp_path / "file")
