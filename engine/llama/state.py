"""The cells of a slot as bytes in host memory, in the format of llama.cpp."""

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
    """The maximum size of a state in bytes.

    It is exact where each token has cells of its own. The cells of a sliding window or a recurrent state stop growing.
    """

    fixed: int
    """Bytes of a state without tokens."""
    each: int
    """Bytes of each token."""

    def of(self, tokens: int) -> int:
        """Return the maximum size for so many tokens."""
        return self.fixed + self.each * tokens


def measure(sizes: dict[int, int]) -> StateSize:
    """Return the size of a state from the bytes that states of two numbers of tokens take, or of one."""
    fewest, most = min(sizes), max(sizes)
    each = -(-(sizes[most] - sizes[fewest]) // max(most - fewest, 1))
    return StateSize(sizes[fewest] - each * fewest, each)


class StateMemory:
    """Host memory for states. The memory of the next state is prepared in advance.

    A virtual machine may take 2 µs for the first use of each page: 100 ms for a state that is copied in 5. So another
    thread touches the pages first.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "memory")
        self._next: Future[mmap] | None = None

    def take(self, size: int) -> State:
        """Return memory for a state, which is freed with its last reference, and prepare as much for the next one.

        Raises:
            OSError: there is not enough memory.
        """
        ready, self._next = self._next, None
        memory = ready.result() if ready else _allocate(size)
        memory.resize(size)
        self._next = self._thread.submit(_touched, size)
        return np.frombuffer(memory, np.uint8)

    def close(self) -> None:
        """End the thread and free the prepared memory. Repeatable."""
        self._thread.shutdown()
        self._next = None


def _allocate(size: int) -> mmap:
    return mmap(-1, size, MAP_PRIVATE | MAP_ANONYMOUS)


def _touched(size: int) -> mmap:
    memory = _allocate(size)
    np.frombuffer(memory, np.uint8)[::PAGESIZE] = 0
    return memory


def fresh(size: int) -> State:
    """Return unprepared memory, for a state that is freed soon.

    Raises:
        MemoryError: there is not enough memory.
    """
    return np.empty(size, np.uint8)


def state_bytes(context: int, seq_id: int) -> int:
    """Return the size of the cells in a slot. Fast."""
    return int(llama_cpp.llama_state_seq_get_size(context, seq_id))


def read_state(context: int, seq_id: int, allocate: Callable[[int], State] = fresh) -> State:
    """Copy the cells of a slot. The cost grows with the cells. `allocate` may raise errors of its own.

    Raises:
        EngineFault: llama.cpp refuses.
    """
    size = state_bytes(context, seq_id)
    state = allocate(size)
    given = llama_cpp.llama_state_seq_get_data(context, state.ctypes.data_as(_BYTES), size, seq_id)
    if not given:
        raise EngineFault("llama.cpp could not save a sequence", code="engine_failed")
    return state[:given]


def write_state(context: int, seq_id: int, state: State) -> None:
    """Replace the cells of a slot. The cost grows with the cells.

    Raises:
        EngineFault: llama.cpp refuses.
    """
    if not llama_cpp.llama_state_seq_set_data(context, state.ctypes.data_as(_BYTES), len(state), seq_id):
        raise EngineFault("llama.cpp could not restore a sequence", code="engine_failed")
