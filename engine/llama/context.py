"""A C context: the KV cache, one decode at a time, and its abort."""

import ctypes
import logging
import time
from collections.abc import Callable
from typing import Self, TypeAlias

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from engine.config import EngineConfig
from engine.core.step import Outcome
from engine.errors import EngineFault, LoadError
from engine.llama.abort import AbortFlag
from engine.llama.batch import Batch
from engine.llama.cpu.properties import usable_cores
from engine.llama.cpu.step_threads import StepThreads, ladder
from engine.llama.hardware.rope import set_rope
from engine.llama.log_bridge import ALL_LEVELS, LogCapture, first_error
from engine.llama.memory.buffers import read_buffers
from engine.llama.model import LlamaModel
from engine.llama.views import view
from engine.request import AdapterSet
from engine.sampling.chain import SamplerChain
from engine.sampling.native_calls import short, short_address

LogitRows: TypeAlias = NDArray[np.float32]

logger = logging.getLogger(__name__)

_OUTCOMES = {0: Outcome.DONE, 1: Outcome.NO_ROOM, 2: Outcome.ABORTED}
"""By the return code of `llama_decode`. All others are failures."""
_DEVICE_THREADS = 4
_BEYOND_TRAINING = "n_ctx_train"
"""Part of llama.cpp's warning of a context beyond the training. `choose_context` warns of one that the operator chose,
and in a unified cache no sequence becomes so long."""
_get_logits = short_address(llama_cpp.llama_get_logits)
_get_last_position = short(llama_cpp.llama_memory_seq_pos_max)


