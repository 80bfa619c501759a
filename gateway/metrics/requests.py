"""Metrics of the requests for a model, counted from their records."""

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric

from gateway.metrics import buckets
from gateway.metrics.exemplars import ExemplarHistogram
from gateway.metrics.families import ENGINE, MODEL, Family
from gateway.serving.records import Operation, Outcome, RequestRecord

_HISTOGRAMS = {
    "time_to_first_token": (
        Family(
            "vllm:time_to_first_token_seconds", "Time from the arrival of a request at the engine to its first token."
        ),
        buckets.FIRST_TOKEN,
    ),
    "queue": (
        Family(
            "vllm:request_queue_time_seconds",
            "Time from the arrival of a request at the engine until it left the queue.",
        ),
        buckets.REQUEST,
    ),
    "prefill": (
        Family("vllm:request_prefill_time_seconds", "Time from the end of the queue to the first token."),
        buckets.REQUEST,
    ),
    "decode": (
        Family("vllm:request_decode_time_seconds", "Time from the first token of a finished request to its end."),
        buckets.REQUEST,
    ),
    "inference": (
        Family("vllm:request_inference_time_seconds", "Time from the end of the queue to the end of the request."),
        buckets.REQUEST,
    ),
    "latency": (
        Family(
            "vllm:e2e_request_latency_seconds", "Time from the arrival of a finished request at the engine to its end."
        ),
        buckets.REQUEST,
    ),
    "per_token": (
        Family(
            "vllm:request_time_per_output_token_seconds",
            "Decode time of a finished request divided by the tokens after the first, of each choice on average.",
        ),
        buckets.PER_TOKEN,
    ),
    "prompt_tokens": (
        Family("vllm:request_prompt_tokens", "Prompt tokens of a finished request."),
        buckets.TOKENS,
    ),
    "generation_tokens": (
        Family("vllm:request_generation_tokens", "Generated tokens of a finished request, of all choices."),
        buckets.TOKENS,
    ),
    "longest_choice": (
        Family("vllm:request_max_num_generation_tokens", "Generated tokens of the longest choice of a request."),
        buckets.TOKENS,
    ),
    "max_tokens": (
        Family("vllm:request_params_max_tokens", "Maximum number of generated tokens of a choice, where one is set."),
        buckets.TOKENS,
    ),
    "choices": (
        Family("vllm:request_params_n", "Choices of a request, of all its prompts."),
        buckets.CHOICES,
    ),
    "release": (
        Family(
            "llama_gateway_release_seconds",
            "Time from the cancel of a request to the release of all it held in the engine.",
        ),
        buckets.RELEASE,
    ),
    "wasted": (
        Family(
            "llama_gateway_wasted_tokens",
            "Tokens that the running step still computed for a request after its cancel; without aborted steps.",
        ),
        buckets.WASTED,
    ),
}
_SUCCESS = Family(
    "vllm:request_success",
    "Choices that ended by stop or length, and requests that ended by abort (cancelled) or error (failed).",
    (*MODEL, "finished_reason"),
)
_REQUESTS = Family("llama_gateway_requests", "Requests for a model, by their kind.", (*MODEL, "operation"))
_OUTCOMES = Family(
    "llama_gateway_request_outcomes",
    "Requests that have ended. accepted = finished + failed + cancelled + running.",
    (*MODEL, "outcome"),
)
_IN_PROGRESS = Family("llama_gateway_requests_in_progress", "Requests that have not ended, in any phase.")
_ACCEPTED = Family(
    "llama_gateway_requests_accepted",
    "Requests that the engine accepted, and those that ended before it answered, but were not refused.",
)
_RUNNING = Family("llama_gateway_requests_running", "Accepted requests that have not ended, also those in the queue.")
_CANCELLATIONS = Family(
    "llama_gateway_cancellations", "Cancelled requests, by their phase and the cause.", (*MODEL, "phase", "cause")
)
_FAILURES = Family("llama_gateway_failures", "Failed requests, by the code of the error.", (*MODEL, "code"))
_REFUSALS = Family("llama_gateway_refusals", "Requests that the engine refused, by the reason.", (*MODEL, "reason"))
_REPLAYS = Family("llama_gateway_replays", "Requests that were sent to another engine after one had died.")
MOST_JOINED = 256
"""Models that have joined the server, some of which have left it again, whose counts are kept."""
_REASONS = {Outcome.CANCELLED: "abort", Outcome.FAILED: "error"}


