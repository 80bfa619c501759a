"""The cells of a slot as bytes in host memory, as llama.cpp writes and reads them."""

import ctypes
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, PAGESIZE, mmap
from typing import TypeAlias

import llama_cpp
import numpy as np

from engine.errors import EngineFault

State: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.uint8]]"

_BYTES = ctypes.POINTER(ctypes.c_uint8)


@dataclass(frozen=True, slots=True)
class StateSize:
    """What cells take at most, in bytes: so many in any case, and so many for each token.

    It is exact where each token has cells of its own. Those of a sliding window or a recurrent state stop growing.
    """

    fixed: int
    each: int

    def of(self, tokens: int) -> int:
        """For so many tokens."""
        return self.fixed + self.each * tokens


def measure(sizes: dict[int, int]) -> StateSize:
    """The size of a state, by the bytes that states of two numbers of tokens take, or of one."""
    fewest, most = min(sizes), max(sizes)
    each = -(-(sizes[most] - sizes[fewest]) // max(most - fewest, 1))
    return StateSize(sizes[fewest] - each * fewest, each)


class StateMemory:
    """Host memory for states, of which that for the next one is ready in advance.

    A virtual machine may take 2 µs for each page that it has never used: 100 ms for a state that is copied in 5. So
    another thread touches them first.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "memory")
        self._next: Future[mmap] | None = None

    def take(self, size: int) -> State:
        """Room for a state of so many bytes, freed when nobody has it any more. Raises `OSError` where there is none.

        As much is made ready for the next one; what that needs more is touched when it comes.
        """
        ready, self._next = self._next, None
        memory = ready.result() if ready else _allocate(size)
        memory.resize(size)
        self._next = self._thread.submit(_touched, size)
        return np.frombuffer(memory, np.uint8)

    def close(self) -> None:
        """End the thread, and free what nobody took. Repeatable."""
        self._thread.shutdown()
        self._next = None


def _allocate(size: int) -> mmap:
    return mmap(-1, size, MAP_PRIVATE | MAP_ANONYMOUS)


def _touched(size: int) -> mmap:
    memory = _allocate(size)
    np.frombuffer(memory, np.uint8)[::PAGESIZE] = 0
    return memory


def fresh(size: int) -> State:
    """Room for a state that is soon gone again. Raises `MemoryError` where there is none."""
    return np.empty(size, np.uint8)


def state_bytes(context: int, seq_id: int) -> int:
    """What the cells that a slot has now take. Quick."""
    return int(llama_cpp.llama_state_seq_get_size(context, seq_id))


def read_state(context: int, seq_id: int, allocate: Callable[[int], State] = fresh) -> State:
    """A slot's cells. Costs by the cells. Raises what `allocate` raises, or `EngineFault` where llama.cpp refuses."""
    size = state_bytes(context, seq_id)
    state = allocate(size)
    given = llama_cpp.llama_state_seq_get_data(context, state.ctypes.data_as(_BYTES), size, seq_id)
    if not given:
        raise EngineFault("llama.cpp could not save a sequence", code="engine_failed")
    return state[:given]


def write_state(context: int, seq_id: int, state: State) -> None:
    """Make these all the cells of a slot. Costs by the cells. Raises `EngineFault` where llama.cpp refuses."""
    if not llama_cpp.llama_state_seq_set_data(context, state.ctypes.data_as(_BYTES), len(state), seq_id):
        raise EngineFault("llama.cpp could not restore a sequence", code="engine_failed")
