"""A language model in its own process, shared by many requests."""

from engine.checkup import BuildReport, DeviceReport, InstallationReport, MachineReport, ServingReport
from engine.client.checkup import CheckupError, examine
from engine.client.download import Download
from engine.client.engine import Engine
from engine.client.generation import Generation
from engine.client.measurements.histogram import Histogram
from engine.client.measurements.summary import RequestSummary
from engine.client.measurements.telemetry import Telemetry
from engine.client.opening import open_engine
from engine.client.repack_cache import RepackCache
from engine.client.status import EngineState, EngineStatus
from engine.client.timeouts import Supervision
from engine.config import EngineConfig
from engine.described import DescribedEngine, RunsElsewhereError
from engine.embedded import path as embedded_model
from engine.environment import command_for, without_secrets
from engine.errors import (
    Busy,
    EngineError,
    EngineFault,
    LoadError,
    RequestError,
    SlowReader,
    Unavailable,
    shutting_down,
)
from engine.events import (
    Alternative,
    EmbeddingResult,
    Finished,
    FinishReason,
    PromptProgress,
    Text,
    TokenDetail,
    TokenRun,
)
from engine.fairness.client_turns import ClientTurns
from engine.info import EngineMetrics, HeldPrefix, ModelInfo, QueuedRequest, SlotInfo
from engine.prompt import Infill, Prompt, PromptText, TextPrompt, all_plain, text_of
from engine.request import (
    MOST_GRAMMAR_CHARACTERS,
    SAMPLER_ORDER,
    AdapterSet,
    EmbeddingInput,
    EmbeddingRequest,
    GenerationRequest,
    Grammar,
    GrammarKind,
    Ranking,
    Reasoning,
    SamplerName,
    Sampling,
    SlotAction,
    adapter_set,
    strict_schema,
)

__all__ = [
    "MOST_GRAMMAR_CHARACTERS",
    "SAMPLER_ORDER",
    "AdapterSet",
    "Alternative",
    "BuildReport",
    "Busy",
    "CheckupError",
    "ClientTurns",
    "DescribedEngine",
    "DeviceReport",
    "Download",
    "EmbeddingInput",
    "EmbeddingRequest",
    "EmbeddingResult",
    "Engine",
    "EngineConfig",
    "EngineError",
    "EngineFault",
    "EngineMetrics",
    "EngineState",
    "EngineStatus",
    "FinishReason",
    "Finished",
    "Generation",
    "GenerationRequest",
    "Grammar",
    "GrammarKind",
    "HeldPrefix",
    "Histogram",
    "Infill",
    "InstallationReport",
    "LoadError",
    "MachineReport",
    "ModelInfo",
    "Prompt",
    "PromptProgress",
    "PromptText",
    "QueuedRequest",
    "Ranking",
    "Reasoning",
    "RepackCache",
    "RequestError",
    "RequestSummary",
    "RunsElsewhereError",
    "SamplerName",
    "Sampling",
    "ServingReport",
    "SlotAction",
    "SlotInfo",
    "SlowReader",
    "Supervision",
    "Telemetry",
    "Text",
    "TextPrompt",
    "TokenDetail",
    "TokenRun",
    "Unavailable",
    "adapter_set",
    "all_plain",
    "command_for",
    "embedded_model",
    "examine",
    "open_engine",
    "shutting_down",
    "strict_schema",
    "text_of",
    "without_secrets",
]
