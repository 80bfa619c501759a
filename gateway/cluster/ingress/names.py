"""Names of the models of a cluster, and the name in a request, whatever its API."""

from collections.abc import Sequence
from urllib.parse import parse_qs

import msgspec
from starlette.types import Scope

from gateway.apis.rerank.endpoint import RANKING_PATHS
from gateway.middleware.errors import Problem, RefusedError
from gateway.serving.adapters import Adapter
from gateway.serving.models import DEFAULT, LATEST, SHOWN
from gateway.settings.table import ServedModel

_ONE_MODEL, _OLLAMA = "/v1/models/", "/api/"


class _Named(msgspec.Struct):
    """The field of a body that the ingress needs. All others are skipped, and take no memory and little time."""

    model: str | None = None
    """Name of the model."""


class _NamedForOllama(_Named):
    """The fields of a body of Ollama's API."""

    name: str | None = None
    """Name of the model, as older clients write it."""


_decode = msgspec.json.Decoder(_Named).decode
_decode_for_ollama = msgspec.json.Decoder(_NamedForOllama).decode


class ModelNames:
    """All names by which requests may mean the models of a cluster."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        """Take over the names. The first model is that of requests without a name, but for those to rank."""
        self._default = models[0].name
        self._ranking = next((model.name for model in models if model.settings.pooling == "rank"), self._default)
        self._models = [model.name for model in models]
        self._names: dict[str, str] = {}
        for model in models:
            for name in sorted(_names(model)):
                self._names.setdefault(name, model.name)
        self._names |= {name: model.name for model in models for name in (model.name, *model.aliases)}

    def find(self, name: str | None, path: str) -> str:
        """Return the model with a name. A model without others takes any name, and refuses the unknown itself.

        Args:
            name: name in the request, if it has one.
            path: path of the request, which decides without a name.

        Raises:
            RefusedError: 404 for an unknown name.
        """
        if name is not None and name not in self._names:
            name = name.removesuffix(LATEST)  # Ollama's clients add it
        if name is not None and name in self._names:
            return self._names[name]
        if name is None or name == DEFAULT or len(self._models) == 1:
            return self._ranking if path in RANKING_PATHS else self._default
        message = f"The model {name[:SHOWN]!r} does not exist. /v1/models has those of this server."
        raise RefusedError(Problem(status=404, message=message, code="model_not_found", param="model"))


def requested_model(scope: Scope, body: bytes) -> str | None:
    """Return the model that a request names in its path, its body or its query; None if it names none.

    What else is wrong with a request is for the replica to say.
    """
    path: str = scope["path"]
    if path.startswith(_ONE_MODEL):
        return path.removeprefix(_ONE_MODEL)
    query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
    return _in_body(path, body) or query.get("model", [None])[0]


def _in_body(path: str, body: bytes) -> str | None:
    try:
        if path.startswith(_OLLAMA):
            named = _decode_for_ollama(body)
            return named.model or named.name or None
        return _decode(body).model or None
    except (ValueError, RecursionError):  # no JSON object, or no text as the name
        return None


def _names(model: ServedModel) -> set[str]:
    """Return the names of a model, and those of the model with each of its LoRA adapters."""
    adapters = [Adapter(id_, *adapter) for id_, adapter in enumerate(model.settings.adapters)]
    return model.names.union(*(adapter.names(model.names) for adapter in adapters))
