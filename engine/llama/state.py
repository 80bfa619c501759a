"""The cells of a slot as bytes in host memory, in the format of llama.cpp."""

import ctypes
import sys
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
_FLAGS = {False: llama_cpp.LLAMA_STATE_SEQ_FLAGS_NONE, True: llama_cpp.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY}
"""By whether a state is partial: the recurrent state of a hybrid model, or the cells of the sliding windows."""


@dataclass(frozen=True, slots=True)
class StateSize:
    """The size of a state in bytes. Recurrent states have one size; cells of a sliding window stop growing."""

    fixed: int
    """Bytes of a state without tokens."""
    each: int
    """Bytes of each token."""
    windowed: int = 0
    """Further bytes of each token in a sliding window."""
    window: int = 0
    """Tokens of a sliding window."""

    def of(self, tokens: int) -> int:
        """Return the size for so many tokens."""
        return self.fixed + self.each * tokens + self.windowed * min(tokens, self.window)


def measure(sizes: dict[int, int]) -> StateSize:
    """Return the size of a state from the bytes that states of two numbers of tokens take, or of one."""
    fewest, most = min(sizes), max(sizes)
    each = -(-(sizes[most] - sizes[fewest]) // max(most - fewest, 1))
    return StateSize(sizes[fewest] - each * fewest, each)


def measure_parts(whole: dict[int, int], partial: dict[int, int], window: int) -> tuple[StateSize, StateSize]:
    """Return the sizes of whole and of partial states, which grow only up to the sliding window."""
    all_of_it, part = measure(whole), measure(partial)
    return (
        StateSize(all_of_it.fixed, all_of_it.each - part.each, part.each, window),
        StateSize(part.fixed, 0, part.each, window),
    )


class StateMemory:
    """Host memory for states. The memory of the next state is prepared in advance.

    A virtual machine may take 2 µs for the first use of each page: 100 ms for a state that is copied in 5. So another
    thread touches the pages first.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "memory")
        self._thread.submit(int)  # starts the thread: there may be none for it during a step
        self._next: Future[mmap] | None = None

    def take(self, size: int) -> State:
        """Return memory for a state, which is freed with its last reference, and prepare as much for the next one.

        Raises:
            OSError: there is not enough memory.
        """
        ready, self._next = self._next, None
        memory = ready.result() if ready else _allocate(size)
        if sys.platform == "linux":
            memory.resize(size)
        elif len(memory) != size:  # macOS has no `mremap`
            memory = _allocate(size)
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


def state_bytes(context: int, seq_id: int, *, partial: bool = False) -> int:
    """Return the size of the cells in a slot, or of the partial state. Fast."""
    return int(llama_cpp.llama_state_seq_get_size_ext(context, seq_id, _FLAGS[partial]))


def read_state(context: int, seq_id: int, allocate: Callable[[int], State] = fresh, *, partial: bool = False) -> State:
    """Copy the cells of a slot, or the partial state. The cost grows with the bytes. `allocate` may raise errors.

    Raises:
        EngineFault: llama.cpp refuses.
    """
    size = state_bytes(context, seq_id, partial=partial)
    state = allocate(size)
    given = llama_cpp.llama_state_seq_get_data_ext(context, state.ctypes.data_as(_BYTES), size, seq_id, _FLAGS[partial])
    if not given:
        raise EngineFault("llama.cpp could not save a sequence", code="engine_failed")
    return state[:given]


def write_state(context: int, seq_id: int, state: State, *, partial: bool = False) -> None:
    """Replace the cells of a slot, or the part that a partial state holds. The cost grows with the bytes.

    Raises:
        EngineFault: llama.cpp refuses.
    """
    data = state.ctypes.data_as(_BYTES)
    if not llama_cpp.llama_state_seq_set_data_ext(context, data, len(state), seq_id, _FLAGS[partial]):
        raise EngineFault("llama.cpp could not restore a sequence", code="engine_failed")
