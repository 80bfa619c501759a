"""Estimates of memory from the headers of files, beside the engine's own figures."""

import math
import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from engine import EngineConfig
from engine.gguf import header as header_module
from engine.gguf.header import MOST_NUMBERS, read_header
from engine.gguf.split_file import bytes_of
from gateway.hub.cache import HubCache
from gateway.residency.estimate import GPU_BUFFERS, PROCESS, estimate
from gateway.residency.memory import Memory
from tests.gateway.hub.cached import cached_model

WEIGHTS = 1000
GIB = 2**30
BUDGET = Memory(8 * GIB)
BLOCK = 256


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def number(key: str, value: int) -> bytes:
    return string(key) + struct.pack("<II", 4, value)


def numbers(key: str, *values: int) -> bytes:
    return string(key) + struct.pack("<IIQ", 9, 4, len(values)) + struct.pack(f"<{len(values)}I", *values)


ARCHITECTURE = string("general.architecture") + struct.pack("<I", 8) + string("llama")
SHAPE = {"block_count": 2, "embedding_length": 64, "attention.head_count": 4, "context_length": 4096}
TOKEN = 2 * 4 * (16 + 16) * 2
"""Bytes of a token's cells: two layers of four heads with keys and values of 16 numbers as f16."""


def header(*keys: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)) + b"".join(keys)


def model(folder: Path, *more: bytes, name: str = "m.gguf", **shape: int) -> Path:
    """Write a header with a shape, in a file of a known size."""
    path = folder / name
    keys = (ARCHITECTURE, *(number(f"llama.{key}", value) for key, value in {**SHAPE, **shape}.items()), *more)
    path.write_bytes(header(*keys).ljust(WEIGHTS, b"\0"))
    return path


def config(path: Path, gpu_layers: int = -1) -> EngineConfig:
    return EngineConfig(model=str(path), slots=2, context=512, prefix_store=7, gpu_layers=gpu_layers)


def test_the_need_is_weights_cells_store_and_process(tmp_path: Path) -> None:
    found = estimate(config(model(tmp_path)), BUDGET)
    assert found.need == Memory(WEIGHTS + 2 * 512 * TOKEN + 7 + PROCESS)
    assert found.config == config(tmp_path / "m.gguf")


def test_cells_have_the_configured_types(tmp_path: Path) -> None:
    path = model(tmp_path, embedding_length=128)
    need = estimate(replace(config(path), kv_type_k="q8_0", kv_type_v="f32"), BUDGET).need
    assert need == Memory(WEIGHTS + 2 * 512 * 2 * 4 * (34 + 32 * 4) + 7 + PROCESS)


def test_a_model_of_the_hub_counts_as_a_process_with_a_prefix_store_until_it_has_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.hub.opening.hub_cache", lambda: HubCache(tmp_path))
    settings = EngineConfig(model="hf:user/repo")
    found = estimate(settings, BUDGET)
    store = BUDGET.host // 20
    assert (found.config, found.need) == (replace(settings, prefix_store=store), Memory(store + PROCESS))


def test_a_model_of_the_hub_on_this_machine_is_estimated_by_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = HubCache(tmp_path / "hub")
    monkeypatch.setattr("gateway.hub.opening.hub_cache", lambda: cache)
    file = model(tmp_path)
    cached_model(cache, "user/repo", "some-Q4_K_M.gguf", file.read_bytes())
    settings = replace(config(file), model="hf:user/repo")
    found = estimate(settings, BUDGET)
    assert (found.config, found.need) == (settings, estimate(config(file), BUDGET).need)


def test_heads_may_differ_by_layer_and_from_those_of_queries(tmp_path: Path) -> None:
    path = model(tmp_path, numbers("llama.attention.head_count_kv", 1, 2), number("llama.attention.key_length", 8))
    cells = 2 * 512 * (1 + 2) * (8 + 16) * 2
    assert estimate(config(path), BUDGET).need == Memory(WEIGHTS + cells + 7 + PROCESS)


def test_an_open_context_is_the_trained_one_or_a_quarter_of_the_budget(tmp_path: Path) -> None:
    path = model(tmp_path)
    open_config = EngineConfig(model=str(path), slots=2, prefix_store=0)
    assert estimate(open_config, BUDGET).config.context == 4096
    short = Memory(4 * 2 * TOKEN * 5 * BLOCK)
    assert estimate(open_config, short).config.context == 5 * BLOCK
    assert estimate(open_config, Memory(1)).config.context == 512


