"""Generation requests on one engine: admission, deadlines, cancellation."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from engine import AdapterSet, EmbeddingRequest, Engine, Finished, GenerationRequest, adapter_set
from gateway.limits.bounds import generation_bound
from gateway.limits.limiter import Limiter
from gateway.middleware.caller import Caller
from gateway.serving.admission import Admission
from gateway.serving.field_names import naming
from gateway.serving.generation_source import Encode, GenerationSource
from gateway.serving.prefixes import PromptLabels
from gateway.serving.recorder import Recorder
from gateway.serving.records import Operation
from gateway.serving.sampling_defaults import SamplingDefaults


@dataclass(frozen=True, slots=True)
class GenerationResult:
    """Result of a request without streaming."""

    prompt_tokens: tuple[int, ...]
    """Number of tokens of each prompt."""
    outcomes: tuple[Finished, ...]
    """Final event of each choice, in order of choice."""


_OWN_DEFAULTS = frozenset({"stop", "keep"})
"""Defaults that are fields of the request itself."""

ChooseAdapters = Callable[[Caller, GenerationRequest], GenerationRequest]
"""Sets the LoRA adapters of a request, or raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationTerms:
    """Limits and defaults of all generation requests for a model."""

    max_tokens: int | None
    """Maximum length of a choice whose request sets no maximum; None sets no limit."""
    queue_timeout: float
    """Maximum time that a request waits for a slot, in seconds."""
    patience: float
    """Maximum time that a client leaves text unread, in seconds."""
    stream_interval: float = 0.0
    """Minimum time between two pieces of a stream, in seconds."""
    defaults: SamplingDefaults = field(default_factory=SamplingDefaults)
    """Values of fields that clients do not set."""


