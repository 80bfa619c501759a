"""`GET /v1/models`: what is served here, and which names for it are good."""

import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from engine import Engine
from gateway import __version__
from gateway.apis.answers.reply import json_reply
from gateway.apis.openai.models.answer import Model, model, model_list
from gateway.middleware.errors import Problem, RefusedError

DEFAULT = "default"
"""Means the served model on every server, for clients that must send some name."""


class ServedModel:
    """One model, by its name and its file.

    Attributes:
        engine: runs it.
        name: what clients are told.
        names: what clients may call it.
        fingerprint: changes where the same request may be answered differently: with the program or the file.
    """

    def __init__(self, engine: Engine, name: str, file: Path) -> None:
        self.engine = engine
        self.name = name
        self.names = {name, file.stem, file.name}
        state = file.stat()
        self._created = int(state.st_mtime)
        identity = f"{__version__} {file.name} {state.st_size} {state.st_mtime_ns}"
        self.fingerprint = f"fp_{hashlib.sha256(identity.encode()).hexdigest()[:12]}"

    def describe(self) -> Model:
        """Return the model as `/v1/models` has it."""
        return model(self.name, self._created, self.engine.model)


class Models:
    """The model that generates, and perhaps another one for embeddings.

    Attributes:
        name: the first one's.
        fingerprint: the first one's.
    """

    def __init__(self, main: ServedModel, embedder: ServedModel | None = None) -> None:
        """Without an `embedder`, the main model embeds, too."""
        self.name = main.name
        self.fingerprint = main.fingerprint
        self._main = main
        self._embedder = embedder or main
        self._all = [main] if embedder is None else [main, embedder]

    def check(self, asked: str | None) -> None:
        """Raises `RefusedError` unless `asked` is absent or names the model that generates.

        A 404 for what is not here, a 400 for the model that only embeds.
        """
        if asked is None or asked == DEFAULT or asked in self._main.names:
            return
        name = self.find(asked).name
        message = f"The model {name!r} computes embeddings here; {self.name!r} generates."
        raise RefusedError(Problem(status=400, message=message, code="unsupported_model", param="model"))

    def embedder(self, asked: str | None) -> ServedModel:
        """The model that embeds, under this name or without one. Raises `RefusedError`, a 404, for any other."""
        if asked is None or asked == DEFAULT or asked in self._embedder.names:
            return self._embedder
        return self.find(asked)

    def find(self, asked: str | None) -> ServedModel:
        """The model of this name; the one that generates without one. Raises `RefusedError`, a 404."""
        if asked is None or asked == DEFAULT:
            return self._main
        for served in self._all:
            if asked in served.names:
                return served
        here = " and ".join(repr(served.name) for served in self._all)
        message = f"The model {asked[:100]!r} does not exist; this server has {here}."
        raise RefusedError(Problem(status=404, message=message, code="model_not_found", param="model"))

    async def list(self, _request: Request) -> Response:
        """`GET /v1/models`."""
        return json_reply(model_list(served.describe() for served in self._all))

    async def get(self, request: Request) -> Response:
        """`GET /v1/models/{id}`."""
        return json_reply(self.find(request.path_params["id"]).describe())
