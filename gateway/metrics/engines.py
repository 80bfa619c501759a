"""Metrics of the engines, from what they sent last: a scrape neither asks nor waits for an engine."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client.core import InfoMetricFamily, Metric

from engine import EngineState, EngineStatus, Histogram, ModelInfo, Telemetry
from gateway.metrics.families import ENGINE, MODEL, Family
from gateway.metrics.sequences import running, waiting
from gateway.serving.model import Model

BLOCK = 16
"""Cells of a block in `cache_config_info`, vLLM's default. Here cells are not managed in blocks."""


@dataclass(frozen=True, slots=True)
class _State:
    """State of one engine at one moment."""

    name: str
    """Name of the model."""
    telemetry: Telemetry
    """Latest measurements of the engine."""
    status: EngineStatus
    """Latest status of the engine."""
    model: ModelInfo | None
    """The model, once it was loaded."""
    waiting: int
    """Number of requests that wait for the model to be loaded."""

    @property
    def slots(self) -> int:
        """Number of slots, also before the first step; 0 while the engine is not ready."""
        return self.model.slots if self.model and self.status.state is EngineState.READY else 0

    @property
    def cells(self) -> int:
        """Number of cells of the KV cache; 0 until the model is loaded."""
        return self.model.cells if self.model else 0

    @property
    def cell_types(self) -> str:
        """Types of keys and values, or one name for both; empty until the model is loaded."""
        return "/".join(dict.fromkeys(self.model.cell_types)) if self.model else ""

    @property
    def usage(self) -> float:
        """Share of the cells that running sequences hold. Cached cells are free for the next request."""
        return self.telemetry.metrics.active_tokens / self.cells if self.cells else 0.0


_Value = Callable[[_State], float]

_GAUGES: tuple[tuple[Family, _Value], ...] = (
    (
        Family("vllm:num_requests_running", "Choices that hold a slot, and inputs to embed that run."),
        lambda state: running(state.telemetry.metrics),
    ),
    (
        Family(
            "vllm:num_requests_waiting",
            "Choices and inputs to embed that wait, and requests that wait for the model or the engine's restart.",
        ),
        lambda state: waiting(state.telemetry.metrics) + state.telemetry.waiting + state.waiting,
    ),
    (
        Family(
            "vllm:kv_cache_usage_perc",
            "Share of the KV cells that running sequences hold, from 0 to 1. Cached prompts do not count.",
        ),
        lambda state: state.usage,
    ),
    (
        Family("llama_gateway_slots", "Sequences that can run at the same time."),
        lambda state: state.slots,
    ),
    (
        Family("llama_gateway_cached_kv_tokens", "KV cells of cached prompts, which are free for other requests."),
        lambda state: state.telemetry.metrics.cached_tokens,
    ),
    (
        Family("llama_gateway_stored_prompt_tokens", "Tokens of the cached prompts in host memory."),
        lambda state: state.telemetry.metrics.stored_tokens,
    ),
    (
        Family("llama_gateway_step_seconds", "Duration of the last step of generations."),
        lambda state: state.telemetry.metrics.step_seconds,
    ),
    (
        Family(
            "llama_gateway_adapter_change_seconds",
            "Additional duration of a step with other LoRA adapters than the step before; 0 until measured.",
        ),
        lambda state: state.telemetry.metrics.adapter_change_seconds,
    ),
    (
        Family("llama_gateway_engine_ready", "1 if the engine serves requests."),
        lambda state: state.status.state is EngineState.READY,
    ),
    (
        Family("llama_gateway_engine_unloaded", "1 if there is no engine, because no request needs the model."),
        lambda state: state.status.state is EngineState.STOPPED,
    ),
    (
        Family(
            "llama_gateway_model_host_bytes", "Host memory of the loaded model, with what its prefix store may take."
        ),
        lambda state: state.model.host_memory if state.model else 0,
    ),
    (
        Family("llama_gateway_model_gpu_bytes", "GPU memory that loading the model took."),
        lambda state: state.model.gpu_memory if state.model else 0,
    ),
    (
        Family("llama_gateway_engine_loaded_ratio", "Loaded share of the model while it loads, from 0 to 1."),
        lambda state: state.status.progress,
    ),
)

