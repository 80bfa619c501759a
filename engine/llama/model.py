"""A loaded model: its weights, its vocabulary, and what it told of itself. The context belongs to the runner."""

import ctypes
import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import llama_cpp

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.events import ModelInfo
from engine.llama import devices, memory
from engine.llama.log_bridge import first_cause, keep_complaints, route_log

_MAGIC = b"GGUF"
_DESCRIPTION_BYTES = 256
_VALUE_BYTES = 256
_PIECE_BYTES = 64


class LlamaModel:
    """Owns the C model, and frees it once. Everything but `close` may be called from any thread.

    Attributes:
        info: what was loaded.
        trims: whether the last cells of a sequence can be dropped alone: not in a recurrent state, nor where a sliding
            window has already forgotten what came before them.
        end_tokens: the ids that end a generation.
    """

    def __init__(self, config: EngineConfig, progress: Callable[[float], None]) -> None:
        """Load `config.model`; may take minutes. `progress` is told the share that is loaded, 0 to 1.

        Raises `LoadError` for a file that is no model, is damaged, or cannot generate text, and where memory is short.
        """
        route_log()
        available = devices.available_memory()
        with ExitStack() as resources:
            handle = _load(config, progress)
            resources.callback(llama_cpp.llama_model_free, handle)
            _check_generates(handle, config.model)
            vocab = llama_cpp.llama_model_get_vocab(handle)
            self.info = _describe(handle, config, available)
            self.trims = not (
                llama_cpp.llama_model_is_recurrent(handle)
                or llama_cpp.llama_model_is_hybrid(handle)
                or llama_cpp.llama_model_n_swa(handle)
            )
            ids = range(self.info.vocabulary)
            self.end_tokens = frozenset(i for i in ids if llama_cpp.llama_vocab_is_eog(vocab, i))
            self._pieces: list[bytes | None] = [None] * self.info.vocabulary
            self._handle: int | None = handle
            self._vocab: int | None = vocab
            self._resources = resources.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the model. Repeatable. Whoever uses it must have ended: runners closed, threads joined."""
        self._handle = self._vocab = None
        self._resources.close()

    @property
    def handle(self) -> int:
        """The C model, for a runner to make its context of. Raises `ValueError` once closed."""
        if not self._handle:
            raise ValueError("the model is closed")
        return self._handle

    def tokenize(self, text: str) -> list[int]:
        """Token ids of a prompt, special tokens recognised and the model's own beginning added. May take long."""
        data = text.encode()
        count = len(data) // 2 + 16
        while True:
            buffer = (llama_cpp.llama_token * count)()
            given = llama_cpp.llama_tokenize(self._open_vocab(), data, len(data), buffer, count, True, True)
            if given >= 0:
                return buffer[:given]
            count = -given

    def piece(self, token: int) -> bytes:
        """The bytes a token stands for, perhaps part of a character; none for a special token.

        Raises `ValueError` for an id the model does not have.
        """
        self.check(token)
        piece = self._pieces[token]
        if piece is None:
            piece = self._pieces[token] = self._read_piece(token)
        return piece

    def ends(self, token: int) -> bool:
        """Whether a token ends the generation. Raises `ValueError` for an id the model does not have."""
        self.check(token)
        return token in self.end_tokens

    def check(self, token: int) -> None:
        """Raises `ValueError` for an id the model does not have: llama.cpp would end the process."""
        if not 0 <= token < self.info.vocabulary:
            raise ValueError(f"token id {token} is out of range: this model has ids 0 to {self.info.vocabulary - 1}")

    def _read_piece(self, token: int) -> bytes:
        size = _PIECE_BYTES
        while True:
            buffer = ctypes.create_string_buffer(size)
            given = llama_cpp.llama_token_to_piece(self._open_vocab(), token, buffer, size, 0, False)
            if given >= 0:
                return buffer.raw[:given]
            size = -given

    def _open_vocab(self) -> int:
        if not self._vocab:
            raise ValueError("the model is closed")
        return self._vocab


