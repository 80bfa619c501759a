"""A model with its engine, as requests use it."""

from collections.abc import Callable, Mapping
from copy import copy
from enum import Enum, auto

from engine import EmbeddingRequest, EmbeddingResult, Engine, ModelInfo
from gateway.limits.bounds import embedding_bound
from gateway.limits.limiter import Limiter
from gateway.middleware.caller import Caller
from gateway.serving.field_names import naming
from gateway.serving.generations import ChooseAdapters, Generations, fields_of
from gateway.serving.loaded import loaded_model
from gateway.serving.prompts import ChatPrompts
from gateway.serving.recorder import Recorder


class Task(Enum):
    """Use of a model by a request."""

    GENERATE = auto()
    """Generation of text."""
    EMBED = auto()
    """Computation of embeddings."""
    RANK = auto()
    """Scoring of documents."""
    TOKENIZE = auto()
    """Conversion between text and tokens."""


class Served:
    """One model with its engine, and the objects that requests need. A request has it until its end."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        fingerprint: Callable[[], str],
        *,
        prompts: ChatPrompts,
        generations: Generations,
        recorder: Recorder,
        limiter: Limiter,
    ) -> None:
        self.engine = engine
        """Runs the model."""
        self.name = name
        """Name in answers."""
        self._fingerprint = fingerprint
        self.prompts = prompts
        """Converts conversations to the model's prompts."""
        self.generations = generations
        """Runs generation requests."""
        self._recorder, self._limiter = recorder, limiter

    @property
    def fingerprint(self) -> str:
        """Changes where the same request may have another answer. Known once the model is loaded."""
        return self._fingerprint()

    def adapted(
        self, name: str, fingerprint: Callable[[], str], adapters: ChooseAdapters, recorder: Recorder
    ) -> "Served":
        """Return the model with other LoRA adapters: with a name, a fingerprint and records of its own."""
        other = copy(self)
        other.name, other._fingerprint = name, fingerprint  # noqa: SLF001 - its own class
        other.generations = self.generations.with_adapters(adapters, recorder)
        return other

    @property
    def loaded(self) -> ModelInfo:
        """The loaded model.

        Raises:
            Unavailable: no model is loaded yet.
        """
        return loaded_model(self.engine)

    async def embed(
        self, caller: Caller, request: EmbeddingRequest, names: Mapping[str, str] | None = None
    ) -> EmbeddingResult:
        """Wait for the vectors or scores of all inputs and return them. The request takes its turn as the caller's.

        Args:
            caller: the sender of the request.
            request: the request.
            names: map the engine's field names to the client's, for errors that name a field.

        Raises:
            EngineError: the engine refused or failed the request.
            RefusedError: a limit of the caller's key is reached (429).
        """
        request = request.replaced(**fields_of(caller, request))

        def accepted() -> None:
            caller.release_body()
            recording.accept()

        with naming(names or {}), self._recorder.embedding(caller, request) as recording:
            async with self._limiter.admitted(recording.record, embedding_bound(request)):
                return await self.engine.embed(request, why=caller.why, accepted=accepted, on_end=recording.summarize)
