"""A language model in a process of its own, shared by many requests."""

from engine.config import EngineConfig
from engine.errors import Busy, EngineError, EngineFault, LoadError, RequestError, SlowReader, Unavailable
from engine.events import Figures, Finished, FinishReason, ModelInfo, SlotInfo, Text
from engine.link.client import Engine, Generation, open_engine
from engine.link.limits import Supervision
from engine.link.status import EngineState, EngineStatus
from engine.request import GenerationRequest, Sampling

__all__ = [
    "Busy",
    "Engine",
    "EngineConfig",
    "EngineError",
    "EngineFault",
    "EngineState",
    "EngineStatus",
    "Figures",
    "FinishReason",
    "Finished",
    "Generation",
    "GenerationRequest",
    "LoadError",
    "ModelInfo",
    "RequestError",
    "Sampling",
    "SlotInfo",
    "SlowReader",
    "Supervision",
    "Text",
    "Unavailable",
    "open_engine",
]
