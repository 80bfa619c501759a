"""The best tokens of each row of a context, in place of its logits."""

import ctypes
import time
from statistics import median
from typing import Any, Final

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from engine.core.sequence import Sequence
from engine.core.step import StepPlan
from engine.errors import EngineFault
from engine.llama.backend_sampling.samplers import TopKSamplers
from engine.llama.batch import Batch
from engine.llama.context import LlamaContext
from engine.llama.views import view
from engine.sampling.native_calls import short
from engine.sampling.sampler import best_are_enough

PATIENCE: Final = 256
"""Steps. A change of the samplers makes the graph and its buffers again, 20 to 50 ms of CPU for a model of 28 layers.
So they are attached and detached at most once in so many steps."""
_TRIALS = 5

_get_ids = short(llama_cpp.llama_get_sampled_candidates_ith)
_get_logits = short(llama_cpp.llama_get_sampled_logits_ith)
_get_count = short(llama_cpp.llama_get_sampled_logits_count_ith)


class BestTokens:
    """Samplers on the device, attached to all sequences of a context or to none.

    With them the host receives the best tokens of each row and no logits, without them all logits of each row.
    llama.cpp copies the logits of all rows of a step if one row has no sampler. So samplers of some sequences would
    save no copy, and separate steps would read all weights once more, which takes longer than the copy.
    """

    count: int
    """Number of best tokens of a row."""

    def __init__(
        self,
        context: LlamaContext,
        samplers: TopKSamplers,
        sequences: int,
        vocabulary: int,
        end_tokens: frozenset[int],
        suppressed_tokens: frozenset[int],
    ) -> None:
        """Use the samplers of all sequences of a context. Both must outlive this object."""
        self._context = context
        self._samplers = samplers
        self._sequences, self._vocabulary = sequences, vocabulary
        self._end_tokens, self._suppressed_tokens = end_tokens, suppressed_tokens
        self._suffice: dict[Sequence, bool] = {}
        self._waited = 0
        self.count = samplers.count

    @property
    def given(self) -> bool:
        """True if the next step gives the best tokens, False if it gives all logits."""
        return self._samplers.attached

    def prepare(self, plan: StepPlan) -> None:
        """Attach or detach the samplers, as the outputs of the next step need it."""
        drawing = [chunk.sequence for chunk in plan.chunks if chunk.sample]
        scores = any(chunk.score for chunk in plan.chunks)
        if scores or not all(map(self._are_enough, drawing)):
            self._waited = 0
            self.detach()
        elif drawing:
            self._waited += 1
            if self._waited >= PATIENCE:
                self.attach()

    def forget(self, sequence: Sequence) -> None:
        """Drop what is known about a sequence that has ended. Repeatable."""
        self._suffice.pop(sequence, None)

    def _are_enough(self, sequence: Sequence) -> bool:
        """Return whether the best tokens decide every draw of a sequence."""
        known = self._suffice.get(sequence)
        if known is None:
            request, sampling = sequence.request, sequence.request.sampling
            ends = self._end_tokens | sequence.stop_tokens if sampling.ignore_eos or sampling.min_tokens > 0 else ()
            hidden = len(self._suppressed_tokens.union(ends))
            simple = request.logprobs is None and sequence.grammar is None
            known = self._suffice[sequence] = simple and best_are_enough(sampling, self.count, hidden=hidden)
        return known

    def attach(self) -> None:
        """Let the next steps give the best tokens. The first one takes longer."""
        self._samplers.attach(self._context.set_sampler)

    def detach(self) -> None:
        """Let the next steps give all logits. The first one takes longer."""
        self._samplers.detach(self._context.set_sampler)

    def read(self, outputs: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the ids of each output of the last step, in any order, and their logits. Valid until the next step.

        Raises:
            EngineFault: llama.cpp gave none.
        """
        handle, first = self._context.handle, -outputs
        if _get_count(handle, first) != self.count:
            raise EngineFault("llama.cpp gave no candidates", code="decode_failed")
        ids = self._rows(ctypes.cast(_get_ids(handle, first), ctypes.c_void_p).value, outputs, "=i4")
        return ids, self._rows(ctypes.cast(_get_logits(handle, first), ctypes.c_void_p).value, outputs, "=f4")

    def _rows(self, address: int | None, outputs: int, kind: str) -> NDArray[Any]:
        """Return a view of llama.cpp's rows, each of which has room for the vocabulary."""
        return view(address, (outputs, self.count), kind, strides=(4 * self._vocabulary, 4))

    def are_faster(self, batch: Batch) -> bool:
        """Return whether steps with a row of each sequence take less time than with all logits. Needs empty slots.

        Raises:
            LoadError: there is no room for such a step.
        """
        self.attach()
        seconds = self._seconds(batch)
        self.detach()
        return seconds < self._seconds(batch)

    def _seconds(self, batch: Batch) -> float:
        """Return the median duration of a step and of a look at its outputs."""
        times = []
        slots = list(range(self._sequences))
        for _ in range(1 + _TRIALS):
            batch.clear()
            batch.add_rows([0] * len(slots), slots, [0] * len(slots), [True] * len(slots))
            began = time.perf_counter()
            self._context.probe(batch)
            logits = self.read(len(slots))[1] if self.given else self._context.logits(len(slots))
            logits.argmax(axis=1)
            times.append(time.perf_counter() - began)
            for slot in slots:
                self._context.remove(slot, 0)
        return median(times[1:])  # the first one made the graph
