"""A loaded model: its weights, its vocabulary, and what it told of itself. The context belongs to the runner."""

import ctypes
import logging
import os
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Self

import llama_cpp

from engine.config import EngineConfig
from engine.core.model import ModelTraits
from engine.errors import LoadError
from engine.events import ModelInfo
from engine.llama import devices, memory
from engine.llama.attention import choose_attention
from engine.llama.cpu import gains_by_repacking
from engine.llama.log_bridge import first_cause, keep_complaints, route_log
from engine.llama.tokenizer import Tokenizer
from engine.request import Grammar, Sampling
from engine.sampling.dry import DryTemplates
from engine.sampling.grammar import CompiledGrammar, GrammarCompiler

_MAGIC = b"GGUF"
_DESCRIPTION_BYTES = 256
_VALUE_BYTES = 256
_TOOL_TEMPLATE = b"tool_use"  # the name by which files carry a second template


class LlamaModel:
    """Owns the C model, and frees it once. Everything but `close` may be called from any thread.

    Attributes:
        info: what was loaded.
        traits: what decides how its passes are made.
        attention: how it is computed.
        prefix_store: bytes of host memory for prefixes that outlive their slots.
        dry: makes the samplers of DRY.
        pooling: how its file says that the tokens' vectors become one, by llama.cpp's numbers; up to 0, not at all.
        causal: whether its file leaves it so that a token attends to none behind it.
    """

    def __init__(self, config: EngineConfig, progress: Callable[[float], None]) -> None:
        """Load `config.model`; may take minutes. `progress` is told the share that is loaded, 0 to 1.

        Raises `LoadError` for a file that is no model, is damaged, or can neither continue a text token by token nor
        compute embeddings, and where memory is short.
        """
        route_log()
        available = devices.available_memory()
        with ExitStack() as resources:
            handle = _load(config, progress)
            resources.callback(llama_cpp.llama_model_free, handle)
            _check_usable(handle, config.model)
            self._tokenizer = resources.enter_context(closing(Tokenizer(llama_cpp.llama_model_get_vocab(handle))))
            layers, size = llama_cpp.llama_model_n_layer(handle), llama_cpp.llama_model_size(handle)
            stores = memory.kv_stores(config, layers, size, available, devices.gpu_memory())
            shape = _kv_shape(handle, layers)
            context = memory.choose_context(config, llama_cpp.llama_model_n_ctx_train(handle), shape, stores)
            self.info = _describe(handle, config, context, self._tokenizer)
            self.prefix_store = memory.choose_prefix_store(config, context, shape, stores[0])
            self.attention = choose_attention(config.flash_attention, shape.key)
            self.traits = ModelTraits(
                cells_per_weight_pass=memory.cells_per_weight_pass(self.info.size, shape),
                min_prefill_chunk=self.attention.chunk,
                can_trim=_can_trim(handle),
            )
            self.pooling = _pooling(handle)
            self.causal = _causal(handle)
            self.dry = resources.enter_context(closing(DryTemplates(self._tokenizer.vocab, self.info.context)))
            self._grammars = GrammarCompiler(self._tokenizer)
            self._handle: int | None = handle
            self._resources = resources.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the model. Repeatable. Whoever uses it must have ended: runners closed, threads joined."""
        self._handle = None
        self._resources.close()

    @property
    def handle(self) -> int:
        """The C model, for a runner to make its context of. Raises `ValueError` once closed."""
        if not self._handle:
            raise ValueError("the model is closed")
        return self._handle

    @property
    def end_tokens(self) -> frozenset[int]:
        """The ids that end a generation."""
        return self._tokenizer.end_tokens

    def tokenize(self, text: str, *, special: bool = True, begin: bool = True) -> list[int]:
        """Token ids of a text. May take long.

        `special` recognises the names of control tokens; `begin` adds the model's own beginning, if it has one and the
        text does not bring it.
        """
        return self._tokenizer.tokenize(text, special=special, begin=begin)

    def infill(self, prefix: str, suffix: str) -> list[int]:
        """Token ids of the prompt that asks for the text between two others. May take long.

        Raises `RequestError` (param `suffix`) where the model has no tokens for it.
        """
        return self._tokenizer.infill(prefix, suffix)

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes a token stands for, perhaps part of a character.

        For a control token its name, or nothing if not `special`.
        Raises `ValueError` for an id the model does not have.
        """
        return self._tokenizer.piece(token, special=special)

    def ends(self, token: int) -> bool:
        """Whether a token ends the generation. Raises `ValueError` for an id the model does not have."""
        self.check(token)
        return token in self.end_tokens

    def check(self, token: int) -> None:
        """Raises `ValueError` for an id the model does not have: llama.cpp would end the process."""
        self._tokenizer.check(token)

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        """What keeps a sequence to a grammar. May take long; the first call takes a second more.

        Raises `RequestError` (param `grammar`) with the compiler's words where it cannot be.
        """
        return self._grammars.compile(grammar)

    def prepare(self, sampling: Sampling) -> None:
        """Make now what a sequence's samplers would make at its first draw, where others would wait for it."""
        self.dry.prepare(sampling)


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
    params.use_extra_bufts = gains_by_repacking() if config.repack is None else config.repack
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


