"""The registry of served models: the only way from a request to an engine."""

import hashlib
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from pathlib import Path

from engine import EmbeddingRequest, EmbeddingResult, Engine, ModelInfo, Unavailable
from gateway import __version__
from gateway.middleware.caller import Caller
from gateway.middleware.errors import Problem, RefusedError
from gateway.serving.generations import Generations
from gateway.serving.prompts import ChatPrompts

DEFAULT = "default"
"""Names the default model on every server, for clients that must send some name."""


class Task(Enum):
    """The use of a model by a request."""

    GENERATE = auto()
    EMBED = auto()
    TOKENIZE = auto()


class Served:
    """One served model: its engine, and all that requests need of it."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        file: Path,
        *,
        tasks: frozenset[Task],
        prompts: ChatPrompts,
        generations: Generations,
    ) -> None:
        self.engine = engine
        """Runs the model."""
        self.name = name
        """The name in answers."""
        self.names = {name, file.stem, file.name}
        """The names that requests may use."""
        self.tasks = tasks
        """The tasks that requests may name this model for."""
        self.prompts = prompts
        """Turns conversations into the model's prompts."""
        self.generations = generations
        """Runs generation requests."""
        state = file.stat()
        self.created = int(state.st_mtime)
        """When the file was written, in seconds since 1970."""
        identity = f"{__version__} {file.name} {state.st_size} {state.st_mtime_ns}"
        self.fingerprint = f"fp_{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
        """Changes where the same request may be answered differently: with the program or the file."""

    @property
    def loaded(self) -> ModelInfo:
        """The loaded model. Raises `Unavailable` where none is loaded yet."""
        if self.engine.model is None:
            raise Unavailable(self.engine.status.detail, code="engine_unavailable")
        return self.engine.model

    async def embed(self, caller: Caller, request: EmbeddingRequest) -> EmbeddingResult:
        """Wait for the vectors of all inputs. Raises `EngineError`."""
        return await self.engine.embed(request, why=caller.why)


class Models:
    """The served models, by name and by task."""

    def __init__(self, served: Sequence[Served], defaults: Mapping[Task, Served]) -> None:
        """Hold models.

        Args:
            served: every model, in the order in which clients see them.
            defaults: the model of each task for requests that name none.
        """
        self.all = tuple(served)
        """Every model, in order."""
        self._defaults = defaults

    async def resolve(self, name: str | None, task: Task = Task.GENERATE) -> Served:
        """Return the model for a request. A coroutine, because a model may have to be waited for.

        Args:
            name: as the client sent it; None or `default` takes the task's default.
            task: the use of the model.

        Raises:
            RefusedError: 404 for a name that no model has; 400 for a model that cannot do the task.
        """
        served = self._defaults[task] if name is None or name == DEFAULT else self.find(name)
        if task not in served.tasks:
            message = f"The model {served.name!r} computes embeddings here; {self._defaults[task].name!r} generates."
            raise RefusedError(Problem(status=400, message=message, code="unsupported_model", param="model"))
        return served

    def find(self, name: str) -> Served:
        """Return the model of this name, whatever its state. Raises `RefusedError`, a 404."""
        if name == DEFAULT:
            return self._defaults[Task.GENERATE]
        for served in self.all:
            if name in served.names:
                return served
        here = " and ".join(repr(served.name) for served in self.all)
        message = f"The model {name[:100]!r} does not exist; this server has {here}."
        raise RefusedError(Problem(status=404, message=message, code="model_not_found", param="model"))
