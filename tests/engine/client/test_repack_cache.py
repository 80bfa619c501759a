"""The record of crashes by repacked weights: by build and CPU, and safe wherever it is."""

from pathlib import Path

import pytest

from engine.client import repack_cache
from engine.client.repack_cache import RepackCache


@pytest.mark.parametrize("works", [True, False])
def test_a_verdict_is_remembered(tmp_path: Path, works: bool) -> None:
    assert RepackCache().works() is None
    assert not RepackCache().crashes()
    RepackCache().record(works=works)
    RepackCache().record(works=works)
    assert RepackCache().works() is works
    assert RepackCache().crashes() is not works
    (record,) = (tmp_path / "cache" / "llama-gateway").iterdir()
    assert record.read_bytes() == b""


@pytest.mark.parametrize("works", [True, False])
def test_the_latest_verdict_counts(works: bool) -> None:
    RepackCache().record(works=not works)
    RepackCache().record(works=works)
    assert RepackCache().works() is works


def test_another_cpu_or_build_is_tried_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    RepackCache().record(works=False)
    info = tmp_path / "cpuinfo"
    info.write_text("model name : another\n\nmodel name : second core\n")
    with monkeypatch.context() as patch:
        patch.setattr(repack_cache, "_CPU_INFO", info)
        assert not RepackCache().crashes()
    with monkeypatch.context() as patch:
        patch.setattr(repack_cache, "find_spec", lambda _name: None)
        assert not RepackCache().crashes()
    assert RepackCache().crashes()


def test_a_frequency_that_changes_is_no_other_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(repack_cache, "_CPU_INFO", info)
    info.write_text("model name : one\ncpu MHz : 1000\nflags : a b\n")
    RepackCache().record(works=False)
    info.write_text("model name : one\ncpu MHz : 2000\nflags : a b\n")
    assert RepackCache().crashes()


@pytest.mark.parametrize("form", ["a file", "a file inside"])
def test_a_folder_that_cannot_be_used_remembers_nothing(tmp_path: Path, form: str) -> None:
    blocked = tmp_path / "cache" if form == "a file" else tmp_path / "cache" / "llama-gateway"
    blocked.parent.mkdir(exist_ok=True)
    blocked.write_text("in the way")
    RepackCache().record(works=False)
    assert not RepackCache().crashes()


def test_a_user_without_a_home_remembers_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    RepackCache().record(works=False)
    assert RepackCache().works() is None
    assert not RepackCache().crashes()
    assert list(tmp_path.iterdir()) == []
