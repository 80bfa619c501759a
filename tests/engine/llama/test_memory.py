"""The choice of the context length of a slot."""

import logging
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.llama import devices
from engine.llama.memory import KVShape, Store, choose_context, choose_prefix_store, kv_stores

SHAPE = KVShape(layers=10, heads=4, key=64, value=64)
TRAINED = 4096


def config(**fields: Any) -> EngineConfig:
    return EngineConfig(model="any", **fields)


def fitting(tokens: int, slots: int = 8) -> list[Store]:
    """Return a host with room for that many tokens in every slot."""
    return [Store(SHAPE.bytes_per_token * tokens * slots, 1.0, 1.0)]


def test_a_token_takes_the_bytes_of_its_keys_and_values() -> None:
    assert SHAPE.bytes_per_token == 10 * 4 * 128 * 2


@pytest.mark.parametrize(("room", "context"), [(100_000, 4096), (4096, 4096), (4095, 3840), (1000, 768), (512, 512)])
def test_the_context_is_the_models_own_or_as_many_whole_blocks_as_fit(room: int, context: int) -> None:
    assert choose_context(config(), TRAINED, SHAPE, fitting(room)) == context


def test_a_short_context_is_taken_whole() -> None:
    assert choose_context(config(), 300, SHAPE, fitting(1000)) == 300


@pytest.mark.parametrize("room", [511, 0, -5])
def test_too_little_memory_is_refused(room: int) -> None:
    with pytest.raises(LoadError, match="in each of 8 slots"):
        choose_context(config(), TRAINED, SHAPE, fitting(room))


def test_a_configured_context_is_used_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    assert choose_context(config(context=100), TRAINED, SHAPE, fitting(256)) == 100
    assert not caplog.records
    assert choose_context(config(context=5000), TRAINED, SHAPE, fitting(5120)) == 5000
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize("context", [5000, 2**29, 2**31 - 1])
def test_a_configured_context_must_fit_in_memory_and_in_the_cell_counter(context: int) -> None:
    with pytest.raises(LoadError, match=f"8 slots of {context} tokens need"):
        choose_context(config(context=context), TRAINED, SHAPE, fitting(5000))
    with pytest.raises(LoadError, match=f"8 slots of {2**29} tokens need"):
        choose_context(config(context=2**29), TRAINED, SHAPE, fitting(2**40))


def test_weights_stay_in_memory_beside_the_cache() -> None:
    (host, gpu) = kv_stores(config(), layers=10, weights=600, available=1000, gpu_free=None)
    assert (host, gpu.share) == (Store(400, 0.25, 1.0), 0.0)
    assert host.spare == 100


def test_weights_that_are_not_loaded_are_taken_from_the_gpus_free_memory() -> None:
    (_, gpu) = kv_stores(config(metadata_only=True), layers=10, weights=600, available=1000, gpu_free=1000)
    assert gpu.total == 400


def test_offloaded_weights_count_as_gpu_memory() -> None:
    (host, gpu) = kv_stores(config(), layers=10, weights=600, available=1000, gpu_free=500)
    assert host.share == 0.0
    assert gpu == Store(500, 0.8, 1.0)
    assert gpu.spare == 400
    (host, gpu) = kv_stores(config(gpu_layers=4), layers=10, weights=600, available=1000, gpu_free=500)
    assert host.spare == pytest.approx(160)
    assert (host.share, gpu.share) == (0.6, 0.4)


def test_the_tighter_memory_decides() -> None:
    cost = SHAPE.bytes_per_token * 8
    stores = [Store(cost * 1024 * 0.5, 1.0, 0.5), Store(cost * 2048 * 0.5, 1.0, 0.5)]
    assert choose_context(config(), TRAINED, SHAPE, stores) == 1024


def test_the_prefix_store_gets_a_share_of_the_free_memory_or_the_configured_size() -> None:
    cells = SHAPE.bytes_per_token * 8 * 1024
    host = Store(cells + 5000, 0.25, 1.0)
    assert choose_prefix_store(config(), 1000, SHAPE, host) == 500
    assert choose_prefix_store(config(), 1000, SHAPE, Store(cells // 2 + 5000, 0.25, 0.5)) == 500
    assert choose_prefix_store(config(), 1000, SHAPE, Store(cells - 1, 0.25, 1.0)) == 0
    assert choose_prefix_store(config(), 1000, SHAPE, Store(2**50, 0.25, 1.0)) == 8 * 2**30
    assert choose_prefix_store(config(prefix_store=7), 1000, SHAPE, host) == 7
    assert choose_prefix_store(config(prefix_store=0), 1000, SHAPE, host) == 0


def test_this_machine_has_memory() -> None:
    assert devices.available_memory() > 1 << 20
