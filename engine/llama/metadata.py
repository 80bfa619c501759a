"""Properties of a loaded model, read from the metadata in its file."""

import ctypes
from pathlib import Path

import llama_cpp

from engine.config import EngineConfig
from engine.errors import LoadError
from engine.info import ModelInfo
from engine.llama.cpu.properties import gains_by_repacking
from engine.llama.hardware import rope
from engine.llama.hardware.model_file import read_tensors
from engine.llama.memory.plan import MemoryPlan
from engine.llama.vocabulary.tokenizer import Tokenizer

_DESCRIPTION_BYTES = 256
_VALUE_BYTES = 256
_UNITS = ((10**9, "B"), (10**6, "M"), (10**3, "K"))
_TOOL_TEMPLATE = b"tool_use"  # name of a second template in the file
_RANK_TEMPLATE = b"rerank"
_POOLINGS: dict[str, int] = {
    "mean": llama_cpp.LLAMA_POOLING_TYPE_MEAN,
    "cls": llama_cpp.LLAMA_POOLING_TYPE_CLS,
    "last": llama_cpp.LLAMA_POOLING_TYPE_LAST,
    "rank": llama_cpp.LLAMA_POOLING_TYPE_RANK,
}
_SOFTMAX_RANKERS = frozenset({"qwen3", "qwen3vl"})
"""Architectures whose scores llama.cpp already makes probabilities (`build_pooling` in llama-graph.cpp)."""
_WRONG = frozenset({"chameleon", "cogvlm"})
"""Architectures that llama.cpp computes right only if each token of a call has an output. It returns the logits of the
first tokens for those asked for (CogVLM), or dies in a call without outputs (Chameleon)."""
_RIGHT_ALONE = frozenset({"arwkv7", "plamo2", "rwkv6qwen2"})
"""Architectures whose states llama.cpp stores in wrong places, and may die of it, if a call has several sequences. The
embedder is not affected: with an output for each token, llama.cpp computes one sequence after the other."""
_EVEN = frozenset({"kimi-linear", "minimax-01"})
"""Architectures at which llama.cpp dies, as it makes a context, unless the slots share a physical batch evenly. Its
size is a power of two."""
_NO_FLASH = frozenset({"plm"})
"""Architectures whose values llama.cpp gives to flash attention in a shape at which it dies."""
_OWN_CELLS = frozenset({"deepseek4"})
"""Architectures whose sequences have cells of their own in a unified cache, too. llama.cpp copies them only in the next
call, by when the source may be empty."""
_SAMPLING = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "repeat_penalty": "penalty_repeat",
    "repeat_last_n": "penalty_last_n",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
    "samplers": "sequence",
}
"""Names of `general.sampling` in a file by those of `Sampling` (`llama_model_meta_key_str` in llama-model.cpp)."""
_CLASSIFIER, _LEARNED_POSITIONS = "cls.", "position_embd."
"""Beginnings of the names of tensors."""
_NO_EMBEDDINGS = frozenset({"deepseek4", "qwen4exp"})
"""Architectures with embeddings that are narrower than `llama_model_n_embd_out`: llama.cpp dies as it reads them."""


def repacks(config: EngineConfig) -> bool:
    """Return whether llama.cpp may rearrange the weights for the CPU."""
    return gains_by_repacking() if config.repack is None else config.repack


def check_usable(handle: int, config: EngineConfig) -> None:
    """Check that the model is of a supported kind.

    Raises:
        LoadError: it can neither generate text token by token nor compute embeddings, it cannot rank as it should, or
            llama.cpp computes it wrongly.
    """
    _check_computed_right(handle, config)
    if ranks(handle, config) and not _has_tensor(config.model, _CLASSIFIER):  # llama.cpp would score by anything
        raise LoadError(f"{config.model} cannot rank: it has no classifier")
    if llama_cpp.llama_model_has_encoder(handle) or not llama_cpp.llama_model_has_decoder(handle):
        kind = "has an encoder"
    elif llama_cpp.llama_model_is_diffusion(handle):
        kind = "generates by diffusion"
    elif llama_cpp.llama_vocab_type(llama_cpp.llama_model_get_vocab(handle)) == llama_cpp.LLAMA_VOCAB_TYPE_NONE:
        kind = "has no vocabulary"
    else:
        return
    raise LoadError(f"{config.model} can neither generate text token by token nor compute embeddings: it {kind}")


def takes_flash(handle: int) -> bool:
    """Return whether llama.cpp can compute the model with flash attention."""
    return architecture(handle) not in _NO_FLASH