_COUNTERS: tuple[tuple[Family, _Value], ...] = (
    (
        Family("vllm:prompt_tokens", "Prompt tokens that were read, computed or cached; recomputed ones count again."),
        lambda state: state.telemetry.metrics.computed_prompt_tokens + state.telemetry.metrics.reused_prompt_tokens,
    ),
    (
        Family("vllm:prompt_tokens_cached", "Prompt tokens that were not computed, because they were cached."),
        lambda state: state.telemetry.metrics.reused_prompt_tokens,
    ),
    (
        Family("vllm:generation_tokens", "Generated tokens, as they are generated."),
        lambda state: state.telemetry.metrics.generated_tokens,
    ),
    (
        Family("vllm:prefix_cache_queries", "Prompt tokens that were looked up in the prefix cache, or computed."),
        lambda state: state.telemetry.metrics.computed_prompt_tokens + state.telemetry.metrics.reused_prompt_tokens,
    ),
    (
        Family("vllm:prefix_cache_hits", "Those of them that were cached."),
        lambda state: state.telemetry.metrics.reused_prompt_tokens,
    ),
    (
        Family("vllm:num_preemptions", "Sequences that lost their slots before their ends, and continued later."),
        lambda state: state.telemetry.metrics.preempted,
    ),
    (
        Family("vllm:spec_decode_num_drafts", "Times that draft tokens of a choice were computed."),
        lambda state: state.telemetry.metrics.drafts,
    ),
    (
        Family("vllm:spec_decode_num_draft_tokens", "Computed draft tokens."),
        lambda state: state.telemetry.metrics.drafted,
    ),
    (
        Family("vllm:spec_decode_num_accepted_tokens", "Accepted draft tokens."),
        lambda state: state.telemetry.metrics.accepted,
    ),
    (
        Family("llama_gateway_steps", "Steps of the engine."),
        lambda state: state.telemetry.metrics.steps,
    ),
    (
        Family("llama_gateway_adapter_changes", "Steps with other LoRA adapters than the step before."),
        lambda state: state.telemetry.metrics.adapter_changes,
    ),
    (
        Family("llama_gateway_whole_rows", "Rows whose logits of the whole vocabulary were copied to the host."),
        lambda state: state.telemetry.metrics.whole_rows,
    ),
    (
        Family("llama_gateway_aborted_steps", "Steps that were aborted, because all their requests were cancelled."),
        lambda state: state.telemetry.metrics.aborted,
    ),
    (
        Family("llama_gateway_embeddings", "Embedded inputs."),
        lambda state: state.telemetry.metrics.embeddings,
    ),
    (
        Family("llama_gateway_embedding_tokens", "Tokens computed for embeddings."),
        lambda state: state.telemetry.metrics.embedding_tokens,
    ),
    (
        Family("llama_gateway_engine_restarts", "Engine processes that replaced another one, which had died."),
        lambda state: state.telemetry.restarts,
    ),
)

_HISTOGRAMS: tuple[tuple[Family, Callable[[_State], Histogram]], ...] = (
    (
        Family(
            "vllm:inter_token_latency_seconds",
            "Time between two pieces of a stream's text; without a stream the mean time of a token, once a token.",
        ),
        lambda state: state.telemetry.token_gaps,
    ),
    (
        Family("vllm:iteration_tokens_total", "Tokens that a step computed."),
        lambda state: state.telemetry.step_tokens,
    ),
)
_BY_POSITION = Family(
    "vllm:spec_decode_num_accepted_tokens_per_pos",
    "Accepted draft tokens by their position in the draft, from 0.",
    (*MODEL, "position"),
)
_CACHE = Family("vllm:cache_config", "The KV cache, in blocks as vLLM has them.")


class EngineCollector:
    """Metrics of the engines of all models."""

    def __init__(self, models: Sequence[Model]) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        states = [
            _State(model.name, model.telemetry, model.status, model.info, model.source.waiting)
            for model in self._models
        ]
        for family, value in _GAUGES:
            yield family.gauge({(state.name, ENGINE): float(value(state)) for state in states})
        for family, value in _COUNTERS:
            yield family.counter({(state.name, ENGINE): float(value(state)) for state in states})
        yield _BY_POSITION.counter(
            {
                (state.name, ENGINE, str(position)): tokens
                for state in states
                for position, tokens in enumerate(state.telemetry.metrics.accepted_by_position)
            }
        )
        for family, histogram in _HISTOGRAMS:
            yield family.histogram({(state.name, ENGINE): histogram(state) for state in states})
        info = InfoMetricFamily(_CACHE.name, _CACHE.about, labels=MODEL)
        for state in states:
            blocks = {"block_size": str(BLOCK), "num_gpu_blocks": str(state.cells // BLOCK)}
            blocks |= {"cache_dtype": state.cell_types}
            info.add_metric((state.name, ENGINE), {**blocks, "enable_prefix_caching": "True"})
        yield info
