"""The rules by which llm-d's endpoint picker reads the metrics of a server and scores it, unconfigured.

They follow llm-d/llm-d-router at commit ebab687 (August 2026), below `pkg/epp/framework/plugins`:
`datalayer/extractor/metrics/{extractor,factories,spec,loraspec}.go` for reading, and `scheduling/scorer/{queuedepth,
runningrequests,kvcacheutilization,loraaffinity}` for the scores.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

SPECS = {
    "queuedRequestsSpec": "vllm:num_requests_waiting",
    "runningRequestsSpec": "vllm:num_requests_running",
    "kvUsageSpec": "vllm:kv_cache_usage_perc",
    "loraSpec": "vllm:lora_requests_info",
    "cacheInfoSpec": "vllm:cache_config_info",
}
"""The picker's own configuration of pods without the label `llm-d.ai/engine-type`, that of the engine `vllm`."""


@dataclass(frozen=True)
class Seen:
    """The picker's view of one server."""

    waiting: int
    running: int
    kv_usage: float
    block_size: int
    blocks: int
    max_adapters: int
    active: frozenset[str]
    pending: frozenset[str]


def extract(text: bytes, specs: Mapping[str, str] = SPECS) -> Seen:
    """Read a scrape as the picker does. A missing metric is an error, except that of the adapters."""
    series: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(text.decode()):
        if family.type in {"gauge", "counter"}:
            for sample in family.samples:
                series.setdefault(sample.name, []).append(sample)
    cache = first(series[specs["cacheInfoSpec"]]).labels
    adapters = newest(series.get(specs["loraSpec"], ()))
    return Seen(
        waiting=int(first(series[specs["queuedRequestsSpec"]]).value),
        running=int(first(series[specs["runningRequestsSpec"]]).value),
        kv_usage=first(series[specs["kvUsageSpec"]]).value,
        block_size=int(cache["block_size"]),
        blocks=int(cache["num_gpu_blocks"]),
        max_adapters=int(adapters.get("max_lora", "0")),
        active=_names(adapters.get("running_lora_adapters", "")),
        pending=_names(adapters.get("waiting_lora_adapters", "")),
    )


def first(samples: Sequence[Sample]) -> Sample:
    """Return the sample with the latest timestamp, of equal ones the first: without timestamps the first of all."""
    return max(samples, key=lambda sample: float(sample.timestamp or 0))


def newest(samples: Sequence[Sample]) -> Mapping[str, str]:
    """Return the labels of the sample with the largest value, which is a time; empty without any."""
    return max(samples, key=lambda sample: sample.value).labels if samples else {}


def _names(text: str) -> frozenset[str]:
    return frozenset(name for part in text.split(",") if (name := part.strip()))


def spread(values: Sequence[int]) -> list[float]:
    """Score the smallest value with 1 and the largest with 0, and equal values all with 1."""
    low, high = min(values), max(values)
    return [(high - value) / (high - low) if high > low else 1.0 for value in values]


def by_queue(servers: Sequence[Seen]) -> list[float]:
    """Return the scores of `queue-scorer`."""
    return spread([server.waiting for server in servers])


def by_running(servers: Sequence[Seen]) -> list[float]:
    """Return the scores of `running-requests-size-scorer`."""
    return spread([server.running for server in servers])


def by_kv_usage(servers: Sequence[Seen]) -> list[float]:
    """Return the scores of `kv-cache-utilization-scorer`."""
    return [1 - server.kv_usage for server in servers]


def by_adapter(servers: Iterable[Seen], model: str) -> list[float]:
    """Return the scores of `lora-affinity-scorer` for a request with this model."""
    return [_adapter_score(server, model) for server in servers]


def _adapter_score(server: Seen, model: str) -> float:
    if model in server.active:
        return 1.0
    if len(server.active) + len(server.pending) < server.max_adapters:
        return 0.8
    return 0.6 if model in server.pending else 0.0


SCORERS: Mapping[str, Callable[[Sequence[Seen]], list[float]]] = {
    "queue-scorer": by_queue,
    "running-requests-size-scorer": by_running,
    "kv-cache-utilization-scorer": by_kv_usage,
}
"""Scorers by the types of their plugins."""
