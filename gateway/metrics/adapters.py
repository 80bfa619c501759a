"""LoRA adapters as vLLM shows them, so that the endpoint picker of Kubernetes knows which server has which."""

import time
from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import Metric

from engine import EngineState
from gateway.metrics.families import Family
from gateway.serving.model import Model

_ADAPTERS = Family(
    "vllm:lora_requests_info",
    "The names of loaded LoRA adapters, as requests have them. The value is the time. Absent without adapters.",
    ("max_lora", "waiting_lora_adapters", "running_lora_adapters"),
)


class AdapterCollector:
    """Names of the LoRA adapters of all models, in one series: the picker reads only the one with the latest time."""

    def __init__(self, models: Sequence[Model], clock: Callable[[], float] = time.time) -> None:
        self._models = models
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        adapted = [model for model in self._models if model.adapters.all]
        loaded = [model for model in adapted if model.status.state is EngineState.READY]
        names = sorted(name for model in loaded for name in model.adapters.names)
        total = sum(len(model.adapters.all) for model in adapted)
        yield _ADAPTERS.gauge({(str(total), "", ",".join(names)): self._clock()} if adapted else {})