class LlamaContext:
    """Owns a C context and frees it once. Only `abort` may be called from any thread."""

    def __init__(
        self,
        model: LlamaModel,
        config: EngineConfig,
        params: llama_cpp.llama_context_params,
        *,
        purpose: str,
        hide_from: int = logging.ERROR,
    ) -> None:
        """Create the context, which allocates the KV cache.

        Args:
            model: the weights; it must outlive the context.
            config: has the numbers of threads and the scaling of the positions.
            params: all other parameters; the abort callback is set here.
            purpose: a noun for the error message.
            hide_from: the lowest level of llama.cpp's messages that are kept out of the log.

        Raises:
            LoadError: llama.cpp cannot create the context, usually because memory is short.
        """
        self._threads = _step_threads(config, fully_offloaded=model.fully_offloaded)
        self._threads_used = 0
        self._on_devices = bool(model.placement.devices)
        self._abort = AbortFlag()
        set_rope(params, config.rope)
        params.abort_callback, params.abort_callback_data = self._abort.callback, self._abort.data
        with LogCapture(ALL_LEVELS, hide_from=logging.WARNING) as lines:
            handle = llama_cpp.llama_init_from_model(model.handle, params)
        for line in lines:
            if logging.WARNING <= line.level < hide_from and _BEYOND_TRAINING not in line.text:
                logger.warning("%s", line.text)
        if not handle:
            raise LoadError(f"{purpose} cannot be made: {first_error(lines)}")
        self.buffers = read_buffers((line.text for line in lines), model.placement.gpus)
        """Bytes that it allocated."""
        self._handle: int | None = int(handle)
        self._vocabulary = model.info.vocabulary
        self._logits: LogitRows = np.empty((0, self._vocabulary), np.float32)
        self._logits_at: tuple[int | None, int] = None, 0
        self._memory = llama_cpp.llama_get_memory(handle)
        self._available = model.adapters
        self._adapters: AdapterSet = ()
        self._changed = False
        if model.control and not model.control.apply(self._handle):
            self.close()
            raise LoadError(f"{purpose} cannot be made: there is no memory for the control vectors")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the context. Repeatable."""
        handle, self._handle = self._handle, None
        if handle:
            llama_cpp.llama_free(handle)

    @property
    def handle(self) -> int:
        """The C context.

        Raises:
            ValueError: the context is closed.
        """
        if not self._handle:
            raise ValueError("the context is closed")
        return self._handle

    @property
    def has_cache(self) -> bool:
        """True if llama.cpp keeps a KV cache for the model. It does not for a model that cannot be causal."""
        return bool(self._memory)

    def decode(self, batch: Batch, *, abortable: bool = True, on_node: Callable[[], None] | None = None) -> Outcome:
        """Compute a batch and wait for the result, with or without a look at the abort flag.

        The messages of an abort or of a full cache are expected and are not logged.

        Args:
            batch: the batch.
            abortable: whether an abort ends the computation.
            on_node: called at each node of the graph, where a look at the flag is supported. It takes the
                interpreter's lock, so it is only for long computations. It must not raise.

        Raises:
            EngineFault: llama.cpp failed; the cells can no longer be trusted.
        """
        rows = int(batch.c.n_tokens)
        tuner = self._threads.of(rows)
        self._use_threads(tuner.threads)
        began, cpu_began = time.perf_counter(), time.process_time()
        with LogCapture(logging.WARNING) as lines:
            if on_node:
                status = self._decode_watched(batch, on_node)
            else:
                status = self._decode(batch) if abortable else self._decode_whole(batch)
        outcome = _OUTCOMES.get(status)
        if outcome is Outcome.DONE and not self._changed:
            tuner.observe(rows, time.perf_counter() - began, time.process_time() - cpu_began)
        self._changed = False
        if outcome in (None, Outcome.DONE):
            for line in lines:
                logger.warning("llama_decode: %s", line.text)
        if outcome is None:
            raise EngineFault(f"llama.cpp could not decode (status {status})", code="decode_failed")
        return outcome

    def _use_threads(self, threads: int) -> None:
        if threads != self._threads_used:
            llama_cpp.llama_set_n_threads(self.handle, threads, threads)
            self._threads_used = threads

    def _decode(self, batch: Batch) -> int:
        status = int(llama_cpp.llama_decode(self.handle, batch.c))
        if self._on_devices:
            llama_cpp.llama_synchronize(self.handle)  # they may still compute
        return status

    def _decode_whole(self, batch: Batch) -> int:
        """Decode a batch without an abort."""
        return self._decode_with(batch, llama_cpp.ggml_abort_callback())

    def _decode_watched(self, batch: Batch, on_node: Callable[[], None]) -> int:
        """Decode a batch with a call at each node."""

        def is_aborted(_data: int | None) -> bool:
            on_node()
            return self._abort.is_set

        return self._decode_with(batch, llama_cpp.ggml_abort_callback(is_aborted))

    def _decode_with(self, batch: Batch, callback: Callable[[ctypes.c_void_p], bool]) -> int:
        """Decode a batch with another abort callback."""
        llama_cpp.llama_set_abort_callback(self.handle, callback, None)
        status = self._decode(batch)
        llama_cpp.llama_set_abort_callback(self.handle, self._abort.callback, self._abort.data)
        return status

    def logits(self, outputs: int) -> LogitRows:
        """Return the logits of the last batch: a row for each output, in the batch's order.

        Valid until the next batch. They may be changed.

        Raises:
            EngineFault: there are none.
        """
        address = _get_logits(self.handle)
        if not address:
            raise EngineFault("llama.cpp gave no logits", code="decode_failed")
        if self._logits_at != (address, outputs):  # llama.cpp seldom moves them
            self._logits = view(address, (outputs, self._vocabulary), "=f4", writable=True)
            self._logits_at = address, outputs
        return self._logits

    def use_adapters(self, adapters: AdapterSet) -> None:
        """Compute the next batches with a set of LoRA adapters. The first one then takes longer."""
        if adapters != self._adapters:
            self._available.apply(self.handle, adapters)
            self._adapters, self._changed = adapters, True

    def set_sampler(self, seq_id: int, sampler: SamplerChain | None) -> None:
        """Let llama.cpp draw candidates for a sequence by a sampler, or give logits. The next step takes longer."""
        llama_cpp.llama_set_sampler(self.handle, seq_id, sampler.handle if sampler else None)
        self._changed = True

    def probe(self, batch: Batch) -> None:
        """Decode a batch to prove that this machine can run the model. A machine that cannot may die here.

        It may read the weights for the first time, so that its duration does not count in the choice of threads.

        Raises:
            LoadError: the batch could not be decoded.
        """
        self._changed = True
        try:
            outcome = self.decode(batch)
        except EngineFault as fault:
            raise LoadError(f"this machine cannot run the model: {fault}") from fault
        if outcome is not Outcome.DONE:
            raise LoadError(f"this machine cannot run the model: its first step ended with {outcome.value!r}")

    def remove(self, seq_id: int, start: int) -> None:
        """Drop the cells of a sequence from position `start` on.

        Raises:
            EngineFault: the model cannot drop a part of a sequence.
        """
        if self._memory and not self.try_remove(seq_id, start):
            raise EngineFault("llama.cpp could not drop cells of a sequence", code="engine_failed")

    def try_remove(self, seq_id: int, start: int) -> bool:
        """Drop the cells of a sequence from position `start` on, if the model can. Return whether it did."""
        return bool(llama_cpp.llama_memory_seq_rm(self._memory, seq_id, start, -1))

    def end_of(self, seq_id: int) -> int:
        """Return the position behind the last cell of a sequence."""
        return int(_get_last_position(self._memory, seq_id)) + 1

    def shift(self, seq_id: int, start: int, count: int, batch: Batch) -> None:
        """Drop `count` cells of a sequence from position `start` on, and move those behind them.

        llama.cpp rotates the keys only with the next decode. An abort would leave them half rotated, and a copy would
        take them as they were. So one token is decoded here, and its cell is dropped.

        Raises:
            EngineFault: the cells could not be dropped, or the keys not rotated.
        """
        if not llama_cpp.llama_memory_seq_rm(self._memory, seq_id, start, start + count):
            raise EngineFault("llama.cpp could not drop cells of a sequence", code="engine_failed")
        llama_cpp.llama_memory_seq_add(self._memory, seq_id, start + count, -1, -count)
        end = self.end_of(seq_id)
        batch.clear()
        batch.add([0], seq_id=seq_id, start=end, output=False)
        status = self._decode_whole(batch)
        if status:
            raise EngineFault(f"llama.cpp could not shift a context (status {status})", code="decode_failed")
        self.remove(seq_id, end)

    def share(self, source: int, target: int, tokens: int) -> None:
        """Make the first cells of a sequence those of another one too, which loses its own; -1 means all."""
        llama_cpp.llama_memory_seq_rm(self._memory, target, -1, -1)
        llama_cpp.llama_memory_seq_cp(self._memory, source, target, 0, tokens)

    @property
    def aborted(self) -> bool:
        """True after `abort` and before the next `arm`."""
        return self._abort.is_set

    def abort(self) -> None:
        """End the running decode and every later one until `arm`. Any thread may call it."""
        self._abort.set()

    def arm(self) -> None:
        """Clear an earlier `abort`."""
        self._abort.clear()


def _step_threads(config: EngineConfig, *, fully_offloaded: bool) -> StepThreads:
    """Return the choice of threads: the operator's numbers, or those measured to be fastest.

    Where devices compute all layers, the host reads the rows of the tokens' embeddings, and computes operations that a
    device lacks. More threads would mostly spin.
    """
    cores = usable_cores()
    measured = ladder(min(_DEVICE_THREADS, cores) if fully_offloaded else cores)
    several = config.threads_batch or config.threads
    return StepThreads(
        single=(config.threads,) if config.threads else measured, several=(several,) if several else measured
    )
