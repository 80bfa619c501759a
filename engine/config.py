"""Configuration of an engine."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from engine.hardware import Hardware, RopeScaling

KVType: TypeAlias = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]
"""A type of the numbers in the KV cache, by llama.cpp's names."""
PoolingType: TypeAlias = Literal["mean", "cls", "last", "rank"]
"""Source of the numbers of a text: the mean of its rows, the first row, the last one, or a classifier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Settings for loading one model and sharing it between sequences."""

    model: str
    """Path of the GGUF file."""
    slots: int = 8
    """Maximum number of running sequences."""
    context: int | None = None
    """Tokens per slot; None takes the model's training context, limited by memory."""
    earlier_context: int | None = None
    """Cells per slot of the process before. An unset `context` is not shorter, if memory holds it."""
    threads: int | None = None
    """CPU threads of a step; None takes as many as are measured to be fastest."""
    threads_batch: int | None = None
    """CPU threads of a step with several rows; None means `threads`."""
    gpu_layers: int = -1
    """Layers to offload to GPUs; -1 offloads all of them, or as many as fit with `hardware.fit`."""
    hardware: Hardware = field(default_factory=Hardware)
    """Devices, placement of the weights, and share of the CPUs."""
    rope: RopeScaling = field(default_factory=RopeScaling)
    """Scaling of the positions."""
    step_target_ms: float = 250.0
    """Maximum delay of the next decode step by one prefill step, in milliseconds."""
    prefix_store: int | None = None
    """Bytes of host memory for prefixes evicted from their slots, plus memory for the next one; None takes a share of
    the free memory."""
    prefix_dir: str | None = None
    """Directory for prefixes that outlive the engine; None keeps none."""
    prefix_dir_bytes: int = 32 * 2**30
    """Maximum number of bytes of all prefix files in the directory, of any model."""
    context_shift: bool = False
    """True to go on when a slot is full: tokens behind the first ones are discarded, and the others move up."""
    pooling: PoolingType | None = None
    """Pooling type of a model that computes embeddings or ranks; None takes that of the file. A model that has one does
    not generate text."""
    queue_limit: int = 256
    """Maximum number of requests that wait for their first slot."""
    flash_attention: bool | None = None
    """True enables flash attention, False disables it; None lets the engine choose."""
    kv_type_k: KVType = "f16"
    """Type of the keys in the KV cache."""
    kv_type_v: KVType = "f16"
    """Type of the values in the KV cache."""
    kv_unified: bool = False
    """True lets all slots share their cells, so that one sequence may use those of idle slots."""
    backend_sampling: bool | None = None
    """True lets the device of the output layer select the best tokens of each row, where these are enough; None does it
    on a GPU where it is measured to be faster."""
    speculation: bool | None = None
    """The value of `speculative` for requests that do not set it."""
    repack: bool | None = None
    """True repacks the weights for the CPU, which takes memory and a longer start; None lets the engine choose. The
    supervisor sets False after a crash in the probe."""
    metadata_only: bool = False
    """True reads no weights: the model describes itself, and cannot compute."""
    adapters: tuple[str, ...] = ()
    """Paths of the LoRA adapters to load. Their ids are their positions."""
    control_vectors: tuple[tuple[str, float], ...] = ()
    """Paths of the control vectors that are added to the model, each with its scale."""
    control_vector_layers: tuple[int, int] | None = None
    """First and last layer to which control vectors are added, from 1; None adds them to all layers."""
    log_level: str = "info"
    """Log level of the engine process, by Python's names."""
    log_format: str = "text"
    """Log format: `text` or `json`."""
    log_name: str | None = None
    """Name of the model in the log lines of its engine; None for lines without a name."""
