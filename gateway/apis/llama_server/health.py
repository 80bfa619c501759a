"""`GET /health`: whether requests are welcome, and if not, why."""

from http import HTTPStatus

from engine import EngineState, EngineStatus
from gateway.apis.answers.reply import JsonReply
from gateway.apis.endpoint import Call
from gateway.apis.others import Healthy, Unhealthy
from gateway.serving.models import Models


class Health:
    """Answers the state of the models' engines, or that the server is stopping."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._draining = False

    def drain(self) -> None:
        """Answer from now on that the server is stopping."""
        self._draining = True

    async def get(self, _call: Call[None]) -> JsonReply[Healthy | Unhealthy]:
        """Answer 200 with `"status": "ok"` if every engine serves; else 503.

        A 503 has the state of the first engine that does not serve, the reason, and the progress of loading.
        """
        if self._draining:
            return self._unhealthy(
                {"status": "draining", "detail": "The server is stopping.", "restarts": self._restarts()}
            )
        for served in self._models.all:
            status = served.engine.status
            if status.state is not EngineState.READY:
                return self._unhealthy(self._described(status))
        return JsonReply({"status": "ok", "restarts": self._restarts()})

    def _described(self, status: EngineStatus) -> Unhealthy:
        return {
            "status": status.state,
            "detail": status.detail,
            "restarts": self._restarts(),
            "progress": round(status.progress, 3),
        }

    def _unhealthy(self, answer: Unhealthy) -> JsonReply[Healthy | Unhealthy]:
        return JsonReply(answer, HTTPStatus.SERVICE_UNAVAILABLE)

    def _restarts(self) -> int:
        return sum(served.engine.status.restarts for served in self._models.all)
