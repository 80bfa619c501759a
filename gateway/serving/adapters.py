"""LoRA adapters of one model: the set of each request, and the scales for requests that choose none."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from engine import GenerationRequest, RequestError
from gateway.middleware.caller import Caller
from gateway.middleware.errors import Problem, RefusedError
from gateway.settings.adapters import adapted_name


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter of a model."""

    id: int
    """Number of the adapter in the order of loading, from 0."""
    name: str
    """Name without that of the model."""
    file: Path
    """GGUF file."""
    scale: float
    """Scale for requests that choose the adapter as a model."""
    applied: bool = False
    """True to apply it to requests that choose none."""

    def name_with(self, model: str) -> str:
        """Return the name of the adapter as a model. `model` is a name of the model without it."""
        return adapted_name(model, self.name)

    def names(self, model: Collection[str]) -> set[str]:
        """Return the names of the adapter as a model. `model` are the names of the model without it."""
        return {self.name_with(name) for name in model}

    def chosen(self, _caller: Caller, request: GenerationRequest) -> GenerationRequest:
        """Return a request for the adapter as a model.

        Raises:
            RequestError: the request also chooses adapters by their ids.
        """
        if request.adapters is not None:
            message = "lora cannot be combined with a model name that selects a LoRA adapter"
            raise RequestError(message, code="unsupported", param="lora")
        return request.replaced(adapters=((self.id, self.scale),))


class Adapters:
    """LoRA adapters of one model."""

    def __init__(self, adapters: Iterable[Adapter], model: Collection[str]) -> None:
        """Register the adapters by their ids. `model` are the names of the model without them."""
        self.all = tuple(adapters)
        """All adapters in the order of their ids."""
        self._model = model
        self._defaults = {adapter.id: adapter.scale for adapter in self.all if adapter.applied}

    @property
    def names(self) -> set[str]:
        """Names of all adapters as models."""
        return {name for adapter in self.all for name in adapter.names(self._model)}

    def allowed(self, caller: Caller) -> list[Adapter]:
        """Return the adapters that the caller may use, in the order of their ids."""
        return [adapter for adapter in self.all if caller.may_use(adapter.names(self._model))]

    def default(self, adapter: Adapter) -> float:
        """Return the scale of an adapter for requests that choose none. `set_defaults` changes it."""
        return self._defaults.get(adapter.id, 0.0)

    def set_defaults(self, caller: Caller, scales: Iterable[tuple[int, float]]) -> None:
        """Replace the scales for requests that choose no adapters. Adapters without a scale here get 0.

        Raises:
            RefusedError: 403 for an API key that may not use all models, because other callers have the same defaults.
            RequestError: an id is unknown.
        """
        if caller.key is not None and caller.key.models is not None:
            message = "This API key may use only some models, so it may not change the scales for all requests."
            raise RefusedError(Problem(status=403, message=message, code="model_not_allowed"))
        defaults = dict(scales)
        if unknown := defaults.keys() - range(len(self.all)):
            message = f"there is no LoRA adapter {min(unknown)}"
            raise RequestError(message, code="unknown_adapter", param="id")
        self._defaults = defaults

    def chosen(self, caller: Caller, request: GenerationRequest) -> GenerationRequest:
        """Return a request for the model with the adapters that it chooses, otherwise with the defaults.

        Unknown ids are left to the engine.

        Raises:
            RefusedError: 403 for an adapter that the caller may not use.
        """
        if request.adapters is None:
            return request.replaced(adapters=tuple(self._defaults.items())) if self._defaults else request
        chosen = {id_ for id_, scale in request.adapters if scale} & {adapter.id for adapter in self.all}
        if forbidden := chosen - {adapter.id for adapter in self.allowed(caller)}:
            message = f"This API key may not use the LoRA adapter {min(forbidden)}."  # its name is not for the client
            raise RefusedError(Problem(status=403, message=message, code="model_not_allowed", param="lora"))
        return request
