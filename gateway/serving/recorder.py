"""Records of the requests to one model: each begins once and ends once, whatever happens to the request."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import anyio

from engine import EmbeddingRequest, EngineError, EngineFault, GenerationRequest, RequestSummary
from gateway.middleware.caller import Caller, Cause
from gateway.middleware.errors import RefusedError
from gateway.serving.records import Operation, Outcome, RecordObserver, RequestRecord

logger = logging.getLogger(__name__)

INTERNAL_ERROR = "internal_error"
"""Cause of a failure of this process."""
_CANCELS: set[str] = {Cause.QUEUE_TIMEOUT, Cause.SLOW_READER}
"""Causes of cancels that are raised as errors of the engine with these codes."""


class Recording:
    """Record of one request while it runs."""

    def __init__(self, record: RequestRecord, show: Callable[[RequestRecord], None]) -> None:
        self.record = record
        """Record of the request, complete after its context was left."""
        self._show = show
        self._summary: RequestSummary | None = None

    def accept(self) -> None:
        """Record that the engine has accepted the request."""
        self.record.accepted = True
        self._show(self.record)

    def summarize(self, summary: RequestSummary) -> None:
        """Copy the engine's summary of the request to the record."""
        self._summary = summary
        record = self.record
        record.accepted_at = summary.accepted_at
        record.started_at = summary.started_at
        record.first_token_at = summary.first_token_at
        record.replayed = summary.replayed
        record.prompt_tokens = summary.prompt_tokens
        record.cached_tokens = summary.cached_tokens
        record.completion_tokens = summary.completion_tokens
        record.longest_choice = summary.longest_choice
        record.wasted_tokens = summary.wasted_tokens
        record.drafted_tokens = summary.drafted_tokens
        record.accepted_draft_tokens = summary.accepted_draft_tokens
        record.prefill_seconds = summary.prefill_seconds
        record.decode_seconds = summary.decode_seconds
        record.release_seconds = summary.release_seconds
        record.phase = summary.phase
        record.finish_reasons = tuple(reason.value for reason in summary.finish_reasons)

    def end(self, error: BaseException | None) -> None:
        """Set the end of the record.

        Args:
            error: exception that left the request's context; unset without one.
        """
        record = self.record
        record.ended_at = anyio.current_time() if self._summary is None else self._summary.ended_at
        record.phase = record.phase or "intake"
        record.outcome, record.cause = self._conclude(error)

    def _conclude(self, error: BaseException | None) -> tuple[Outcome, str]:
        """Return the outcome and its cause. A success of the engine stays one, even if its client has left since."""
        if self._summary is not None and self._summary.finished:
            return Outcome.FINISHED, ""
        if isinstance(error, EngineError):
            code = error.code or type(error).__name__
            if code in _CANCELS:
                return Outcome.CANCELLED, code
            refused = self.record.accepted_at is None and not isinstance(error, EngineFault)
            return (Outcome.REFUSED if refused else Outcome.FAILED), code
        code = (error.problem.code or type(error).__name__) if isinstance(error, RefusedError) else INTERNAL_ERROR
        if isinstance(error, RefusedError) and self._summary is None:
            return Outcome.REFUSED, code
        cause = self.record.caller.closed().cause
        if isinstance(error, Exception) and cause is None:
            return Outcome.FAILED, code
        return Outcome.CANCELLED, cause or Cause.CANCELLED


class Recorder:
    """Makes the records of the requests to one model, and passes them to the observers."""

    def __init__(self, model: str, observers: Sequence[RecordObserver] = ()) -> None:
        """Create the recorder of a model with this name in answers."""
        self._model = model
        self._observers = observers

    def generation(
        self, caller: Caller, request: GenerationRequest, operation: Operation
    ) -> AbstractContextManager[Recording]:
        """Record a generation that runs inside the context."""
        record = RequestRecord(
            caller=caller,
            model=self._model,
            operation=operation,
            stream=request.stream,
            choices=request.parts,
            sampling=request.sampling,
            max_tokens=request.max_tokens if request.max_tokens is not None else request.default_max_tokens,
            arrived_at=anyio.current_time(),
        )
        return self._open(record)

    def embedding(self, caller: Caller, request: EmbeddingRequest) -> AbstractContextManager[Recording]:
        """Record a request for embeddings or scores that runs inside the context."""
        record = RequestRecord(
            caller=caller,
            model=self._model,
            operation=Operation.EMBEDDINGS if request.ranking is None else Operation.RERANK,
            choices=request.parts,
            arrived_at=anyio.current_time(),
        )
        return self._open(record)

    @contextmanager
    def _open(self, record: RequestRecord) -> Iterator[Recording]:
        self._show(record)
        recording = Recording(record, self._show)
        try:
            yield recording
        except BaseException as error:
            recording.end(error)
            raise
        else:
            recording.end(None)
        finally:
            self._show(record)

    def _show(self, record: RequestRecord) -> None:
        """Call the observers. A failure of one harms neither the request nor the other observers."""
        for observe in self._observers:
            try:
                observe(record)
            except Exception:
                logger.exception("a record of a request could not be observed")
