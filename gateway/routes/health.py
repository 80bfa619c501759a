"""`GET /health`: may a request be sent here, and if not, why."""

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from engine import Engine, EngineState
from gateway.routes.reply import json_reply


class Health:
    """Tells the engine's state, or that the server is stopping."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._draining = False

    def drain(self) -> None:
        """From now on say that no more requests are wanted."""
        self._draining = True

    async def get(self, _request: Request) -> Response:
        """200 with `"status": "ok"`; else 503 with the state, one sentence why, and how far loading has come."""
        status = self._engine.status
        if self._draining:
            return self._refusal("draining", "The server is stopping.")
        if status.state is not EngineState.READY:
            return self._refusal(status.state, status.detail, progress=round(status.progress, 3))
        return json_reply({"status": "ok", "restarts": status.restarts})

    def _refusal(self, state: str, detail: str, **more: float) -> Response:
        content = {"status": state, "detail": detail, "restarts": self._engine.status.restarts, **more}
        return json_reply(content, HTTPStatus.SERVICE_UNAVAILABLE)
