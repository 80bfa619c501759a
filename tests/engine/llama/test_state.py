"""Host memory for saved cells: of the requested size, prepared in advance, freed with its last reference."""

import sys
import threading
import weakref
from collections.abc import Iterator
from mmap import mmap

import pytest
from typing_extensions import override

from engine.llama import state
from engine.llama.state import StateMemory, StateSize, measure, measure_parts
from tests.threads import refuse_thread


@pytest.fixture
def memory() -> Iterator[StateMemory]:
    made = StateMemory()
    yield made
    made.close()
    made.close()


def test_each_state_has_the_bytes_it_asked_for_and_its_own(memory: StateMemory) -> None:
    sizes = [10_000, 10_000, 3, 1_000_000, 5000]
    taken = [memory.take(size) for size in sizes]
    for number, one in enumerate(taken):
        one[:] = number
    assert [one.nbytes for one in taken] == sizes
    assert all((one == number).all() for number, one in enumerate(taken))


def test_the_memory_of_the_next_state_is_touched_by_another_thread(
    memory: StateMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.take(10_000)
    assert memory._next is not None
    memory._next.result()
    monkeypatch.setattr(state, "_touched", state._allocate)
    monkeypatch.setattr(state, "_allocate", None)
    assert memory.take(10_000).nbytes == 10_000, "nothing is allocated for it now"


class _FixedMap(mmap):
    """Memory of a system without `mremap`."""

    @override
    def resize(self, newsize: int) -> None:
        raise SystemError("mmap: resizing not available--no mremap()")


def test_states_of_several_sizes_have_memory_where_it_cannot_be_resized(
    memory: StateMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(state, "_allocate", lambda size: _FixedMap(-1, size))
    sizes = [10_000, 10_000, 3, 1_000_000, 5000]
    assert [memory.take(size).nbytes for size in sizes] == sizes


def test_no_thread_is_needed_later(memory: StateMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", refuse_thread)
    assert [len(memory.take(4096)) for _ in range(2)] == [4096] * 2


def test_a_state_without_references_is_freed(memory: StateMemory) -> None:
    one = memory.take(10_000)
    view: object = one.base
    assert isinstance(view, memoryview)
    mapped = weakref.ref(view.obj)
    del one, view
    assert mapped() is None


def test_the_size_of_a_state_follows_from_two_measured_ones() -> None:
    assert measure({32: 420, 1: 110}) == StateSize(fixed=100, each=10)
    assert measure({32: 500, 1: 500}) == StateSize(fixed=500, each=0), "a recurrent one"
    assert measure({1: 110}).of(1) == 110
    assert StateSize(fixed=100, each=10).of(5) == 150


def test_the_cells_of_a_sliding_window_stop_growing() -> None:
    whole, partial = measure_parts({32: 100 + 32 * 10, 33: 100 + 33 * 10}, {32: 40 + 32 * 6, 33: 40 + 33 * 6}, 500)
    assert [whole.of(tokens) for tokens in (33, 500, 1000)] == [430, 100 + 500 * 10, 100 + 500 * 10 + 500 * 4]
    assert [partial.of(tokens) for tokens in (33, 500, 1000)] == [40 + 33 * 6, 40 + 500 * 6, 40 + 500 * 6]
