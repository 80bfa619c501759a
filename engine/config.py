"""What an engine is told at its start."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How one model is loaded and how its sequences share it.

    Attributes:
        model: path of the GGUF file.
        slots: sequences that can run at once.
        context: tokens a slot can hold; None takes the model's own, capped to what memory allows.
        threads: CPU threads of a decode pass; None lets the engine choose.
        threads_batch: CPU threads of a prompt pass; None means `threads`.
        gpu_layers: layers to offload; -1 means all, where there is a GPU.
        step_target_ms: milliseconds that one prompt pass may put between two decode passes.
        prefix_store: bytes of host memory for prefixes whose slots were given away, besides room for one that comes
            next; None takes a share of what is free.
        queue_limit: requests that may wait for their first slot.
        flash_attention: whether llama.cpp computes attention that way; None lets the engine choose.
        speculation: whether guesses at the next tokens are computed, where it is faster, for requests that do not say.
        repack: whether llama.cpp rearranges weights for the CPU at hand, which takes memory and a longer start; None
            lets the engine choose; False after a crash in the probe.
        log_level: of the engine process, by Python's names.
        log_format: `text` or `json`.
    """

    model: str
    slots: int = 8
    context: int | None = None
    threads: int | None = None
    threads_batch: int | None = None
    gpu_layers: int = -1
    step_target_ms: float = 250.0
    prefix_store: int | None = None
    queue_limit: int = 256
    flash_attention: bool | None = None
    speculation: bool = True
    repack: bool | None = None
    log_level: str = "info"
    log_format: str = "text"
