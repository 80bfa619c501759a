"""Configuration of an engine."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Loading of one model and sharing of it between sequences."""

    model: str
    """Path of the GGUF file."""
    slots: int = 8
    """Sequences that can run at once."""
    context: int | None = None
    """Tokens of a slot; None takes the model's training context, limited by memory."""
    threads: int | None = None
    """CPU threads of a decode pass; None lets the engine choose."""
    threads_batch: int | None = None
    """CPU threads of a prompt pass; None means `threads`."""
    gpu_layers: int = -1
    """Layers to offload; -1 offloads all if there is a GPU."""
    step_target_ms: float = 250.0
    """Milliseconds that one prompt pass may delay the next decode pass."""
    prefix_store: int | None = None
    """Bytes of host memory for prefixes whose slots were reused, plus memory for the next one; None takes a share of
    what is free."""
    queue_limit: int = 256
    """Requests that may wait for their first slot."""
    flash_attention: bool | None = None
    """True for flash attention, False for none; None lets the engine choose."""
    speculation: bool = True
    """True to compute draft tokens, where that is faster, for requests without a choice of their own."""
    repack: bool | None = None
    """True to rearrange weights for the CPU, which takes memory and a longer start; None lets the engine choose; False
    after a crash in the probe."""
    log_level: str = "info"
    """Log level of the engine process, by Python's names."""
    log_format: str = "text"
    """`text` or `json`."""
