"""Bytes of cells and of states by the header of a file, beside what llama.cpp allocates."""

from typing import Any

import pytest

from engine import EngineConfig
from engine.gguf.cells import CellBytes, cell_bytes, layer_cells
from engine.gguf.header import Value, read_header
from engine.llama.model import LlamaModel
from tests.architectures.families import FAMILIES, quick_for_some
from tests.architectures.models import family_model

SLOTS, CONTEXT = 64, 1024
ROUNDING = 0.02
"""llama.cpp logs hundredths of a MiB."""


@pytest.mark.parametrize("family", quick_for_some(one.name for one in FAMILIES))
@pytest.mark.parametrize("types", [("f16", "f16"), ("f32", "f32")])
def test_the_bytes_are_those_that_llama_cpp_allocates(family: str, types: tuple[str, str]) -> None:
    path = family_model(family)
    chosen: dict[str, Any] = dict(zip(("kv_type_k", "kv_type_v"), types, strict=True))
    without_snapshots: dict[str, Any] = {"metadata_only": True, "speculation": False}
    config = EngineConfig(model=str(path), slots=SLOTS, context=CONTEXT, **without_snapshots, **chosen)
    with LlamaModel(config, lambda _share: None) as model:
        allocated = sum(model.memory.buffers.cells.values())
        token = model.memory.token_bytes
    found = cell_bytes(read_header(path), *types)
    assert found.token == token
    assert SLOTS * (CONTEXT * found.token + found.sequence) == pytest.approx(allocated, rel=ROUNDING)


def header_of(shape: dict[str, Value]) -> dict[str, Value]:
    return {"general.architecture": "a", **{f"a.{key}": value for key, value in shape.items()}}


def test_layers_may_use_the_cells_of_others_and_have_windows_with_smaller_heads() -> None:
    shape: dict[str, Value] = {
        "block_count": 6,
        "embedding_length": 64,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.shared_kv_layers": 2,
        "attention.key_length": 32,
        "attention.value_length": 32,
        "attention.key_length_swa": 16,
        "attention.value_length_swa": 16,
        "attention.sliding_window_pattern": (True, True, False, True, True, False),
    }
    assert cell_bytes(header_of(shape), "f16", "f16") == CellBytes(2 * 2 * (3 * 2 * 16 + 2 * 32), 0)


def test_an_indexer_of_latent_attention_keeps_keys_in_all_layers() -> None:
    """The shape is that of DeepSeek V3.2, with fewer layers."""
    shape: dict[str, Value] = {
        "block_count": 4,
        "leading_dense_block_count": 3,
        "attention.head_count": 128,
        "attention.head_count_kv": 1,
        "attention.key_length": 576,
        "attention.value_length": 512,
        "attention.key_length_mla": 192,
        "attention.value_length_mla": 128,
        "attention.indexer.key_length": 128,
    }
    assert cell_bytes(header_of(shape), "f16", "f16") == CellBytes(4 * (576 + 128) * 2, 0)


def test_the_layers_of_a_hybrid_model_have_cells_or_a_state() -> None:
    shape: dict[str, Value] = {
        "block_count": 2,
        "embedding_length": 64,
        "attention.head_count": 4,
        "attention.head_count_kv": (2, 0),
        "ssm.inner_size": 128,
        "ssm.state_size": 16,
        "ssm.conv_kernel": 4,
        "ssm.group_count": 1,
    }
    state = (128 * 16 + 3 * (128 + 2 * 16)) * 4
    header = header_of(shape)
    assert layer_cells(header, "f16", "q8_0") == [CellBytes(2 * 16 * 2 + 2 * 16 * 34 // 32, 0), CellBytes(0, state)]


def test_a_header_that_says_nothing_gives_nothing() -> None:
    assert cell_bytes({}, "f16", "f16") == CellBytes(0, 0)