def test_an_open_prefix_store_is_a_share_of_the_budget(tmp_path: Path) -> None:
    found = estimate(EngineConfig(model=str(model(tmp_path)), context=256), BUDGET)
    assert found.config.prefix_store == BUDGET.host // 20


@pytest.mark.parametrize(("layers", "share"), [(-1, 1.0), (1, 0.5), (9, 1.0), (0, 0.0)])
def test_layers_on_the_gpu_take_their_weights_and_cells_along(tmp_path: Path, layers: int, share: float) -> None:
    found = estimate(config(model(tmp_path), gpu_layers=layers), Memory(8 * GIB, 8 * GIB)).need
    both = WEIGHTS + 2 * 512 * TOKEN
    on_gpu = int(both * share)
    assert found == Memory(both - on_gpu + 7 + PROCESS, on_gpu + GPU_BUFFERS if share else 0)


def test_without_a_gpu_all_is_on_the_host(tmp_path: Path) -> None:
    assert estimate(config(model(tmp_path), gpu_layers=-1), BUDGET).need.gpu == 0


def test_a_split_model_is_all_its_parts(tmp_path: Path) -> None:
    first = model(tmp_path, name="s[1]-00001-of-00002.gguf")
    model(tmp_path, name="s[1]-00002-of-00002.gguf")
    model(tmp_path, name="other-00002-of-00002.gguf")
    assert bytes_of(first) == 2 * WEIGHTS


@pytest.mark.parametrize(
    "content",
    [
        b"GGUF",
        header(number("a", 1))[:-2],
        b"PK" + bytes(100),
        header(string("a") + struct.pack("<I", 99)),
        header(string("a") + struct.pack("<IIQ", 9, 4, 2**64 - 1)),
        header(string("a") + struct.pack("<IIQ", 9, 12, 2**26), number("b", 1)),
    ],
)
def test_a_damaged_header_leaves_the_size(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"."):
        read_header(path)
    assert estimate(config(path), BUDGET).need == Memory(len(content) + 7 + PROCESS)
    assert "estimated by its size alone" in caplog.text


def real(key: str, value: float) -> bytes:
    return string(key) + struct.pack("<If", 6, value)


@pytest.mark.parametrize(
    "key",
    [
        string("llama.block_count") + struct.pack("<I", 8) + string("two"),
        string("llama.block_count") + struct.pack("<IQ", 10, 2**40),
        string("llama.block_count") + struct.pack("<Ii", 5, -1),
        real("llama.embedding_length", math.nan),
        real("llama.context_length", math.inf),
        string("llama.attention.head_count_kv") + struct.pack("<IIQf", 9, 6, 1, math.inf),
    ],
)
def test_a_hostile_header_leaves_the_size(tmp_path: Path, key: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = model(tmp_path, key)
    found = estimate(replace(config(path), context=None), BUDGET)
    assert (found.config.context, found.need) == (None, Memory(WEIGHTS + 7 + PROCESS))
    assert "estimated by its size alone" in caplog.text


def test_a_header_that_is_too_long_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header_module, "_LONGEST", 100)
    path = model(tmp_path, *(string(f"text {at}") + struct.pack("<I", 8) + string("x" * 50) for at in range(9)))
    with pytest.raises(ValueError, match="the header is too long"):
        read_header(path)


def test_a_long_array_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    many = numbers("llama.many", *range(MOST_NUMBERS + 1))
    path.write_bytes(header(ARCHITECTURE, many, number("llama.block_count", 3)))
    assert read_header(path) == {"general.architecture": "llama", "llama.many": (), "llama.block_count": 3}


def test_a_header_is_read_up_to_the_vocabulary(tmp_path: Path) -> None:
    texts = string("general.tags") + struct.pack("<IIQ", 9, 8, 2) + string("x") + string("y")
    words = string("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 10**6)
    path = tmp_path / "m.gguf"
    path.write_bytes(header(ARCHITECTURE, texts, number("llama.block_count", 3), words, b"damaged"))
    assert read_header(path) == {"general.architecture": "llama", "general.tags": (), "llama.block_count": 3}


def test_a_number_of_layers_behind_the_vocabulary_is_read(tmp_path: Path) -> None:
    words = string("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + string("x") + string("y")
    path = tmp_path / "m.gguf"
    path.write_bytes(header(ARCHITECTURE, words, number("llama.block_count", 3)))
    assert read_header(path)["llama.block_count"] == 3


def test_the_header_of_a_device_is_not_read() -> None:
    with pytest.raises(OSError, match="not a regular file"):
        read_header(Path(os.devnull))