class _ModelRequests:
    """Counts of the requests for one model."""

    def __init__(self) -> None:
        self.begun = Counter[tuple[str, ...]](dict.fromkeys(((name.value,) for name in Operation), 0))
        self.outcomes = Counter[tuple[str, ...]](dict.fromkeys(((name.value,) for name in Outcome), 0))
        self.success = Counter[tuple[str, ...]](dict.fromkeys((("stop",), ("length",), ("abort",), ("error",)), 0))
        self.cancellations = Counter[tuple[str, ...]]()
        self.failures = Counter[tuple[str, ...]]()
        self.refusals = Counter[tuple[str, ...]]()
        self.in_progress = 0
        self.accepted = 0
        self.running = 0
        self.replays = 0
        self.histograms = {name: ExemplarHistogram(bounds) for name, (_, bounds) in _HISTOGRAMS.items()}

    def begin(self, record: RequestRecord) -> None:
        """Count a request that begins."""
        self.begun[(record.operation.value,)] += 1
        self.in_progress += 1

    def accept(self) -> None:
        """Count a request that the engine has accepted."""
        self.accepted += 1
        self.running += 1

    def end(self, record: RequestRecord, outcome: Outcome) -> None:
        """Count a request that has ended."""
        self.in_progress -= 1
        self.running -= record.accepted
        self.accepted += not record.accepted and outcome is not Outcome.REFUSED
        self.outcomes[(outcome.value,)] += 1
        self.replays += record.replayed
        match outcome:
            case Outcome.CANCELLED:
                self.cancellations[record.phase, str(record.cause)] += 1
                self._add(record, "wasted", record.wasted_tokens)
                self._add(record, "release", record.release_seconds)
            case Outcome.FAILED:
                self.failures[(record.cause,)] += 1
            case Outcome.REFUSED:
                self.refusals[(record.cause,)] += 1
        if record.operation.generates:
            self._end_generation(record, outcome)

    def _end_generation(self, record: RequestRecord, outcome: Outcome) -> None:
        for reason in record.finish_reasons:
            self.success[(reason,)] += 1
        if outcome in _REASONS:
            self.success[(_REASONS[outcome],)] += 1
        self._add_time(record, "queue", record.arrived_at, record.started_at)
        self._add_time(record, "time_to_first_token", record.arrived_at, record.first_token_at)
        self._add_time(record, "prefill", record.started_at, record.first_token_at)
        if outcome is Outcome.FINISHED:
            self._add_time(record, "decode", record.first_token_at, record.ended_at)
            self._add_time(record, "inference", record.started_at, record.ended_at)
            self._add_time(record, "latency", record.arrived_at, record.ended_at)
            self._finish(record)

    def _finish(self, record: RequestRecord) -> None:
        self._add(record, "prompt_tokens", record.prompt_tokens)
        self._add(record, "generation_tokens", record.completion_tokens)
        self._add(record, "longest_choice", record.longest_choice)
        self._add(record, "choices", record.choices)
        self._add(record, "max_tokens", record.max_tokens)
        later = record.completion_tokens / record.choices - 1
        if record.first_token_at is not None and later > 0:
            self._add(record, "per_token", (record.ended_at - record.first_token_at) / later)

    def _add_time(self, record: RequestRecord, name: str, begin: float | None, end: float | None) -> None:
        if begin is not None and end is not None:
            self._add(record, name, end - begin)

    def _add(self, record: RequestRecord, name: str, value: float | None) -> None:
        if value is not None:
            self.histograms[name].add_from(record.caller.exchange, value)


class RequestMetrics:
    """Observer of the records, and their metrics. The models are labels; clients and keys are none."""

    def __init__(self, models: Iterable[str]) -> None:
        """Start with zeros for the models of these names."""
        self._models = {name: _ModelRequests() for name in models}
        self._named = len(self._models)

    def observe(self, record: RequestRecord) -> None:
        """Count a request that begins, is accepted or has ended."""
        requests = self._models.get(record.model) or self._join(record.model)
        if record.outcome is not None:
            requests.end(record, record.outcome)
        elif record.accepted:
            requests.accept()
        else:
            requests.begin(record)

    def _join(self, model: str) -> _ModelRequests:
        """Return new counts. The oldest of a model that joined and has no request now make room for them."""
        joined = list(self._models)[self._named :]
        idle = (name for name in joined if not self._models[name].in_progress)
        if len(joined) >= MOST_JOINED and (oldest := next(idle, None)) is not None:
            del self._models[oldest]
        requests = self._models[model] = _ModelRequests()
        return requests

    def collect(self) -> Iterator[Metric]:
        """Return the current values."""
        for name, (family, _) in _HISTOGRAMS.items():
            yield family.histogram({(model, ENGINE): own.histograms[name] for model, own in self._models.items()})
        yield _IN_PROGRESS.gauge({(model, ENGINE): own.in_progress for model, own in self._models.items()})
        yield _RUNNING.gauge({(model, ENGINE): own.running for model, own in self._models.items()})
        yield _ACCEPTED.counter({(model, ENGINE): own.accepted for model, own in self._models.items()})
        yield _REPLAYS.counter({(model, ENGINE): own.replays for model, own in self._models.items()})
        yield self._counter(_SUCCESS, "success")
        yield self._counter(_REQUESTS, "begun")
        yield self._counter(_OUTCOMES, "outcomes")
        yield self._counter(_CANCELLATIONS, "cancellations")
        yield self._counter(_FAILURES, "failures")
        yield self._counter(_REFUSALS, "refusals")

    def _counter(self, family: Family, name: str) -> Metric:
        counts = ((model, getattr(own, name)) for model, own in self._models.items())
        return family.counter(
            {(model, ENGINE, *labels): count for model, own in counts for labels, count in own.items()}
        )