def _load(config: EngineConfig, progress: Callable[[float], None]) -> int:
    _check_file(Path(config.model))
    failures: list[Exception] = []

    @llama_cpp.llama_progress_callback  # type: ignore[untyped-decorator]
    def report(share: float, _data: ctypes.c_void_p) -> bool:
        try:
            progress(share)
        except Exception as failure:  # noqa: BLE001 - it cannot pass through C; it is raised again below
            failures.append(failure)
        return not failures

    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = config.gpu_layers
    params.load_mode = llama_cpp.LLAMA_LOAD_MODE_MMAP
    params.use_extra_bufts = config.extra_buffers
    params.progress_callback = report
    llama_cpp.llama_backend_init()
    with keep_complaints(logging.ERROR) as errors:
        handle = llama_cpp.llama_model_load_from_file(os.fsencode(config.model), params)
    if failures:
        if handle:
            llama_cpp.llama_model_free(handle)
        raise failures[0]
    if not handle:
        raise LoadError(f"{config.model} cannot be loaded: {first_cause(errors)}")
    return int(handle)


def _check_file(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise LoadError(f"the model file {path} cannot be read: {error.strerror}") from error
    if magic != _MAGIC:
        raise LoadError(f"{path} is not a GGUF file")


def _check_generates(handle: int, path: str) -> None:
    """Raises `LoadError` for a model that does not continue a text token by token."""
    architecture = _metadata(handle, "general.architecture")
    if llama_cpp.llama_model_has_encoder(handle) or not llama_cpp.llama_model_has_decoder(handle):
        kind = "has an encoder"
    elif llama_cpp.llama_model_is_diffusion(handle):
        kind = "generates by diffusion"
    elif _metadata(handle, f"{architecture}.attention.causal") == "false":
        kind = "only computes embeddings"
    elif llama_cpp.llama_vocab_type(llama_cpp.llama_model_get_vocab(handle)) == llama_cpp.LLAMA_VOCAB_TYPE_NONE:
        kind = "has no vocabulary"
    else:
        return
    raise LoadError(f"{path} cannot generate text token by token: it {kind}")


def _describe(handle: int, config: EngineConfig, available: int) -> ModelInfo:
    """`available` is the host's memory before the model was loaded, in bytes."""
    layers, size = llama_cpp.llama_model_n_layer(handle), llama_cpp.llama_model_size(handle)
    trained = llama_cpp.llama_model_n_ctx_train(handle)
    stores = memory.kv_stores(config, layers, size, available, devices.gpu_memory())
    description = ctypes.create_string_buffer(_DESCRIPTION_BYTES)
    llama_cpp.llama_model_desc(handle, description, _DESCRIPTION_BYTES)
    return ModelInfo(
        description=description.value.decode(errors="replace"),
        vocabulary=llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(handle)),
        context=memory.choose_context(config, trained, _kv_shape(handle, layers), stores),
        trained_context=trained,
        slots=config.slots,
        parameters=llama_cpp.llama_model_n_params(handle),
        size=size,
    )


def _kv_shape(handle: int, layers: int) -> memory.KVShape:
    """Of a model whose layers are all like its first; for a hybrid one it says too much, never too little."""
    architecture = _metadata(handle, "general.architecture")
    head = llama_cpp.llama_model_n_embd(handle) // max(llama_cpp.llama_model_n_head(handle), 1)
    key = _metadata(handle, f"{architecture}.attention.key_length")
    value = _metadata(handle, f"{architecture}.attention.value_length")
    heads = llama_cpp.llama_model_n_head_kv(handle)
    return memory.KVShape(layers, heads, int(key or head), int(value or head))


def _metadata(handle: int, key: str) -> str | None:
    buffer = ctypes.create_string_buffer(_VALUE_BYTES)
    length = llama_cpp.llama_model_meta_val_str(handle, key.encode(), buffer, _VALUE_BYTES)
    return None if length < 0 else buffer.value.decode(errors="replace")
