"""The candidate array of llama.cpp's samplers, filled without a Python loop."""

import ctypes

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from engine.sampling.chain import SamplerChain

Logits = NDArray[np.float32]
Ids = NDArray[np.int32]

_ROW = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])  # llama_token_data, llama.h


class DrawError(Exception):
    """No token can be drawn."""


class Candidates:
    """Room for every token of a vocabulary. All sequences share one, because draws come one after another."""

    def __init__(self, vocabulary: int) -> None:
        self.all_ids: Ids = np.arange(vocabulary, dtype=np.int32)
        self._rows = np.empty(vocabulary, _ROW)
        self._data = ctypes.cast(self._rows.ctypes.data, llama_cpp.llama_token_data_p)
        self._array = llama_cpp.llama_token_data_array()

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
        return self._rows["logit"][: len(ids)]

    def kept(self) -> tuple[Ids, Logits]:
        """Return the candidates that the last chain has left, with their logits."""
        rows = self._rows[: self._array.size]
        return rows["id"].copy(), rows["logit"].copy()

    def _apply(self, chain: SamplerChain, ids: Ids, logits: Logits) -> None:
        rows = self._rows[: len(ids)]
        rows["id"], rows["logit"] = ids, logits
        self._array = llama_cpp.llama_token_data_array(self._data, len(ids), -1, False)
        llama_cpp.llama_sampler_apply(chain.handle, ctypes.byref(self._array))