def _check_usable(handle: int, path: str) -> None:
    """Raises `LoadError` for a model that neither continues a text token by token nor computes embeddings."""
    if llama_cpp.llama_model_has_encoder(handle) or not llama_cpp.llama_model_has_decoder(handle):
        kind = "has an encoder"
    elif llama_cpp.llama_model_is_diffusion(handle):
        kind = "generates by diffusion"
    elif _pooling(handle) == llama_cpp.LLAMA_POOLING_TYPE_RANK:
        kind = "only ranks"
    elif llama_cpp.llama_vocab_type(llama_cpp.llama_model_get_vocab(handle)) == llama_cpp.LLAMA_VOCAB_TYPE_NONE:
        kind = "has no vocabulary"
    else:
        return
    raise LoadError(f"{path} can neither generate text token by token nor compute embeddings: it {kind}")


def _generates(handle: int) -> bool:
    """Whether a model is made to continue texts. One that attends to what follows, or whose file says how its tokens'
    vectors become one, is made for embeddings."""
    return _causal(handle) and _pooling(handle) <= 0


def _can_trim(handle: int) -> bool:
    """Not in a recurrent state, nor where a sliding window has already forgotten the tokens before the last ones."""
    return not (
        llama_cpp.llama_model_is_recurrent(handle)
        or llama_cpp.llama_model_is_hybrid(handle)
        or llama_cpp.llama_model_n_swa(handle)
    )


def _causal(handle: int) -> bool:
    return _own_metadata(handle, "attention.causal") != "false"


def _pooling(handle: int) -> int:
    """How its file says that the tokens' vectors become one, by llama.cpp's numbers; those up to 0 mean not at all."""
    return int(_own_metadata(handle, "pooling_type") or llama_cpp.LLAMA_POOLING_TYPE_UNSPECIFIED)


def _describe(handle: int, config: EngineConfig, context: int, tokenizer: Tokenizer) -> ModelInfo:
    """`context` is in tokens a slot."""
    description = ctypes.create_string_buffer(_DESCRIPTION_BYTES)
    llama_cpp.llama_model_desc(handle, description, _DESCRIPTION_BYTES)
    return ModelInfo(
        description=description.value.decode(errors="replace"),
        vocabulary=tokenizer.size,
        context=context,
        trained_context=llama_cpp.llama_model_n_ctx_train(handle),
        slots=config.slots,
        parameters=llama_cpp.llama_model_n_params(handle),
        size=llama_cpp.llama_model_size(handle),
        architecture=_metadata(handle, "general.architecture") or "",
        generates=_generates(handle),
        embedding_size=llama_cpp.llama_model_n_embd_out(handle),
        infills=tokenizer.infills,
        chat_template=_template(handle, None),
        tool_template=_template(handle, _TOOL_TEMPLATE),
        bos=tokenizer.bos,
        eos=tokenizer.eos,
        special_tokens=tokenizer.special_tokens,
    )


def _template(handle: int, name: bytes | None) -> str | None:
    """The chat template of that name in the model's file; None names the default one."""
    template = llama_cpp.llama_model_chat_template(handle, name)
    return None if template is None else template.decode(errors="replace")


def _kv_shape(handle: int, layers: int) -> memory.KVShape:
    """Of a model whose layers are all like its first; for a hybrid one it says too much, never too little."""
    head = llama_cpp.llama_model_n_embd(handle) // max(llama_cpp.llama_model_n_head(handle), 1)
    key = _own_metadata(handle, "attention.key_length")
    value = _own_metadata(handle, "attention.value_length")
    heads = llama_cpp.llama_model_n_head_kv(handle)
    return memory.KVShape(layers, heads, int(key or head), int(value or head))


def _own_metadata(handle: int, key: str) -> str | None:
    """A value that the file gives under its architecture's name."""
    return _metadata(handle, f"{_metadata(handle, 'general.architecture')}.{key}")


def _metadata(handle: int, key: str) -> str | None:
    buffer = ctypes.create_string_buffer(_VALUE_BYTES)
    length = llama_cpp.llama_model_meta_val_str(handle, key.encode(), buffer, _VALUE_BYTES)
    return None if length < 0 else buffer.value.decode(errors="replace")
