"""Configuration of an engine."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Settings for loading one model and sharing it between sequences."""

    model: str
    """Path of the GGUF file."""
    slots: int = 8
    """Maximum number of running sequences."""
    context: int | None = None
    """Tokens per slot; None takes the model's training context, limited by memory."""
    threads: int | None = None
    """CPU threads of a step; None takes as many as are measured to be fastest."""
    threads_batch: int | None = None
    """CPU threads of a step with several rows; None means `threads`."""
    gpu_layers: int = -1
    """Layers to offload to the GPU; -1 offloads all layers if there is a GPU."""
    step_target_ms: float = 250.0
    """Maximum delay of the next decode step by one prefill step, in milliseconds."""
    prefix_store: int | None = None
    """Bytes of host memory for prefixes evicted from their slots, plus memory for the next one; None takes a share of
    the free memory."""
    prefix_dir: str | None = None
    """Directory for prefixes that outlive the engine; None keeps none."""
    prefix_dir_bytes: int = 32 * 2**30
    """Maximum number of bytes of all prefix files in the directory, of any model."""
    queue_limit: int = 256
    """Maximum number of requests that wait for their first slot."""
    flash_attention: bool | None = None
    """True enables flash attention, False disables it; None lets the engine choose."""
    speculation: bool | None = None
    """The value of `speculative` for requests that do not set it."""
    repack: bool | None = None
    """True repacks the weights for the CPU, which takes memory and a longer start; None lets the engine choose. The
    supervisor sets False after a crash in the probe."""
    log_level: str = "info"
    """Log level of the engine process, by Python's names."""
    log_format: str = "text"
    """Log format: `text` or `json`."""
