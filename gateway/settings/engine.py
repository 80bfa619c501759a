"""Settings of the models and of the engine processes."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, field_validator

from engine import embedded_model
from engine.config import EngineConfig
from gateway.settings.prefix_files import PrefixFileSettings
from gateway.settings.values import readable_gguf, readable_gguf_if_any, readable_template

_ENGINE = EngineConfig(model="")
_NUMERIC = (int, float, int | None)


class EngineSettings(PrefixFileSettings):
    """Settings of the models and of the engine processes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: Annotated[Path, AfterValidator(readable_gguf)] = Field(
        embedded_model(),
        title="FILE",
        description="GGUF model to serve; default: the demonstration model inside this package",
    )
    alias: str | None = Field(
        None, min_length=1, title="NAME", description="name of the model for clients; default: the file's name"
    )
    chat_template: Annotated[str | None, AfterValidator(readable_template)] = Field(
        None, title="FILE", description="Jinja chat template; default: the one in the model file"
    )
    parse_special: bool = Field(
        False,
        description="let names of control tokens in the texts of chats become these tokens; requests may override it",
    )
    embedding_model: Annotated[Path | None, AfterValidator(readable_gguf_if_any)] = Field(
        None,
        title="FILE",
        description="GGUF model for /v1/embeddings, in an engine process of its own; default: the model of --model",
    )
    slots: int = Field(_ENGINE.slots, ge=1, le=256, title="N", description="sequences that run at the same time")
    context: int | None = Field(
        _ENGINE.context,
        ge=1,
        le=2**31 - 1,
        title="TOKENS",
        description="tokens per slot; default: the model's training context, limited by memory",
    )
    threads: int | None = Field(
        _ENGINE.threads,
        ge=1,
        le=1024,
        title="N",
        description="CPU threads of a pass; default: as many as are measured to be fastest",
    )
    threads_batch: int | None = Field(
        _ENGINE.threads_batch,
        ge=1,
        le=1024,
        title="N",
        description="CPU threads of a pass with several rows; default: same as --threads",
    )
    gpu_layers: int = Field(
        _ENGINE.gpu_layers, ge=-1, le=2**31 - 1, title="N", description="layers to offload to the GPU; -1 offloads all"
    )
    repack: Literal["auto", "on", "off"] = Field(
        "auto",
        description="rearrange the weights for this CPU: takes memory and a longer start, and makes passes faster or "
        "slower",
    )
    flash_attention: Literal["auto", "on", "off"] = Field(
        "auto",
        description="compute attention in blocks (flash attention); off may be faster if contexts are long",
    )
    step_target_ms: float = Field(
        _ENGINE.step_target_ms,
        gt=0,
        le=60_000,
        title="MS",
        description="milliseconds that one prompt pass may delay the next decode pass; longer prompts are split",
    )
    speculation: Literal["auto", "on", "off"] = Field(
        "auto",
        description="speculative decoding: auto computes draft tokens where measurements show a gain, on always, off "
        "never; requests may override it",
    )
    prefix_store: int | None = Field(
        _ENGINE.prefix_store,
        ge=0,
        le=2**50,
        title="BYTES",
        description="host memory for cached prompts whose slots were reused; the least recently used are dropped "
        "first; 0 disables it; default: a tenth of the free memory, at most 8 GiB",
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

    @field_validator("*", mode="before")
    @classmethod
    def _plain_number(cls, value: object, info: ValidationInfo) -> object:
        """Refuse underscores in numbers, because pydantic reads `80_80` as 8080."""
        numeric = cls.model_fields[str(info.field_name)].annotation in _NUMERIC
        if numeric and "_" in str(value):
            raise ValueError("should be a number without underscores")
        return value

    @property
    def served_name(self) -> str:
        """Name of the model for clients."""
        return self.alias or self.model.stem

    def engine_config(self) -> EngineConfig:
        """Return the configuration of the main engine process."""
        return EngineConfig(
            model=str(self.model),
            slots=self.slots,
            context=self.context,
            threads=self.threads,
            threads_batch=self.threads_batch,
            gpu_layers=self.gpu_layers,
            speculation=_as_bool(self.speculation),
            repack=_as_bool(self.repack),
            flash_attention=_as_bool(self.flash_attention),
            step_target_ms=self.step_target_ms,
            prefix_store=self.prefix_store,
            prefix_dir=None if self.prefix_dir is None else str(self.prefix_dir),
            prefix_dir_bytes=self.prefix_dir_bytes,
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


def _as_bool(choice: Literal["auto", "on", "off"]) -> bool | None:
    """Return None for `auto`, which leaves the choice to the engine."""
    return None if choice == "auto" else choice == "on"
