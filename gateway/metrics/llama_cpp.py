"""Metrics under llama-server's names, for dashboards made for it. They are without labels: sums over all models."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import add

from prometheus_client.core import Metric

from engine import EngineMetrics
from gateway.metrics.families import Family
from gateway.metrics.sequences import running, waiting
from gateway.serving.model import Model
from gateway.serving.records import Outcome, RequestRecord

LONGEST = "llamacpp:n_tokens_max"
"""A maximum, which llama-server calls a counter."""


class LlamaCppCollector:
    """Metrics of all models, from what the engines sent last and from the records of requests that have ended."""

    def __init__(self, models: Sequence[Model]) -> None:
        self._models = models
        self._prompt_seconds = 0.0
        self._predicted_seconds = 0.0
        self._prompt_tokens = 0
        self._predicted_tokens = 0
        self._longest = 0
        self._latest: dict[str, EngineMetrics] = {}
        self._deleted = Counter[str]()

    def observe(self, record: RequestRecord) -> None:
        """Add a request that has ended."""
        if record.outcome is None:
            return
        # The times of others are those of some of their choices, or none. Speeds need both times and tokens.
        if record.outcome is Outcome.FINISHED and record.operation.generates:
            self._prompt_seconds += record.prefill_seconds
            self._predicted_seconds += record.decode_seconds
            self._prompt_tokens += record.prompt_tokens - record.cached_tokens
            self._predicted_tokens += record.completion_tokens
        if record.longest_choice:
            self._longest = max(self._longest, record.prompt_tokens + record.longest_choice)

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        latest = {model.name: model.telemetry.metrics for model in self._models}
        self._keep_deleted(latest)
        metrics = reduce(add, latest.values(), EngineMetrics())
        held_up = sum(model.telemetry.waiting + model.source.waiting for model in self._models)
        for name, about, value in _COUNTERS:
            yield _family(name, about).counter({(): value(metrics) + self._deleted[name]})
        yield _family("prompt_seconds", "Time of the prompts of finished requests.").counter({(): self._prompt_seconds})
        yield _family("tokens_predicted_seconds", "Time of the generation of finished requests.").counter(
            {(): self._predicted_seconds}
        )
        yield Family(LONGEST, "Tokens of the longest request.", ()).gauge({(): self._longest})
        gauges = {
            "prompt_tokens_seconds": ("Prompt tokens a second.", _ratio(self._prompt_tokens, self._prompt_seconds)),
            "predicted_tokens_seconds": (
                "Generated tokens a second of a request.",
                _ratio(self._predicted_tokens, self._predicted_seconds),
            ),
            "requests_processing": ("Sequences that run.", running(metrics)),
            "requests_deferred": ("Requests that wait.", waiting(metrics) + held_up),
            "n_busy_slots_per_decode": ("Rows of a step.", _ratio(metrics.rows_decoded, metrics.steps)),
        }
        for name, (about, number) in gauges.items():
            yield _family(name, about).gauge({(): number})

    def _keep_deleted(self, latest: dict[str, EngineMetrics]) -> None:
        """Keep the counts of models that were deleted, and perhaps pulled again: the sums never fall."""
        for name, _, value in _COUNTERS:
            for model, before in self._latest.items():
                if value(latest.get(model, EngineMetrics())) < (count := value(before)):
                    self._deleted[name] += count
        self._latest = latest


def _prompt(metrics: EngineMetrics) -> int:
    return metrics.computed_prompt_tokens + metrics.embedding_tokens


_COUNTERS: tuple[tuple[str, str, Callable[[EngineMetrics], int]], ...] = (
    ("prompt_tokens", "Prompt tokens that were computed.", _prompt),
    ("prompt_tokens_cached", "Prompt tokens that were cached.", lambda metrics: metrics.reused_prompt_tokens),
    ("tokens_predicted", "Generated tokens.", lambda metrics: metrics.generated_tokens),
    ("n_decode", "Steps.", lambda metrics: metrics.steps),
    ("spec_decode_num_draft_tokens", "Computed draft tokens.", lambda metrics: metrics.drafted),
    ("spec_decode_num_accepted_tokens", "Accepted draft tokens.", lambda metrics: metrics.accepted),
    ("spec_decode_num_drafts", "Times that draft tokens were computed.", lambda metrics: metrics.drafts),
)


def _family(name: str, about: str) -> Family:
    return Family(f"llamacpp:{name}", about, ())


def _ratio(amount: float, per: float) -> float:
    """Return the ratio, or 0 if the divisor is 0."""
    return amount / per if per > 0 else 0.0
