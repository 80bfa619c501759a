"""The fingerprint: everything that changes the meaning of cells changes it, and no other setting does."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.prefix_files.fingerprint import fingerprint

SIZE = 40 * 2**20
"""Bytes. More than the part that is read as a whole."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(SIZE))
    return path


def mark(path: Path, **fields: Any) -> bytes:
    return fingerprint(replace(EngineConfig(model=str(path)), **fields), ["facts"])


def test_the_same_model_at_another_place_is_the_same(model: Path) -> None:
    before = mark(model)
    assert mark(model.rename(model.with_name("moved.gguf"))) == before


@pytest.mark.parametrize("at", [0, 2**20, 16 * 2**20])
def test_another_content_is_another_model(model: Path, at: int) -> None:
    before = mark(model)
    with model.open("r+b") as file:
        file.seek(at)
        file.write(b"x")
    assert mark(model) != before


def test_another_size_is_another_model(model: Path) -> None:
    before = mark(model)
    with model.open("ab") as file:
        file.write(b"x")
    assert mark(model) != before


def test_each_part_of_a_split_model_counts(tmp_path: Path) -> None:
    parts = [tmp_path / f"model-0000{at}-of-00002.gguf" for at in (1, 2)]
    for part in parts:
        part.write_bytes(b"weights")
    before = mark(parts[0])
    parts[1].write_bytes(b"Weights")
    assert mark(parts[0]) != before


def test_settings_that_change_cells_count_and_others_do_not(model: Path) -> None:
    before = mark(model)
    assert mark(model, flash_attention=True) != before
    assert mark(model, gpu_layers=0) != before
    assert mark(model, slots=3, context=100, threads=1, log_level="debug", prefix_dir="/", repack=False) == before
    assert fingerprint(EngineConfig(model=str(model)), ["other facts"]) != before
