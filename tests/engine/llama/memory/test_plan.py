"""The choice of the context length of a slot."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.llama import devices
from engine.llama.memory.buffers import HOST, Buffers
from engine.llama.memory.contexts import Contexts, ContextShape, Room, find_rooms
from engine.llama.memory.parameters import all_cells
from engine.llama.memory.plan import choose_context, choose_prefix_store, choose_snapshots
from engine.llama.memory.simulation import SimulatedContext

Need = Callable[[int, int], Buffers]
"""Returns the buffers of a context by its slots, and the tokens of each."""

TOKEN = 10 * 4 * 128 * 2
TRAINED = 4096


def config(**fields: Any) -> EngineConfig:
    return EngineConfig(model="any", **fields)


def needs(*, compute: int = 0, gpu: float = 0.0) -> Need:
    """Return the buffers of contexts whose cells are on a GPU to a share."""

    def need(slots: int, context: int) -> Buffers:
        cells = all_cells(slots, context) * TOKEN
        on_gpu = int(cells * gpu)
        return Buffers({HOST: cells - on_gpu, "GPU": on_gpu}, {HOST: compute})

    return need


def choose(settings: EngineConfig, rooms: dict[str, Room], need: Need | None = None, trained: int = TRAINED) -> int:
    buffers = need or needs()

    def simulate(shape: ContextShape) -> SimulatedContext:
        return SimulatedContext(buffers(shape.slots, shape.context), shape.snapshots, moves_cells=True)

    return choose_context(Contexts(settings, simulate, rooms), trained)


def fitting(tokens: int, slots: int = 8) -> dict[str, Room]:
    """Return a host with room for that many tokens in every slot."""
    return {HOST: Room(TOKEN * tokens * slots, 1.0)}


@pytest.mark.parametrize(("room", "context"), [(100_000, 4096), (4096, 4096), (4095, 3840), (1000, 768), (512, 512)])
def test_the_context_is_the_models_own_or_as_many_whole_blocks_as_fit(room: int, context: int) -> None:
    assert choose(config(), fitting(room)) == context


@pytest.mark.parametrize(
    ("earlier", "context", "warnings"),
    [(2048, 2048, 0), (1024, 1536, 0), (3072, 3072, 0), (3328, 1536, 1), (4352, 1536, 1)],
)
def test_a_process_that_replaces_another_has_no_shorter_context_if_it_fits(
    caplog: pytest.LogCaptureFixture, earlier: int, context: int, warnings: int
) -> None:
    caplog.set_level(logging.WARNING)
    rooms = {HOST: Room(TOKEN * 8 * 3072, 0.5)}
    assert choose(config(earlier_context=earlier), rooms) == context
    assert len(caplog.records) == warnings


def test_the_last_block_of_an_earlier_context_may_be_longer_than_the_training(caplog: pytest.LogCaptureFixture) -> None:
    assert choose(config(earlier_context=512), {HOST: Room(TOKEN * 8 * 512, 0.5)}, trained=300) == 300
    assert not caplog.records


def test_a_short_context_is_taken_whole() -> None:
    assert choose(config(), fitting(1000), trained=300) == 300


@pytest.mark.parametrize("room", [511, 0, -5])
def test_too_little_memory_is_refused(room: int) -> None:
    with pytest.raises(LoadError, match="tokens per slot with --slots 8"):
        choose(config(), fitting(room))


def test_a_configured_context_is_used_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    assert choose(config(context=100), fitting(256)) == 100
    assert not caplog.records
    assert choose(config(context=5000), fitting(5120)) == 5000
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize("context", [5000, 2**29, 2**31 - 1])
def test_a_configured_context_must_fit_in_memory(context: int) -> None:
    with pytest.raises(LoadError, match=f"8 x {context} tokens of context need"):
        choose(config(context=context), fitting(5000))


@pytest.mark.parametrize("context", [2**28, 2**31 - 1])
def test_a_configured_context_must_fit_in_the_cell_counter(context: int) -> None:
    """Memory may hold it: a recurrent model has no cells of tokens."""
    with pytest.raises(LoadError, match=f"8 x {context} tokens of context are more than the {2**31 - 1}"):
        choose(config(context=context), fitting(2**40))


def test_the_buffers_of_the_largest_step_leave_fewer_tokens() -> None:
    assert choose(config(), fitting(2048), needs(compute=TOKEN * 8 * 300)) == 1536
    with pytest.raises(LoadError, match="8 x 2000 tokens of context need"):
        choose(config(context=2000), fitting(2048), needs(compute=TOKEN * 8))


@pytest.mark.parametrize("window", [256, 1000, 4000])
def test_cells_that_stop_growing_leave_room_for_more_tokens(window: int) -> None:
    """Three of four layers have a sliding window."""

    def need(slots: int, context: int) -> Buffers:
        cells = all_cells(slots, context), all_cells(slots, min(context, window))
        return Buffers({HOST: (cells[0] + 3 * cells[1]) * TOKEN}, {})

    chosen = choose(config(), fitting(8192), need, trained=2**20)
    assert sum(need(8, chosen).all.values()) <= 8192 * 8 * TOKEN < sum(need(8, chosen + 256).all.values())


def test_few_contexts_are_simulated() -> None:
    simulated: list[int] = []

    def need(slots: int, context: int) -> Buffers:
        if slots == 8:  # not the sequence whose tokens are measured
            simulated.append(context)
        return needs(compute=TOKEN)(slots, context)

    assert choose(config(), fitting(100_000), need, trained=2**20) == 99_840
    assert len(simulated) <= 5
    assert max(simulated) <= 100_000


def test_few_contexts_are_simulated_where_another_memory_becomes_the_tightest() -> None:
    """Short contexts leave little of the host's memory, and long ones nothing of the smaller GPU's."""
    simulated: list[int] = []

    def need(slots: int, context: int) -> Buffers:
        if slots == 8:
            simulated.append(context)
        half = all_cells(slots, context) * TOKEN // 2
        return Buffers({"GPU0": half, "GPU1": half}, {HOST: TOKEN})

    rooms = {
        "GPU0": Room(TOKEN * 8 * 50_000, 1.0),
        "GPU1": Room(TOKEN * 8 * 500_000, 1.0),
        HOST: Room(TOKEN * 800, 1.0),
    }
    assert choose(config(), rooms, need, trained=2**20) == 99_840
    assert len(simulated) <= 25


def test_weights_stay_in_memory_beside_the_cache() -> None:
    assert find_rooms(1000, {HOST: 600}, {}) == {HOST: Room(400, 0.25)}


def test_a_gpu_has_what_is_free_after_its_weights() -> None:
    rooms = find_rooms(1000, {HOST: 100, "GPU": 600}, {"GPU": 500})
    assert rooms == {HOST: Room(900, 0.25), "GPU": Room(500, 0.8)}


def test_weights_on_an_integrated_gpu_are_in_host_memory() -> None:
    rooms = find_rooms(1000, {HOST: 100, "GPU": 600}, {"GPU": 350}, ["GPU"])
    assert rooms == {HOST: Room(300, 0.25), "GPU": Room(350, 0.8, shares_host=True)}


def test_the_tighter_memory_decides() -> None:
    cost = TOKEN * 8
    rooms = {HOST: Room(cost * 1024 * 0.5, 1.0), "GPU": Room(cost * 2048 * 0.5, 1.0)}
    assert choose(config(), rooms, needs(gpu=0.5)) == 1024
    with pytest.raises(LoadError, match=f"need .* on {HOST}, and"):
        choose(config(context=1025), rooms, needs(gpu=0.5))


def test_the_prefix_store_gets_a_share_of_the_free_memory_or_the_configured_size() -> None:
    cells = TOKEN * 8 * 1024

    def store(free: int, buffers: Buffers, settings: EngineConfig, *, shares: bool = False) -> int:
        rooms = {HOST: Room(free, 0.25), "GPU": Room(2**40, 0.8, shares)}
        return choose_prefix_store(settings, buffers, rooms)

    on_host, on_both = needs()(8, 1000), needs(gpu=0.5)(8, 1000)
    assert store(cells + 5000, on_host, config()) == 500
    assert store(cells // 2 + 5000, on_both, config()) == 500
    assert store(cells + 5000, on_both, config(), shares=True) == 500
    assert store(cells - 1, on_host, config()) == 0
    assert store(2**50, on_host, config()) == 8 * 2**30
    assert store(cells + 5000, on_host, config(prefix_store=7)) == 7
    assert store(cells + 5000, on_host, config(prefix_store=0)) == 0


def test_this_machine_has_memory() -> None:
    assert devices.available_memory() > 1 << 20


@pytest.mark.parametrize(
    ("spare", "snapshots"), [(10**6, 15), (599_999, 7), (280_000, 7), (120_000, 3), (40_000, 1), (39_999, 0), (-1, 0)]
)
def test_snapshots_take_a_tenth_of_the_memory_at_most(spare: int, snapshots: int) -> None:
    assert choose_snapshots(config(slots=4), {HOST: 1000}, {HOST: spare}) == snapshots


def test_the_tightest_device_decides_about_snapshots() -> None:
    assert choose_snapshots(config(slots=4), {HOST: 1000, "GPU": 1000}, {HOST: 10**6, "GPU": 120_000}) == 3
    assert choose_snapshots(config(slots=4), {HOST: 0, "GPU": 1000}, {HOST: 0, "GPU": 120_000}) == 3
    assert choose_snapshots(config(slots=4), {"GPU": 1000}, {HOST: 10**6}) == 0


def test_large_snapshots_are_few_unless_speculation_is_on() -> None:
    large, spare = {HOST: 2**21}, {HOST: 2.0**40}
    assert choose_snapshots(config(), large, spare) == 3
    assert choose_snapshots(config(speculation=True), large, spare) == 15


def test_no_snapshots_where_there_can_be_none() -> None:
    assert choose_snapshots(config(), None, {HOST: 2.0**40}) == 0
