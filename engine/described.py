"""Engine of a model that runs elsewhere, for a process that reads requests and sends them there."""

from typing import NoReturn

from typing_extensions import override

from engine.client.engine import Engine
from engine.client.supervisor import Supervisor
from engine.client.timeouts import Supervision
from engine.config import EngineConfig
from engine.info import ModelInfo
from engine.request import GenerationRequest


class RunsElsewhereError(Exception):
    """The engine does not run here. It has the request that the engine would get."""

    def __init__(self, request: GenerationRequest) -> None:
        super().__init__("the engine runs elsewhere")
        self.request = request
        """Request for the engine."""


class DescribedEngine(Engine):
    """Engine that knows its model from a description, and runs nothing. Every request but `generate` is `Unavailable`.

    So everything that comes before the engine works as beside the engine itself.
    """

    def __init__(self) -> None:
        super().__init__(Supervisor(EngineConfig(model=""), (), Supervision()))

    def describe(self, model: ModelInfo) -> None:
        """Take over the description of the model."""
        self._supervisor.model = model

    @override
    def generate(self, request: GenerationRequest, **_terms: object) -> NoReturn:
        """Raise `RunsElsewhereError` with the request."""
        raise RunsElsewhereError(request)
