"""Registry of the models of the server, through which all requests reach an engine."""

from collections.abc import Iterable, Mapping, Sequence

from gateway.middleware.caller import Caller
from gateway.middleware.errors import Problem, RefusedError
from gateway.serving.model import Model
from gateway.serving.running import RunningAnswers
from gateway.serving.served import Served, Task

DEFAULT = "default"
"""Name of the default model on every server, for clients that must send a name."""

LATEST = ":latest"
"""Tag that Ollama's clients add to a name without one, on every route."""

SHOWN = 100
"""Characters of a name in a refusal."""

_OTHER_TASKS = {
    Task.GENERATE: "computes embeddings here, and does not generate text",
    Task.EMBED: "generates text here, and computes no embeddings",
    Task.RANK: "does not rank documents here",
}


class Models:
    """The models of the server, by name and by task."""

    def __init__(
        self,
        models: Sequence[Model],
        defaults: Mapping[Task, Model],
        adapted: Sequence[Model] = (),
        *,
        any_name: bool = False,
    ) -> None:
        """Register the models.

        Args:
            models: all models, in the order of the list that clients get.
            defaults: the model of each task for requests without a model name.
            adapted: the models with LoRA adapters, in order.
            any_name: True if an unknown name selects the default of the task.
        """
        self._all = list(models)
        self._named = [*models, *adapted]
        self.running = RunningAnswers()
        """Streamed answers of all models while they are generated."""
        self._defaults = defaults
        self._any_name = any_name

    @property
    def all(self) -> Sequence[Model]:
        """All models without LoRA adapters, in order. Each has an engine of its own. Follows `join` and `leave`."""
        return self._all

    @property
    def named(self) -> Sequence[Model]:
        """All models that requests can name, in order. Follows `join` and `leave`."""
        return self._named

    def join(self, model: Model) -> None:
        """Serve one more model, under its names that no other one has, or in place of the one with its name."""
        self.leave(model.name)
        model.names -= {name for other in self._named for name in other.names}
        self._all.append(model)
        self._named.append(model)

    def leave(self, name: str) -> None:
        """Serve the model of this name no more. Requests that hold it go on."""
        for models in (self._all, self._named):
            models[:] = [model for model in models if model.name != name]

    async def resolve(self, caller: Caller, name: str | None, task: Task = Task.GENERATE) -> Served:
        """Return the model for a request, which holds it until its end. Waits until it is loaded.

        Args:
            caller: sender of the request.
            name: as the client sent it, with `:latest` or without; None selects the task's default, and so does
                `default` unless a model has this name.
            task: the use of the model.

        Raises:
            RefusedError: 404 for an unknown name; 403 for a model that the caller may not use; 400 for a model that
                does not support the task.
            EngineError: the model cannot be loaded now, or the wait is too long.
        """
        model = self.find(caller, name, task)
        if task not in model.tasks:
            message = f"The model {model.name!r} {_OTHER_TASKS[task]}."
            raise RefusedError(Problem(status=400, message=message, code="unsupported_model", param="model"))
        return await model.hold(caller)

    def find(self, caller: Caller, name: str | None, task: Task = Task.GENERATE) -> Model:
        """Return the model with this name, in any state. The arguments are those of `resolve`.

        Raises:
            RefusedError: 404 for an unknown name; 403 for a model that the caller may not use.
        """
        known = name if name is None or self._named_model(name) else name.removesuffix(LATEST)
        model = None if known is None else self._named_model(known)
        if model is None and (known in {None, DEFAULT} or self._any_name):
            model = self._defaults[task]
        if model is None:
            raise RefusedError(_unknown(str(name), self.allowed(caller)))
        if not caller.may_use(model.names):
            message = f"This API key may not use the model {(name or DEFAULT)[:SHOWN]!r}."
            raise RefusedError(Problem(status=403, message=message, code="model_not_allowed", param="model"))
        return model

    def _named_model(self, name: str) -> Model | None:
        return next((model for model in self.named if name in model.names), None)

    def allowed(self, caller: Caller) -> list[Model]:
        """Return the models that a caller may use, in any state, in order."""
        return [model for model in self.named if caller.may_use(model.names)]


def _unknown(name: str, allowed: Iterable[Model]) -> Problem:
    here = ", ".join(repr(model.name) for model in allowed) or "none that this API key may use"
    message = f"The model {name[:SHOWN]!r} does not exist; this server has {here}."
    return Problem(status=404, message=message, code="model_not_found", param="model")
