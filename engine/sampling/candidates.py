"""The candidate array of llama.cpp's samplers, filled without a Python loop."""

import ctypes
import threading
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from engine.sampling.chain import SamplerChain
from engine.sampling.native_calls import short

Logits = NDArray[np.float32]
Ids = NDArray[np.int32]
Mask = NDArray[np.bool_]
"""One flag for each token of the vocabulary."""

_ROW = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])  # llama_token_data, llama.h
_FEW = 4096
"""Candidates that take samplers some ten microseconds at most."""
_apply_few = short(llama_cpp.llama_sampler_apply)


class DrawError(Exception):
    """No token can be drawn."""

    code = "engine_failed"
    """Stable identifier for programs."""
    param: str | None = None
    """Field of the request that is the reason; None for a failure of the engine."""


class Candidates(threading.local):
    """Room for every token of a vocabulary in each thread, which draws for one sequence after another.

    Memory of the system's for each draw would take a page fault for every 1,024 numbers.
    """

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary
        rows = self._rows = np.empty(vocabulary, _ROW)
        self._ids, self._logits = rows["id"], rows["logit"]
        self._array = llama_cpp.llama_token_data_array()
        self._data: Any = ctypes.cast(rows.ctypes.data, llama_cpp.llama_token_data_p)
        self._reference = ctypes.byref(self._array)

    def sample(self, chain: SamplerChain, ids: Ids, logits: Logits) -> int:
        """Return the id that a chain selects.

        Args:
            chain: the samplers.
            ids: the candidates.
            logits: one for each of `ids`.

        Raises:
            DrawError: the chain selects no token.
        """
        self._apply(chain, ids, logits)
        at = self._array.selected
        if not 0 <= at < self._array.size:
            raise DrawError("llama.cpp's samplers chose no token")
        return int(self._array.data[at].id)

    def adjust(self, chain: SamplerChain, ids: Ids, logits: Logits) -> Logits:
        """Return the logits after a chain that keeps all candidates in place. A view, valid until the next call."""
        self._apply(chain, ids, logits)
        return self._logits[: len(ids)]

    def kept(self) -> tuple[Ids, Logits]:
        """Return the candidates that the last chain has left, with their logits."""
        first = (ctypes.addressof(self._array.data[0]) - self._rows.ctypes.data) // _ROW.itemsize  # XTC moves it
        rows = self._rows[first : first + self._array.size]
        return rows["id"].copy(), rows["logit"].copy()

    def _apply(self, chain: SamplerChain, ids: Ids, logits: Logits) -> None:
        count = len(ids)
        self._ids[:count], self._logits[:count] = ids, logits
        array = self._array
        array.data, array.size, array.selected, array.sorted = self._data, count, -1, False  # samplers change them all
        apply = _apply_few if count <= _FEW else llama_cpp.llama_sampler_apply
        apply(chain.handle, self._reference)
