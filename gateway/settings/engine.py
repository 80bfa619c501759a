"""Settings of the models that are served, and those that all engine processes share."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from engine import embedded_model
from engine.config import EngineConfig
from gateway.settings.model import ModelSettings
from gateway.settings.values import readable_gguf, readable_gguf_if_any

_ENGINE = EngineConfig(model="")


class EngineSettings(ModelSettings):
    """Settings of the models that are served, and those that all engine processes share."""

    model: Annotated[Path, AfterValidator(readable_gguf)] = Field(
        embedded_model(),
        title="FILE",
        description="GGUF model to serve; default: the demonstration model inside this package",
    )
    alias: str | None = Field(
        None, min_length=1, title="NAME", description="name of the model for clients; default: the file's name"
    )
    embedding_model: Annotated[Path | None, AfterValidator(readable_gguf_if_any)] = Field(
        None,
        title="FILE",
        description="GGUF model for /v1/embeddings, in an engine process of its own; default: the model of --model",
    )
    partition_cache: bool = Field(
        False,
        description="share cached prompts only between requests with the same API key, or without keys the same "
        "Authorization header",
    )
    queue_limit: int = Field(
        _ENGINE.queue_limit,
        ge=1,
        le=100_000,
        title="N",
        description="requests that may wait for their first slot; further requests get status 429",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="lowest level that is logged")
    log_format: Literal["text", "json"] = Field("text", description="format of the log on standard error")

    @property
    def served_name(self) -> str:
        """Name of the model for clients."""
        return self.alias or self.model.stem

    def engine_config(self) -> EngineConfig:
        """Return the configuration of the main engine process."""
        return EngineConfig(
            model=str(self.model),
            **self.engine_fields(),
            queue_limit=self.queue_limit,
            log_level=self.log_level,
            log_format=self.log_format,
        )

    def embedder_config(self) -> EngineConfig | None:
        """Return the configuration of the embedding engine, or None without a separate model.

        Its context is the model's training context.
        """
        if self.embedding_model is None:
            return None
        return replace(self.engine_config(), model=str(self.embedding_model), slots=1, context=None)
