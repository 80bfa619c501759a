"""Contexts that llama.cpp only simulates, to learn what they would allocate."""

import ctypes
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Self

import llama_cpp

from engine.errors import LoadError
from engine.llama.backend_sampling.samplers import TopKSamplers
from engine.llama.log_bridge import ALL_LEVELS, LogCapture, first_error
from engine.llama.memory.buffers import Buffers, read_buffers


@dataclass(frozen=True, slots=True)
class SimulatedContext:
    """Properties of a simulated context."""

    buffers: Buffers
    """Memory that it would allocate."""
    snapshots: int
    """Snapshots of recurrent states that each slot keeps. llama.cpp may keep none."""
    moves_cells: bool | None
    """True if cells can move to other positions; unset without a KV cache."""


class Simulation:
    """A model without weights. llama.cpp allocates no KV cache for its contexts, and logs how large it would be.

    The recurrent states of a context are allocated nevertheless.
    """

    def __init__(
        self,
        path: str,
        params: llama_cpp.llama_model_params,
        *,
        architecture: str,
        vocabulary: int,
        gpus: Mapping[str, float],
    ) -> None:
        """Read the metadata of a model. Its vocabulary would take longer than all the rest and is left out.

        Args:
            path: the file.
            params: how the model itself is loaded.
            architecture: name of the architecture.
            vocabulary: number of token ids.
            gpus: as in `read_buffers`.

        Raises:
            LoadError: llama.cpp cannot read the file.
        """
        self._gpus, self._vocabulary = gpus, vocabulary
        overrides = _without_vocabulary(architecture, vocabulary)
        own = llama_cpp.llama_model_params.from_buffer_copy(params)
        own.no_alloc = True
        own.load_mode = llama_cpp.LLAMA_LOAD_MODE_NONE
        own.progress_callback = llama_cpp.llama_progress_callback()
        own.kv_overrides = overrides
        with LogCapture(ALL_LEVELS) as lines:
            handle = llama_cpp.llama_model_load_from_file(os.fsencode(path), own)
        if not handle:
            raise LoadError(f"{path} cannot be simulated: {first_error(lines)}")
        self._handle: int | None = int(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the model. Repeatable."""
        handle, self._handle = self._handle, None
        if handle:
            llama_cpp.llama_model_free(handle)

    def simulate(self, params: llama_cpp.llama_context_params, *, sampled: bool = False) -> SimulatedContext:
        """Return the properties of a context with these parameters.

        Args:
            params: the parameters.
            sampled: whether each sequence has a sampler on the device.

        Raises:
            LoadError: llama.cpp refuses the parameters.
        """
        if not sampled:
            return self._simulate(params)
        with closing(TopKSamplers(params.n_seq_max, self._vocabulary)) as samplers:
            own = llama_cpp.llama_context_params.from_buffer_copy(params)
            samplers.put_into(own)
            return self._simulate(own)

    def _simulate(self, params: llama_cpp.llama_context_params) -> SimulatedContext:
        with LogCapture(ALL_LEVELS) as lines:
            context = llama_cpp.llama_init_from_model(self._handle, params)
        if not context:
            raise LoadError(f"llama.cpp refuses the context: {first_error(lines)}")
        snapshots = int(llama_cpp.llama_n_rs_seq(context))
        memory = llama_cpp.llama_get_memory(context)
        moves = bool(llama_cpp.llama_memory_can_shift(memory)) if memory else None
        llama_cpp.llama_free(context)
        return SimulatedContext(read_buffers((line.text for line in lines), self._gpus), snapshots, moves)


def _without_vocabulary(architecture: str, vocabulary: int) -> ctypes.Array[llama_cpp.llama_model_kv_override]:
    """Return overrides of the metadata by which llama.cpp reads no vocabulary. The last one is the end of the list."""
    kind = llama_cpp.llama_model_kv_override(
        tag=llama_cpp.LLAMA_KV_OVERRIDE_TYPE_STR,
        key=b"tokenizer.ggml.model",
        value=llama_cpp.llama_model_kv_override_value(val_str=b"no_vocab"),
    )
    size = llama_cpp.llama_model_kv_override(
        tag=llama_cpp.LLAMA_KV_OVERRIDE_TYPE_INT,
        key=f"{architecture}.vocab_size".encode(),
        value=llama_cpp.llama_model_kv_override_value(val_i64=vocabulary),
    )
    return (llama_cpp.llama_model_kv_override * 3)(kind, size)
