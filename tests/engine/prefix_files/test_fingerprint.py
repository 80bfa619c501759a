"""The fingerprint: everything that changes the meaning of cells changes it, and no other setting does."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.hardware import Hardware, RopeScaling
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
    parts = [tmp_path / f"model[1]-0000{at}-of-00002.gguf" for at in (1, 2)]
    for part in parts:
        part.write_bytes(b"weights")
    before = mark(parts[0])
    parts[1].write_bytes(b"Weights")
    assert mark(parts[0]) != before


@pytest.mark.parametrize("name", ["model-00001-of-00001.GGUF", "model-00003-of-00002.gguf"])
def test_a_file_with_a_name_like_that_of_a_part_counts(tmp_path: Path, name: str) -> None:
    (model := tmp_path / name).write_bytes(b"weights")
    before = mark(model)
    model.write_bytes(b"Weights")
    assert mark(model) != before


def test_settings_that_change_cells_count_and_others_do_not(model: Path) -> None:
    before = mark(model)
    assert mark(model, flash_attention=True) != before
    assert mark(model, gpu_layers=0) != before
    assert mark(model, slots=3, context=100, threads=1, log_level="debug", prefix_dir="/", repack=False) == before
    assert mark(model, log_name="m", log_format="json") == before
    assert mark(model, kv_type_k="q8_0") != before
    assert mark(model, kv_unified=True) != before
    assert mark(model, rope=RopeScaling(freq_base=5000.0)) != before
    assert mark(model, hardware=Hardware(cpu_moe=1)) != before
    assert mark(model, hardware=Hardware(override_tensor=(("long" * 2000, "CPU"),))) != before
    process = Hardware(load_mode="none", numa="distribute", cpus=(0,), priority="low")
    assert mark(model, hardware=process, context_shift=True, backend_sampling=True, earlier_context=64) == before
    assert fingerprint(EngineConfig(model=str(model)), ["other facts"]) != before


@pytest.mark.parametrize("setting", ["adapters", "control_vectors"])
def test_adapters_and_control_vectors_count_by_their_contents(model: Path, setting: str) -> None:
    paths = [model.with_name(name) for name in ("one.gguf", "other.gguf")]

    def marked() -> bytes:
        return mark(
            model, **{setting: [(str(path), 0.5) if setting == "control_vectors" else str(path) for path in paths]}
        )

    paths[0].write_bytes(b"one")
    paths[1].write_bytes(b"other")
    before = marked()
    assert before != mark(model)
    paths.reverse()
    assert marked() != before  # their ids are their positions
    paths.reverse()
    paths[0] = paths[0].rename(model.with_name("moved.gguf"))
    assert marked() == before
    paths[0].write_bytes(b"One")
    assert marked() != before


def test_the_scales_and_the_layers_of_control_vectors_count(model: Path) -> None:
    vector = model.with_name("vector.gguf")
    vector.write_bytes(b"vector")
    before = mark(model, control_vectors=((str(vector), 0.5),))
    assert mark(model, control_vectors=((str(vector), 1.0),)) != before
    assert mark(model, control_vectors=((str(vector), 0.5),), control_vector_layers=(1, 2)) != before
