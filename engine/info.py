"""Descriptions of an engine: its metrics, its slots, its queue, its model."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import zip_longest
from operator import add, attrgetter
from typing import Literal

import msgspec
from msgspec import Struct


class EngineMetrics(Struct, frozen=True, array_like=True, gc=False):
    """Gauges of the engine, and its counters since the start of the process."""

    slots: int = 0
    """Number of slots; `free` + `held` == `slots`."""
    free: int = 0
    """Number of free slots."""
    held: int = 0
    """Number of slots leased to a running sequence."""
    waiting: int = 0
    """Number of queued sequences."""
    active_tokens: int = 0
    """Number of KV cells of running sequences."""
    cached_tokens: int = 0
    """Number of KV cells cached for prefix reuse."""
    steps: int = 0
    """Number of steps."""
    step_seconds: float = 0.0
    """Duration of the last step of generations, in seconds."""
    rows_decoded: int = 0
    """Number of batch rows that sampled a token in decode steps."""
    prompt_tokens: int = 0
    """Number of all other computed tokens, without draft tokens."""
    aborted: int = 0
    """Number of steps aborted because all their requests were cancelled."""
    drafted: int = 0
    """Number of computed draft tokens."""
    accepted: int = 0
    """Number of accepted draft tokens."""
    stored_tokens: int = 0
    """Number of tokens of the prefixes in host memory."""
    saved_tokens: int = 0
    """Number of tokens saved to host memory."""
    restored_tokens: int = 0
    """Number of tokens restored from host memory."""
    embedding_waiting: int = 0
    """Number of inputs of embedding requests that have no result yet, also those that run."""
    embeddings: int = 0
    """Number of embedded inputs."""
    embedding_tokens: int = 0
    """Number of tokens computed for embeddings."""
    generated_tokens: int = 0
    """Number of generated tokens, without those of requests that were cancelled in the same step."""
    computed_prompt_tokens: int = 0
    """Number of prompt tokens that were computed, of running requests; those of a preempted one count again."""
    reused_prompt_tokens: int = 0
    """Number of prompt tokens with reused KV cells."""
    drafts: int = 0
    """Number of times that draft tokens of a sequence were computed."""
    preempted: int = 0
    """Number of times that a sequence lost its slot before its end."""
    accepted_by_position: tuple[int, ...] = ()
    """Number of accepted draft tokens by their position in the draft, from 0; up to the last position with any."""
    adapter_changes: int = 0
    """Number of steps with another set of LoRA adapters than the step before."""
    adapter_change_seconds: float = 0.0
    """Measured additional duration of such a step, in seconds."""
    whole_rows: int = 0
    """Number of batch rows whose logits of the whole vocabulary were copied to the host."""
    embedding_running: int = 0
    """Number of the inputs without a result that the embedder takes at once. The others wait."""
    embedding_places: int = 0
    """Number of inputs that the embedder can take at once; 0 before the first one."""

    def __add__(self, other: "EngineMetrics") -> "EngineMetrics":
        """Return the sum of each value."""
        if other is NO_METRICS:
            return self
        sums = list(map(add, _values(self), _values(other)))
        if self.accepted_by_position and other.accepted_by_position:
            sums[_BY_POSITION] = _add(self.accepted_by_position, other.accepted_by_position)
        return EngineMetrics(*sums)

    def without(self, gauges: Iterable[str]) -> "EngineMetrics":
        """Return the metrics with these values set to 0."""
        return msgspec.structs.replace(self, **dict.fromkeys(gauges, 0))


NO_METRICS = EngineMetrics()
"""The metrics of what has done nothing."""
_values = attrgetter(*EngineMetrics.__struct_fields__)
_BY_POSITION = EngineMetrics.__struct_fields__.index("accepted_by_position")


def _add(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(sum, zip_longest(one, other, fillvalue=0)))


@dataclass(frozen=True, slots=True)
class SlotInfo:
    """Snapshot of one slot."""

    id: int
    """`seq_id` of the slot, from 0."""
    state: Literal["idle", "prefill", "decode"]
    """Phase of the sequence that holds it."""
    request_id: str | None
    """Id of the request that holds it, or None."""
    active_tokens: int
    """Number of KV cells of the running sequence."""
    cached_tokens: int
    """Number of KV cells cached for prefix reuse; 0 while a sequence runs."""


@dataclass(frozen=True, slots=True)
class HeldPrefix:
    """Tokens of a prompt whose KV cells the engine can reuse."""

    label: int
    """Label of its request."""
    prompt: int
    """Index of the prompt in the request."""
    tokens: int
    """Number of its first tokens. More than the prompt has, if generated ones are held with it."""


@dataclass(frozen=True, slots=True)
class QueuedRequest:
    """Request that waits for a slot."""

    position: int
    """Position in the order of the queue, from 1."""
    request_id: str
    """Id of the request."""
    prompt_tokens: int
    """Number of tokens of all its prompts."""
    priority: int
    """Priority among the requests of its client."""
    seconds: float
    """Time since it was sent to the engine."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Description of the loaded model."""

    description: str
    """Architecture, size and quantisation, as described by llama.cpp."""
    vocabulary: int
    """Number of token ids; ids run from 0."""
    context: int
    """Tokens of the longest sequence: those of a slot, or more where slots share their cells."""
    trained_context: int
    """Context length of the training."""
    slots: int
    """Maximum number of running sequences."""
    parameters: int
    """Number of weights."""
    size: int
    """Size of the weights in bytes."""
    cells: int = 0
    """Number of KV cells of all slots together."""
    cell_bytes: int = 0
    """Bytes of one cell: the keys and values of a token, in all layers."""
    cell_types: tuple[str, str] = ("f16", "f16")
    """Types of the keys and of the values, by llama.cpp's names."""
    architecture: str = ""
    """Name of the architecture in llama.cpp."""
    file_type: str = ""
    """Quantisation of the file, as llama.cpp calls it."""
    repacked: bool = False
    """True if llama.cpp may have rearranged the weights for the CPU."""
    generates: bool = True
    """True if the model generates text; otherwise it only computes embeddings, or only ranks."""
    ranks: bool = False
    """True if the model scores the relevance of documents, and computes no embeddings."""
    rank_probabilities: bool = False
    """True if these scores are probabilities; otherwise they are logits."""
    embeds: bool = True
    """False if llama.cpp cannot compute embeddings with the architecture."""
    embedding_size: int = 0
    """Dimension of an embedding."""
    shifts: bool = False
    """True if a text goes on when its slot is full: tokens behind the first ones are discarded."""
    infills: bool = False
    """True if the vocabulary has the fill-in-the-middle tokens that `Infill` needs."""
    fill_tokens: dict[str, int] = field(default_factory=dict)
    """Ids of the tokens around a gap: `prefix`, `suffix`, `middle`, and of a project: `repository`, `file`."""
    chat_template: str | None = None
    """Jinja chat template in the GGUF file, if any."""
    tool_template: str | None = None
    """Jinja chat template for requests with tools in the GGUF file, if any."""
    bos: str = ""
    """Text of the beginning-of-sequence token; empty if there is no such token."""
    eos: str = ""
    """Text of the end-of-sequence token; empty if there is no such token."""
    end_tokens: tuple[int, ...] = ()
    """Ids of the tokens that end a text, in ascending order."""
    sampling: dict[str, str] = field(default_factory=dict)
    """Sampling that the model's file recommends, by the names of `Sampling`, as texts that are not checked."""
    special_tokens: dict[str, int] = field(default_factory=dict)
    """Ids of the control tokens and of the user-defined tokens, by name."""
    control_names: tuple[str, ...] = ()
    """Names of the tokens that structure a prompt, and that a text becomes only where these names are parsed."""
    checkpoints: bool = False
    """True if cells are reused only up to checkpoints, so that the engine needs the turns of a prompt."""
    adapters: int = 0
    """Number of LoRA adapters. Their ids run from 0."""
    host_memory: int = 0
    """Bytes of host memory of the engine process after loading, with those that its prefix store may take."""
    host_buffers: int = 0
    """Bytes of host memory of the weights, of the cells and of the largest step."""
    gpu_memory: int = 0
    """Bytes of GPU memory that loading took."""
