"""Registry of served models, through which all requests reach an engine."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from enum import Enum, auto
from pathlib import Path

from engine import EmbeddingRequest, EmbeddingResult, Engine, ModelInfo, Unavailable
from gateway import __version__
from gateway.hub.reference import SCHEME, HubReference
from gateway.limits.bounds import embedding_bound
from gateway.limits.limiter import Limiter
from gateway.middleware.caller import Caller
from gateway.middleware.errors import Problem, RefusedError
from gateway.serving.adapters import Adapter, Adapters
from gateway.serving.generations import Generations, in_turns_of
from gateway.serving.prompts import ChatPrompts
from gateway.serving.recorder import Recorder

_EMBEDS = "computes embeddings here, and does not generate text"
DEFAULT = "default"
"""Name of the default model on every server, for clients that must send a name."""


class Task(Enum):
    """Use of a model by a request."""

    GENERATE = auto()
    """Generation of text."""
    EMBED = auto()
    """Computation of embeddings."""
    TOKENIZE = auto()
    """Conversion between text and tokens."""


class Served:
    """One served model: its engine and the objects that requests need."""

    def __init__(  # noqa: PLR0913 - the parts of a model
        self,
        engine: Engine,
        name: str,
        place: Path | HubReference,
        *,
        tasks: frozenset[Task],
        prompts: ChatPrompts,
        generations: Generations,
        recorder: Recorder,
        limiter: Limiter,
        adapters: Adapters,
    ) -> None:
        self.engine = engine
        """Runs the model."""
        self.name = name
        """Name in answers."""
        self.names = names_of(name, place)
        """Names that requests may use."""
        self.parent: str | None = None
        """Name of the model without its LoRA adapter; unset for a model without one."""
        self.adapters = adapters
        """LoRA adapters of the model."""
        self.tasks = tasks
        """Tasks that the model may be used for."""
        self.prompts = prompts
        """Converts conversations to the model's prompts."""
        self.generations = generations
        """Runs generation requests."""
        self._recorder, self._limiter = recorder, limiter
        self._place = place
        self._adapter: Path | None = None
        self._identity: tuple[int, str] | None = None
        self._identify()

    @property
    def created(self) -> int:
        """Modification time of the file, in seconds since 1970; 0 while it is being downloaded."""
        return self._identify()[0]

    @property
    def fingerprint(self) -> str:
        """Changes with the program's version or the file, since the same request may then have another answer."""
        return self._identify()[1]

    def _identify(self) -> tuple[int, str]:
        """Return the time and the fingerprint of the file as it was when it was first seen."""
        if self._identity is None:
            file = self.engine.file if isinstance(self._place, HubReference) else str(self._place)
            if file is None:
                return 0, ""
            self._identity = _identity(Path(file), *([] if self._adapter is None else [self._adapter]))
        return self._identity

    def adapted(self, adapter: Adapter, recorder: Recorder) -> "Served":
        """Return the model with a LoRA adapter: on the same engine, with a name and records of its own."""
        other = copy(self)
        other.name, other.names, other.parent = f"{self.name}:{adapter.name}", adapter.names(self.names), self.name
        other.tasks = self.tasks - {Task.EMBED}
        other.generations = self.generations.with_adapters(adapter.chosen, recorder)
        other._adapter, other._identity = adapter.file, None  # noqa: SLF001 - its own
        return other

    @property
    def loaded(self) -> ModelInfo:
        """The loaded model.

        Raises:
            Unavailable: no model is loaded yet.
        """
        if self.engine.model is None:
            detail, wait = self.engine.status.detail, self.engine.seconds_to_ready
            raise Unavailable(detail, code="engine_unavailable", retry_after=wait)
        return self.engine.model

    async def embed(self, caller: Caller, request: EmbeddingRequest) -> EmbeddingResult:
        """Wait for the vectors of all inputs and return them. The request takes its turn among clients as the caller's.

        Raises:
            EngineError: the engine refused or failed the request.
            RefusedError: a limit of the caller's key is reached (429).
        """
        request = in_turns_of(request, caller)

        def accepted() -> None:
            caller.release_body()
            recording.accept()

        with (
            self._recorder.embedding(caller, request) as recording,
            self._limiter.admitted(recording.record, embedding_bound(request)),
        ):
            return await self.engine.embed(request, why=caller.why, accepted=accepted, on_end=recording.summarize)


class Models:
    """The served models, by name and by task."""

    def __init__(
        self, served: Sequence[Served], defaults: Mapping[Task, Served], adapted: Sequence[Served] = ()
    ) -> None:
        """Register the models.

        Args:
            served: all models, in the order of the list that clients get.
            defaults: the model of each task for requests without a model name.
            adapted: the models with LoRA adapters, in order.
        """
        self.all = tuple(served)
        """All models without LoRA adapters, in order. Each has an engine of its own."""
        self.named = (*served, *adapted)
        """All models that requests can name, in order."""
        self._defaults = defaults

    async def resolve(self, caller: Caller, name: str | None, task: Task = Task.GENERATE) -> Served:
        """Return the model for a request. A coroutine, so that it may wait for a model.

        Args:
            caller: sender of the request.
            name: as the client sent it; None or `default` selects the task's default.
            task: the use of the model.

        Raises:
            RefusedError: 404 for an unknown name; 403 for a model that the caller may not use; 400 for a model that
                does not support the task.
        """
        served = self.find(caller, name, task)
        if task not in served.tasks:
            other = "generates text here, and computes no embeddings" if task is Task.EMBED else _EMBEDS
            message = f"The model {served.name!r} {other}."
            raise RefusedError(Problem(status=400, message=message, code="unsupported_model", param="model"))
        return served

    def find(self, caller: Caller, name: str | None, task: Task = Task.GENERATE) -> Served:
        """Return the model with this name, in any state. The arguments are those of `resolve`.

        Raises:
            RefusedError: 404 for an unknown name; 403 for a model that the caller may not use.
        """
        default = self._defaults[task] if name is None or name == DEFAULT else None
        served = default or next((served for served in self.named if name in served.names), None)
        if served is None:
            raise RefusedError(_unknown(str(name), self.allowed(caller)))
        if not caller.may_use(served.names):
            message = f"This API key may not use the model {name or DEFAULT!r}."
            raise RefusedError(Problem(status=403, message=message, code="model_not_allowed", param="model"))
        return served

    def allowed(self, caller: Caller) -> list[Served]:
        """Return the models that a caller may use, in any state, in order."""
        return [served for served in self.named if caller.may_use(served.names)]


def names_of(name: str, place: Path | HubReference) -> set[str]:
    """Return the names that requests may use for a model."""
    if isinstance(place, HubReference):
        return {name, place.name, str(place), str(place).removeprefix(SCHEME)}
    return {name, place.stem, place.name}


def _identity(*files: Path) -> tuple[int, str]:
    """Return the time of the last file, and the fingerprint of all."""
    states = [(file.name, file.stat()) for file in files]
    text = " ".join([__version__, *(f"{name} {state.st_size} {state.st_mtime_ns}" for name, state in states)])
    return int(states[-1][1].st_mtime), f"fp_{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _unknown(name: str, allowed: Iterable[Served]) -> Problem:
    here = " and ".join(repr(served.name) for served in allowed) or "none that this API key may use"
    message = f"The model {name[:100]!r} does not exist; this server has {here}."
    return Problem(status=404, message=message, code="model_not_found", param="model")
