"""`GET /v1/models`: the one model served here, and which names for it are good."""

import hashlib
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from engine import Engine
from gateway import __version__
from gateway.edge.problems import Problem, RefusedError
from gateway.routes.reply import json_reply

DEFAULT = "default"
"""Means the served model on every server, for clients that must send some name."""


class Models:
    """The served model, by its name and its file.

    Attributes:
        name: what clients are told.
        fingerprint: changes where the same request may be answered differently: with the program or the file.
    """

    def __init__(self, engine: Engine, name: str, file: Path) -> None:
        self.name = name
        self._engine = engine
        self._names = {name, file.stem, file.name, DEFAULT}
        state = file.stat()
        self._created = int(state.st_mtime)
        identity = f"{__version__} {file.name} {state.st_size} {state.st_mtime_ns}"
        self.fingerprint = f"fp_{hashlib.sha256(identity.encode()).hexdigest()[:12]}"

    def check(self, asked: str | None) -> None:
        """Raises `RefusedError`, a 404, unless `asked` is absent or one of the model's names."""
        if asked is not None and asked not in self._names:
            message = f"The model {asked[:100]!r} does not exist; this server has {self.name!r}."
            raise RefusedError(Problem(status=404, message=message, code="model_not_found", param="model"))

    async def list(self, _request: Request) -> Response:
        """`GET /v1/models`."""
        return json_reply({"object": "list", "data": [self._describe()]})

    async def get(self, request: Request) -> Response:
        """`GET /v1/models/{id}`."""
        self.check(request.path_params["id"])
        return json_reply(self._describe())

    def _describe(self) -> dict[str, Any]:
        described: dict[str, Any] = {
            "id": self.name,
            "object": "model",
            "created": self._created,
            "owned_by": "llama-gateway",
        }
        if (model := self._engine.model) is not None:
            described["meta"] = {
                "description": model.description,
                "n_vocab": model.vocabulary,
                "n_ctx": model.context,
                "n_ctx_train": model.trained_context,
                "n_params": model.parameters,
                "size": model.size,
            }
        return described
