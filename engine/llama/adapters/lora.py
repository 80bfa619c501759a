"""LoRA adapters of a model."""

import ctypes
import logging
import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import llama_cpp

from engine.errors import LoadError
from engine.llama.log_bridge import LogCapture, first_error
from engine.request import AdapterSet


class LoraAdapters:
    """Owns the loaded adapters of a model and frees them once. Contexts must be made later, so that they have room."""

    def __init__(self, model: int, paths: Sequence[str]) -> None:
        """Load the adapters.

        Args:
            model: the C model.
            paths: GGUF files. The id of an adapter is its position.

        Raises:
            LoadError: a file is no adapter of this model.
        """
        self._handles: list[Any] = []
        with ExitStack() as resources:
            resources.callback(self.close)
            for path in paths:
                self._handles.append(_load(model, path))
                _check_always_active(self._handles[-1], path)
            resources.pop_all()

    def close(self) -> None:
        """Free the adapters, before the model. Repeatable."""
        while self._handles:
            llama_cpp.llama_adapter_lora_free(self._handles.pop())

    @property
    def all(self) -> AdapterSet:
        """Every adapter, with equal scales that add up to 1."""
        return tuple((id_, 1 / len(self._handles)) for id_ in range(len(self._handles)))

    def apply(self, context: int, adapters: AdapterSet) -> None:
        """Let a context compute its next batches with these adapters and no others."""
        handles = (llama_cpp.llama_adapter_lora_p_ctypes * len(adapters))(*(self._handles[id_] for id_, _ in adapters))
        scales = (ctypes.c_float * len(adapters))(*(scale for _, scale in adapters))
        llama_cpp.llama_set_adapters_lora(context, handles, len(adapters), scales)


def _load(model: int, path: str) -> Any:  # noqa: ANN401 (a pointer of the bindings)
    with LogCapture(logging.WARNING) as lines:  # of repacked weights, llama.cpp warns for each tensor
        handle = llama_cpp.llama_adapter_lora_init(model, os.fsencode(path))
    if not handle:
        reason = first_error(lines).removeprefix("failed to apply lora adapter: ")
        raise LoadError(f"the LoRA adapter {path} cannot be loaded: {reason}")
    return handle


def _check_always_active(handle: Any, path: str) -> None:  # noqa: ANN401 (a pointer of the bindings)
    """Refuse an aLoRA, which would be active only after its invocation tokens."""
    if llama_cpp.llama_adapter_get_alora_n_invocation_tokens(handle):
        raise LoadError(f"the LoRA adapter {path} cannot be loaded: activated LoRA (aLoRA) is not supported")