def asks_for_flash(handle: int, config: EngineConfig) -> bool | None:
    """Return whether flash attention has to be used; None if the engine may choose.

    Raises:
        LoadError: it is asked for, and llama.cpp cannot compute the model with it.
    """
    asked = config.hardware.split_mode == "tensor" or config.flash_attention
    if takes_flash(handle):
        return asked
    if asked:
        raise LoadError(f"{config.model} cannot be served with flash attention: choose --flash-attention off")
    return False


def _check_computed_right(handle: int, config: EngineConfig) -> None:
    name = architecture(handle)
    if name in _WRONG:
        raise LoadError(f"{config.model} cannot be served: llama.cpp computes {name} wrongly")
    if name in _RIGHT_ALONE and config.slots > 1:
        raise LoadError(
            f"{config.model} cannot be served with --slots {config.slots}: llama.cpp computes several sequences of "
            f"{name} wrongly: choose --slots 1"
        )
    if name in _EVEN and not config.kv_unified and config.slots.bit_count() > 1:
        raise LoadError(
            f"{config.model} cannot be served with --slots {config.slots}: llama.cpp dies at {name} unless they are a "
            "power of two: choose another number, or --kv-unified"
        )
    if name in _OWN_CELLS and config.kv_unified:
        raise LoadError(f"{config.model} cannot be served with --kv-unified: sequences of {name} share no cells")
    if name in _NO_EMBEDDINGS and not generates(handle, config):
        raise LoadError(f"{config.model} cannot compute embeddings: llama.cpp cannot for {name}")


def generates(handle: int, config: EngineConfig) -> bool:
    """Return whether a model is made to generate text.

    A model with bidirectional attention or with a pooling type is made for embeddings, or to rank.
    """
    return causal(handle) and pooling(handle, config) <= 0


def can_trim(handle: int, *, full_windows: bool) -> bool:
    """Return whether the last cells of a sequence can be dropped alone.

    Not with a recurrent state, and not where the cells before a sliding window are overwritten.
    """
    return not has_state(handle) and (full_windows or not window(handle))


def has_state(handle: int) -> bool:
    """Return whether a sequence has a recurrent state, with or without cells of tokens."""
    return recurrent(handle) or bool(llama_cpp.llama_model_is_hybrid(handle))


def recurrent(handle: int) -> bool:
    """Return whether a sequence has only a recurrent state, and no cells of tokens."""
    return bool(llama_cpp.llama_model_is_recurrent(handle))


def window(handle: int) -> int:
    """Return the tokens of the sliding window; 0 if every layer attends to all tokens."""
    return int(llama_cpp.llama_model_n_swa(handle))


def extended_context(handle: int, config: EngineConfig) -> int:
    """Return the training context of the model, as the scaling of its positions extends it.

    Raises:
        LoadError: the scaling has no factor, or texts would have more positions than the model has learned.
    """
    rope.check_scale(config.rope, llama_cpp.llama_model_rope_freq_scale_train(handle))
    original = _own_metadata(handle, "rope.scaling.original_context_length")
    trained = llama_cpp.llama_model_n_ctx_train(handle)
    extended = rope.extended_context(config.rope, trained, int(original) if original else None)
    longer = max(extended, config.context or 0) > trained and generates(handle, config)  # embeddings never are
    if longer and _has_tensor(config.model, _LEARNED_POSITIONS):
        raise LoadError(
            f"{config.model} has learned only {trained} positions, and llama.cpp would die beyond them: choose "
            f"--context {trained} and no scaling of positions"
        )
    return extended


def causal(handle: int) -> bool:
    """Return whether a token attends only to earlier ones."""
    return _own_metadata(handle, "attention.causal") != "false"


def pooling(handle: int, config: EngineConfig) -> int:
    """Return llama.cpp's number of the configured pooling type, or of that in the file; 0 or less without a type."""
    if config.pooling is not None:
        return _POOLINGS[config.pooling]
    return int(_own_metadata(handle, "pooling_type") or llama_cpp.LLAMA_POOLING_TYPE_UNSPECIFIED)


def ranks(handle: int, config: EngineConfig) -> bool:
    """Return whether a model scores the relevance of documents."""
    return pooling(handle, config) == llama_cpp.LLAMA_POOLING_TYPE_RANK


def _has_tensor(path: str, start: str) -> bool:
    return any(name.startswith(start) for name in read_tensors(Path(path)))


