"""`GET /health`: may a request be sent here, and if not, why."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Literal, NotRequired

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from engine import Engine, EngineState
from gateway.apis.answers.reply import json_reply
from gateway.apis.answers.shapes import Answer, Count


class Healthy(Answer):
    """Requests are welcome. `restarts` counts those of the engine."""

    status: Literal["ok"]
    restarts: Count


class Unhealthy(Answer):
    """Requests are not welcome now: the state, why, and how far loading has come."""

    status: EngineState | Literal["draining"]
    detail: str
    restarts: Count
    progress: NotRequired[Annotated[float, Field(ge=0, le=1)]]


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
        unhealthy = self._unhealthy()
        if unhealthy is None:
            return json_reply(self._healthy())
        return json_reply(unhealthy, HTTPStatus.SERVICE_UNAVAILABLE)

    def _healthy(self) -> Healthy:
        return {"status": "ok", "restarts": self._restarts()}

    def _unhealthy(self) -> Unhealthy | None:
        if self._draining:
            return {"status": "draining", "detail": "The server is stopping.", "restarts": self._restarts()}
        for status in (engine.status for engine in self._engines):
            if status.state is not EngineState.READY:
                return {
                    "status": status.state,
                    "detail": status.detail,
                    "restarts": self._restarts(),
                    "progress": round(status.progress, 3),
                }
        return None

    def _restarts(self) -> int:
        return sum(engine.status.restarts for engine in self._engines)
