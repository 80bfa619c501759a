"""Registry of served models, through which all requests reach an engine."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from pathlib import Path

from engine import EmbeddingRequest, EmbeddingResult, Engine, ModelInfo, Unavailable
from gateway import __version__
from gateway.middleware.caller import Caller
from gateway.middleware.errors import Problem, RefusedError
from gateway.serving.generations import Generations
from gateway.serving.prompts import ChatPrompts
from gateway.serving.recorder import Recorder

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

    def __init__(
        self,
        engine: Engine,
        name: str,
        file: Path,
        *,
        tasks: frozenset[Task],
        prompts: ChatPrompts,
        generations: Generations,
        recorder: Recorder,
    ) -> None:
        self.engine = engine
        """Runs the model."""
        self.name = name
        """Name in answers."""
        self.names = {name, file.stem, file.name}
        """Names that requests may use."""
        self.tasks = tasks
        """Tasks that the model may be used for."""
        self.prompts = prompts
        """Converts conversations to the model's prompts."""
        self.generations = generations
        """Runs generation requests."""
        self._recorder = recorder
        state = file.stat()
        self.created = int(state.st_mtime)
        """Modification time of the file, in seconds since 1970."""
        identity = f"{__version__} {file.name} {state.st_size} {state.st_mtime_ns}"
        self.fingerprint = f"fp_{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
        """Changes with the program's version or the file, since the same request may then have another answer."""

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
        """
        request = replace(request, client=caller.client)
        with self._recorder.embedding(caller, request) as recording:
            return await self.engine.embed(request, why=caller.why, on_end=recording.summarize)


class Models:
    """The served models, by name and by task."""

    def __init__(self, served: Sequence[Served], defaults: Mapping[Task, Served]) -> None:
        """Register the models.

        Args:
            served: all models, in the order of the list that clients get.
            defaults: the model of each task for requests without a model name.
        """
        self.all = tuple(served)
        """All models, in order."""
        self._defaults = defaults

    async def resolve(self, name: str | None, task: Task = Task.GENERATE) -> Served:
        """Return the model for a request. A coroutine, so that it may wait for a model.

        Args:
            name: as the client sent it; None or `default` selects the task's default.
            task: the use of the model.

        Raises:
            RefusedError: 404 for an unknown name; 400 for a model that does not support the task.
        """
        served = self._defaults[task] if name is None or name == DEFAULT else self.find(name)
        if task not in served.tasks:
            message = f"The model {served.name!r} computes embeddings here; {self._defaults[task].name!r} generates."
            raise RefusedError(Problem(status=400, message=message, code="unsupported_model", param="model"))
        return served

    def find(self, name: str) -> Served:
        """Return the model with this name, in any state.

        Raises:
            RefusedError: 404 for an unknown name.
        """
        if name == DEFAULT:
            return self._defaults[Task.GENERATE]
        for served in self.all:
            if name in served.names:
                return served
        here = " and ".join(repr(served.name) for served in self.all)
        message = f"The model {name[:100]!r} does not exist; this server has {here}."
        raise RefusedError(Problem(status=404, message=message, code="model_not_found", param="model"))