def rank_template(handle: int) -> str | None:
    """Return the template of a query and a document in the model's file, if any."""
    return _template(handle, _RANK_TEMPLATE)


def describe(handle: int, config: EngineConfig, plan: MemoryPlan, tokenizer: Tokenizer) -> ModelInfo:
    """Return the description of the model."""
    description = ctypes.create_string_buffer(_DESCRIPTION_BYTES)
    llama_cpp.llama_model_desc(handle, description, _DESCRIPTION_BYTES)
    parameters = llama_cpp.llama_model_n_params(handle)
    return ModelInfo(
        description=_sized(description.value.decode(errors="replace"), parameters),
        vocabulary=tokenizer.size,
        context=plan.context,
        trained_context=llama_cpp.llama_model_n_ctx_train(handle),
        slots=config.slots,
        parameters=parameters,
        size=llama_cpp.llama_model_size(handle),
        cells=plan.cells,
        cell_bytes=plan.token_bytes,
        cell_types=(config.kv_type_k, config.kv_type_v),
        architecture=architecture(handle),
        file_type=llama_cpp.llama_ftype_name(llama_cpp.llama_model_ftype(handle)).decode(),
        repacked=repacks(config),
        generates=generates(handle, config),
        ranks=ranks(handle, config),
        rank_probabilities=architecture(handle) in _SOFTMAX_RANKERS,
        embeds=architecture(handle) not in _NO_EMBEDDINGS,
        embedding_size=llama_cpp.llama_model_n_embd_out(handle),
        shifts=config.context_shift,
        infills=tokenizer.infills,
        fill_tokens=tokenizer.fill_tokens,
        chat_template=_template(handle, None),
        tool_template=_template(handle, _TOOL_TEMPLATE),
        bos=tokenizer.bos,
        eos=tokenizer.eos,
        end_tokens=tuple(sorted(tokenizer.end_tokens)),
        sampling=_recommended_sampling(handle),
        special_tokens=tokenizer.special_tokens,
        control_names=tokenizer.control_names,
        adapters=len(config.adapters),
    )


def _recommended_sampling(handle: int) -> dict[str, str]:
    found = {name: _metadata(handle, f"general.sampling.{key}") for name, key in _SAMPLING.items()}
    return {name: value for name, value in found.items() if value is not None}


def _sized(description: str, parameters: int) -> str:
    """Return a description with the number of parameters where llama.cpp has no name for the size."""
    unit, name = next((unit for unit in _UNITS if parameters >= unit[0]), (1, ""))
    return description.replace("?B", f"{parameters / unit:.3g}{name}")


def _template(handle: int, name: bytes | None) -> str | None:
    """Return the chat template of that name in the model's file; None names the default one."""
    template = llama_cpp.llama_model_chat_template(handle, name)
    return None if template is None else template.decode(errors="replace")


def head_sizes(handle: int) -> tuple[set[int], set[int]]:
    """Return the sizes of keys and of values in one head. Layers with a sliding window may have sizes of their own."""
    even = llama_cpp.llama_model_n_embd(handle) // max(llama_cpp.llama_model_n_head(handle), 1)
    keys, values = (
        {int(found) for key in (name, f"{name}_swa") if (found := _own_metadata(handle, key))} or {even}
        for name in ("attention.key_length", "attention.value_length")
    )
    return keys, values


def rotated_sizes(handle: int) -> set[int]:
    """Return the sizes of the parts of keys that positions rotate, if the file has them; otherwise they rotate all."""
    names = ("rope.dimension_count", "rope.dimension_count_swa")
    return {int(found) for name in names if (found := _own_metadata(handle, name))}


def architecture(handle: int) -> str:
    """Return llama.cpp's name of the architecture."""
    return _metadata(handle, "general.architecture") or ""


def scales_positions(handle: int) -> bool:
    """Return whether the model scales its positions, by factors that may depend on the context."""
    return _own_metadata(handle, "rope.scaling.type") not in (None, "none")


def _own_metadata(handle: int, key: str) -> str | None:
    """Return the value of a key that the file prefixes by the name of its architecture."""
    return _metadata(handle, f"{architecture(handle)}.{key}")


def _metadata(handle: int, key: str) -> str | None:
    buffer = ctypes.create_string_buffer(_VALUE_BYTES)
    length = llama_cpp.llama_model_meta_val_str(handle, key.encode(), buffer, _VALUE_BYTES)
    return None if length < 0 else buffer.value.decode(errors="replace")
