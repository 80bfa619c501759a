"""A loaded model: weights, vocabulary and metadata. Contexts belong to runners and embedders."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Self

import llama_cpp
from typing_extensions import override

from engine.config import EngineConfig
from engine.core.drafts.speculation import LENGTHS
from engine.core.model import WORTH_COPYING, Model, ModelTraits
from engine.llama import devices, metadata
from engine.llama.adapters.control_vectors import ControlVector
from engine.llama.adapters.lora import LoraAdapters
from engine.llama.attention import Attention, choose_attention, on_devices
from engine.llama.backend_sampling.choice import choose_backend_sampling
from engine.llama.cpu.properties import usable_cores
from engine.llama.embedding.pair_prompt import PairPrompt
from engine.llama.hardware.loading import check_file, load_file, load_params
from engine.llama.hardware.params import ModelParams
from engine.llama.hardware.placement import Placement
from engine.llama.hardware.plan import LoadPlan, plan_load
from engine.llama.log_bridge import route_log
from engine.llama.memory.buffers import read_weights
from engine.llama.memory.cell_types import check_cell_types, check_cuda
from engine.llama.memory.contexts import Contexts, Room, find_rooms, simulator
from engine.llama.memory.generating import check_generating
from engine.llama.memory.parameters import largest_step
from engine.llama.memory.plan import MemoryPlan, cells_per_weight_pass, plan_memory
from engine.llama.memory.simulation import Simulation
from engine.llama.vocabulary.tokenizer import Tokenizer
from engine.prompt import PromptText
from engine.request import Grammar, Sampling
from engine.sampling import dry
from engine.sampling.grammar import CompiledGrammar, GrammarCompiler

logger = logging.getLogger(__name__)

_IDLE_ROWS = 16
"""Measured on an H100 with Q4_K_M of 0.6B weights: a step takes 1.5 ms with 1 row, 2.3 with 8 and 4.2 with 32, so that
another pass takes as long as about 18 rows. Larger models read more weights in a pass. The slots then had few cells."""
_SHORT_DRAFT = 3
"""Draft tokens where a rejection takes another step. With more of them, half of which are right, that costs more than
the others gain."""


class LlamaModel(Model):
    """Owns the C model and frees it once. Any thread may use it, except for `close`."""

    end_tokens: frozenset[int]
    """The ids that end a generation."""
    suppressed_tokens: frozenset[int]
    """The ids that the model's file excludes from generated texts."""
    attention: Attention
    """The attention implementation to use."""
    memory: MemoryPlan
    """The memory of the context that generates."""
    dry: dry.DryTemplates
    """Maker of the DRY samplers."""
    pooling: int
    """llama.cpp's number of the pooling type; 0 or less without a type."""
    causal: bool
    """True if a token attends only to earlier ones."""
    recurrent: bool
    """True if a sequence has only a recurrent state, and no cells of tokens."""
    window: int
    """Tokens of the sliding window; 0 without one."""
    aborts: bool
    """True if a running step can be aborted. On most GPUs it cannot."""
    backend_sampling: bool | None
    """True if the device selects the best tokens of each row; None if this is measured first."""
    adapters: LoraAdapters
    """The LoRA adapters."""
    control: ControlVector | None
    """The control vector of all contexts, if there is one."""
    placement: Placement
    """Where the weights are."""
    fully_offloaded: bool
    """True if devices compute all layers."""
    weights: dict[str, int]
    """Bytes of the weights by device."""

    def __init__(self, config: EngineConfig, progress: Callable[[float], None]) -> None:
        """Load `config.model`. May take minutes.

        Args:
            config: the file, and how to load it.
            progress: called with the loaded share, 0 to 1.

        Raises:
            LoadError: the file is no model or is damaged, the model can neither generate nor compute embeddings, or
                memory is short.
        """
        route_log()
        available = devices.available_memory()
        check_file(Path(config.model))
        llama_cpp.llama_backend_init()
        load = plan_load(config)
        params = load_params(config, load, available)
        with ExitStack() as resources:
            handle, log = load_file(config.model, params, progress)
            resources.callback(llama_cpp.llama_model_free, handle)
            metadata.check_usable(handle, config)
            self.adapters = resources.enter_context(closing(LoraAdapters(handle, config.adapters)))
            self.control = _control_vector(handle, config)
            self._tokenizer = resources.enter_context(closing(Tokenizer(llama_cpp.llama_model_get_vocab(handle))))
            self.vocab = self._tokenizer.vocab
            self.end_tokens, self.suppressed_tokens = self._tokenizer.end_tokens, self._tokenizer.suppressed_tokens
            self.recurrent, self.window = metadata.recurrent(handle), metadata.window(handle)
            keys, values = metadata.head_sizes(handle)
            attention = choose_attention(metadata.asks_for_flash(handle, config), max(keys))
            self.attention = on_devices(attention) if load.placement.offloads else attention
            check_cell_types(config, keys, values, self.attention, metadata.rotated_sizes(handle))
            self.backend_sampling = choose_backend_sampling(config, load.placement)
            sampled = replace(config, backend_sampling=self.backend_sampling is not False)
            self.placement, self.weights = load.placement, _weights(handle, config, load, log)
            self.fully_offloaded = load.placement.offloads_all(llama_cpp.llama_model_n_layer(handle))
            rooms = _rooms(config, load, self.weights, available)
            self.memory = self._plan_memory(handle, sampled, params, rooms)
            self.info = metadata.describe(handle, config, self.memory, self._tokenizer)
            self.aborts = load.placement.aborts
            if not self.aborts:
                logger.info("the device cannot abort a step: a cancelled prompt is computed to the end of its step")
            self.traits = self._traits(handle, config)
            if self.copies_through_host and not self.attention.shares_depth:
                idle_cells = self.info.size // (2 * max(self.memory.token_bytes, 1))
                self.traits = replace(self.traits, idle_rows=_IDLE_ROWS, idle_cells=idle_cells)
            self.info = replace(self.info, checkpoints=self.traits.needs_checkpoints)
            self.pooling, self.causal = metadata.pooling(handle, config), metadata.causal(handle)
            self.dry = resources.enter_context(closing(dry.DryTemplates(self.vocab, self.info.context)))
            self._grammars = GrammarCompiler(self._tokenizer.grammar_vocabulary)
            self._handle: int | None = handle
            self._resources = resources.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the model. Repeatable. Its runners must be closed and its threads joined."""
        self._handle = None
        self._resources.close()

    def _plan_memory(
        self, handle: int, config: EngineConfig, params: ModelParams, rooms: Mapping[str, Room]
    ) -> MemoryPlan:
        """Plan the memory of the context, by a simulation of llama.cpp's.

        Raises:
            LoadError: memory is short, llama.cpp refuses the types of the cells, or the model cannot generate as
                configured.
        """
        gpus = self.placement.gpus
        if self.placement.offloads_to_cuda:
            check_cuda(config, self.attention, llama_cpp.llama_print_system_info().decode())
        trained, recurrent = metadata.extended_context(handle, config), metadata.has_state(handle)
        name, size = metadata.architecture(handle), self._tokenizer.size
        with Simulation(config.model, params.c, architecture=name, vocabulary=size, gpus=gpus) as simulation:
            simulate = simulator(config, self.attention, simulation)
            if metadata.generates(handle, config):
                check_generating(config, simulate, recurrent=recurrent)
            contexts = Contexts(config, simulate, rooms)
            return plan_memory(contexts, trained, windowed=self.window > 0, recurrent=recurrent)

    def _traits(self, handle: int, config: EngineConfig) -> ModelTraits:
        moves = 0 if config.kv_unified else cells_per_weight_pass(self.info.size, self.memory.token_bytes)
        has_state, snapshots = metadata.has_state(handle), self.memory.snapshots
        drafts = not has_state or not (config.kv_unified or config.speculation is False)
        cores = usable_cores()
        return ModelTraits(
            cells_per_weight_pass=moves,
            min_prefill_chunk=self.attention.chunk,
            can_trim=metadata.can_trim(handle, full_windows=self.memory.full_windows),
            max_draft=(snapshots or (_SHORT_DRAFT if has_state else LENGTHS[-1])) if drafts else 0,
            drops_steps=drafts and has_state and not snapshots,
            has_state=has_state,
            windowed=self.window > 0,
            prefill_tile=self.attention.tile,
            largest_step=largest_step(self.attention, config.slots, aborts=self.aborts),
            pool=self.memory.cells if config.kv_unified else None,
            uses_all_cores=not self.placement.offloads and (config.threads or cores) >= cores,
        )

    @property
    def copies_through_host(self) -> bool:
        """True if copies of cells leave a device, whose slots have nothing but cells of their own."""
        traits = self.traits
        plain = traits.can_trim and not (traits.has_state or traits.windowed or traits.pool)
        return plain and self.fully_offloaded and not self.aborts

    def use_copy_speed(self, per_token: float, per_pass: float) -> None:
        """Record how many cells are copied in the time of a prompt token and of a pass. Call it before any request."""
        self.traits = replace(
            self.traits,
            cells_per_token=per_token,
            cells_per_weight_pass=int(per_pass),
            worth_copying=max(WORTH_COPYING, self.attention.chunk),  # fewer tokens take no less time
        )

    def require_checkpoints(self) -> None:
        """Record that a context cannot drop the last cells of a sequence. Call it before the first request."""
        self.traits = replace(self.traits, can_trim=False, max_draft=0, idle_rows=0)
        self.info = replace(self.info, checkpoints=True)

    @property
    def handle(self) -> int:
        """The C model, for contexts.

        Raises:
            ValueError: the model is closed.
        """
        if not self._handle:
            raise ValueError("the model is closed")
        return self._handle

    @property
    def cell_facts(self) -> list[object]:
        """Everything on which the meaning of saved cells depends besides the configuration.

        The factors of scaled positions may depend on the context. llama.cpp reads a state only with as many streams of
        cells as it was written with. The size of llama.cpp's libraries distinguishes two builds of one version.
        """
        library = sum(file.stat().st_size for file in (Path(llama_cpp.__file__).parent / "lib").glob("lib*"))
        context = self.info.context if metadata.scales_positions(self.handle) else None
        streams = 1 if self.traits.pool or self.recurrent else self.info.slots
        layout = self.attention.kind, self.memory.full_windows, streams
        return [llama_cpp.__version__, library, llama_cpp.LLAMA_STATE_SEQ_VERSION, *layout, context]

    @override
    def tokenize(self, text: str, *, special: bool = True, begin: bool = True) -> list[int]:
        return self._tokenizer.tokenize(text, special=special, begin=begin)

    @override
    def tokenize_parts(self, prompt: PromptText, *, begin: bool = True) -> list[int]:
        return self._tokenizer.tokenize_parts(prompt, begin=begin)

    @override
    def tokenize_pair(self, query: str, document: str) -> list[int]:
        return self._pairs.tokenize(query, document)

    @cached_property
    def _pairs(self) -> PairPrompt:
        return PairPrompt(self._tokenizer, metadata.rank_template(self.handle))

    @override
    def infill(self, prefix: str, suffix: str) -> list[int]:
        return self._tokenizer.infill(prefix, suffix)

    @override
    def piece(self, token: int, *, special: bool = False) -> bytes:
        return self._tokenizer.piece(token, special=special)

    @override
    def compiled(self, grammar: Grammar) -> CompiledGrammar | None:
        return self._grammars.compiled(grammar)

    @override
    def compile(self, grammar: Grammar) -> CompiledGrammar:
        return self._grammars.compile(grammar)

    @override
    def prepare(self, sampling: Sampling) -> None:
        if dry.wanted(sampling):
            for breaker in sampling.dry_sequence_breakers:
                self._tokenizer.check_breaker(breaker)
            self.dry.prepare(sampling)


def _weights(handle: int, config: EngineConfig, load: LoadPlan, log: Sequence[str]) -> dict[str, int]:
    """Return the bytes of the weights by device: as the log has them, or as planned where none are read."""
    if config.metadata_only:
        return load.weights(llama_cpp.llama_model_size(handle))
    return read_weights(log, load.placement.gpus)


def _rooms(config: EngineConfig, load: LoadPlan, weights: Mapping[str, int], available: int) -> dict[str, Room]:
    """Return the memory of each device. Weights that are not read are missing from the free bytes, too."""
    gpus = {device.name: device.free for device in load.placement.devices}
    if config.metadata_only:
        gpus = {gpu: free - weights[gpu] for gpu, free in gpus.items()}
    return find_rooms(available, weights, gpus, [one.name for one in load.placement.devices if one.integrated])


def _control_vector(handle: int, config: EngineConfig) -> ControlVector | None:
    """Return the sum of the configured control vectors.

    Raises:
        LoadError: a file is no control vector of this model.
    """
    if not config.control_vectors:
        return None
    blocks, width = llama_cpp.llama_model_n_layer(handle), llama_cpp.llama_model_n_embd(handle)
    return ControlVector(config.control_vectors, config.control_vector_layers, blocks=blocks, width=width)