class Generations:
    """Runs generation requests on one engine within the server's limits. Leaving a request early cancels it.

    The methods' `names` map the engine's field names to the client's, for errors that name a field. `operation` is the
    kind of the request in its record.
    """

    def __init__(
        self,
        engine: Engine,
        recorder: Recorder,
        limiter: Limiter,
        *,
        terms: GenerationTerms,
        adapters: ChooseAdapters,
        labels: PromptLabels | None = None,
    ) -> None:
        """Set the terms of all requests.

        Args:
            engine: runs the requests.
            recorder: records each request, whatever its end.
            limiter: admits each request within the limits of its key.
            terms: the server's limits and defaults.
            adapters: sets the LoRA adapters of each request.
            labels: labels each request, if the prefixes that the engine holds are reported.
        """
        self._engine = engine
        self._recorder = recorder
        self._limiter = limiter
        self._terms = terms
        self._adapters = adapters
        self._labels = labels
        self._open: Counter[tuple[str, str]] = Counter()

    def with_adapters(self, adapters: ChooseAdapters, recorder: Recorder) -> "Generations":
        """Return generations on the same engine whose LoRA adapters `adapters` sets, with records of their own."""
        other = copy(self)
        other._adapters, other._recorder = adapters, recorder  # noqa: SLF001 - its own class
        return other

    async def run(
        self,
        caller: Caller,
        request: GenerationRequest,
        names: Mapping[str, str] | None = None,
        *,
        operation: Operation,
    ) -> GenerationResult:
        """Wait for the complete answer and return it.

        Raises:
            EngineError: the engine refused or failed the request; `Busy` if it waited too long for a slot.
            RefusedError: a limit of the caller's key is reached (429).
        """
        async with self.open(caller, request, names, operation=operation) as admission:
            generation = await admission.granted()
            return GenerationResult(generation.prompt_tokens, await generation.outcomes())

    def stream(
        self,
        caller: Caller,
        request: GenerationRequest,
        encode: Encode,
        names: Mapping[str, str] | None = None,
        *,
        operation: Operation,
    ) -> GenerationSource:
        """Return the answer as a source of encoded events.

        Opening the source and taking from it raise the errors of `run`.
        """
        submit = partial(self.open, caller, request, names, operation=operation)
        return GenerationSource(submit, encode, self._terms.stream_interval)

    @asynccontextmanager
    async def open(
        self,
        caller: Caller,
        request: GenerationRequest,
        names: Mapping[str, str] | None = None,
        *,
        operation: Operation,
    ) -> AsyncIterator[Admission]:
        """Send a request to the engine. Entering waits until the engine accepts it; leaving early cancels it.

        The request takes its turn among clients as the caller's, and shares cached prompts only within the caller's
        partition. Raises the errors of `run`.
        """
        deadline = anyio.current_time() + self._terms.queue_timeout
        request = self.with_defaults(_of_caller(request, caller, self._terms.max_tokens))
        with (
            naming(names or {}),
            self._counted((caller.credentials, request.id)),
            self._recorder.generation(caller, request, operation) as recording,
        ):
            async with (
                self._limiter.admitted(recording.record, self._bound(request)) as correct,
                self._engine.generate(
                    request := self._labelled(self._adapters(caller, request)),
                    why=caller.why,
                    patience=self._terms.patience,
                    deadline=deadline,
                    on_end=recording.summarize,
                ) as generation,
            ):
                caller.release_body()
                recording.accept()
                if self._labels is not None:
                    self._labels.count(request, generation.prompt_tokens)
                correct(self._bound(request, generation.prompt_tokens))
                queue_seconds = partial(self._engine.queue_seconds, request)
                yield Admission(generation, caller.closing, deadline, queue_seconds)

    def with_defaults(self, request: GenerationRequest) -> GenerationRequest:
        """Return the request with the defaults of the server and the model in place of what its client does not set."""
        defaults = self._terms.defaults.for_model(self._engine.model)
        if not defaults:
            return request
        free = {name: value for name, value in defaults.items() if name not in request.given}
        own = {name: free.pop(name) for name in _OWN_DEFAULTS & free.keys()}
        sampling = request.sampling.replaced(**free)
        return request.replaced(**own, sampling=sampling)

    def adapters_of(self, caller: Caller) -> AdapterSet:
        """Return the LoRA adapters of requests that choose none by their ids."""
        return adapter_set(self._adapters(caller, GenerationRequest(id="", prompts=())).adapters or ())

    def _labelled(self, request: GenerationRequest) -> GenerationRequest:
        return request if self._labels is None else self._labels.label(request)

    def _bound(self, request: GenerationRequest, prompt_tokens: Sequence[int] | None = None) -> int:
        model = self._engine.model
        context, shifts = (model.context, model.shifts) if model else (0, False)
        return generation_bound(request, context, prompt_tokens, shifts=shifts)

    def has_sent(self, caller: Caller, request_id: str | None) -> bool:
        """Return True if a request with this id is open and has the same credentials as the caller."""
        return (caller.credentials, request_id) in self._open

    @contextmanager
    def _counted(self, key: tuple[str, str]) -> Iterator[None]:
        self._open[key] += 1
        try:
            yield
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]


def fields_of(caller: Caller, request: GenerationRequest | EmbeddingRequest) -> dict[str, Any]:
    """Return the fields of a request that its caller sets: its id, and by what it takes its turn in the queue.

    A priority of the request itself comes before that of the key.
    """
    fields: dict[str, Any] = {"id": caller.request_id, "client": caller.client}
    key = caller.key
    if key is None:
        return fields
    priority = key.priority if request.priority is None else request.priority
    return {**fields, "weight": key.weight, "priority": priority}


def _of_caller(request: GenerationRequest, caller: Caller, max_tokens: int | None) -> GenerationRequest:
    """Return the request as its caller's: in its turns among clients, and in its partition of the prompt cache.

    Without the partition, response times would reveal other callers' prompts.
    """
    partition = partition_of(caller, request.cache_partition)
    default = max_tokens if request.default_max_tokens is None else request.default_max_tokens
    return request.replaced(**fields_of(caller, request), cache_partition=partition, default_max_tokens=default)


def partition_of(caller: Caller, salt: str = "") -> str:
    """Return the partition of the prompt cache for a caller and the salt of a request."""
    return f"{caller.cache_partition} {salt}" if caller.cache_partition else salt
