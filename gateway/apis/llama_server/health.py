"""`GET /health`: may a request be sent here, and if not, why."""

from collections.abc import Sequence
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from engine import Engine, EngineState
from gateway.apis.answers.reply import json_reply


class Health:
    """Tells the engines' state, or that the server is stopping."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self._engines = engines
        self._draining = False

    def drain(self) -> None:
        """From now on say that no more requests are wanted."""
        self._draining = True

    async def get(self, _request: Request) -> Response:
        """200 with `"status": "ok"` if every engine serves; else 503.

        Then it tells the state of the first that does not, one sentence why, and how far loading has come.
        """
        if self._draining:
            return self._refusal("draining", "The server is stopping.")
        for engine in self._engines:
            status = engine.status
            if status.state is not EngineState.READY:
                return self._refusal(status.state, status.detail, progress=round(status.progress, 3))
        return json_reply({"status": "ok", "restarts": self._restarts()})

    def _refusal(self, state: str, detail: str, **more: float) -> Response:
        content = {"status": state, "detail": detail, "restarts": self._restarts(), **more}
        return json_reply(content, HTTPStatus.SERVICE_UNAVAILABLE)

    def _restarts(self) -> int:
        return sum(engine.status.restarts for engine in self._engines)
