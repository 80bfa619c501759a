"""The settings: one table of names, types, bounds, defaults and help texts."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from engine import embedded_model
from engine.config import EngineConfig

_ENGINE = EngineConfig(model="")
_GGUF_HEADER = 24
_NUMERIC = (int, float, int | None)
_ORIGIN = re.compile(r"\*|[A-Za-z][A-Za-z0-9+.-]*://[^/\s]+/?")


def _readable_gguf(path: Path) -> Path:
    try:
        str(path).encode()  # the engine is sent it as JSON
    except UnicodeEncodeError as error:
        raise ValueError("the path is not UTF-8") from error
    try:
        path = path.expanduser()
        if not path.exists():
            raise ValueError("there is no such file")
        if not path.is_file():
            raise ValueError("this is not a file")
        with path.open("rb") as file:
            header = file.read(_GGUF_HEADER)
    except OSError as error:
        raise ValueError(f"the file cannot be read: {error.strerror}") from error
    except RuntimeError as error:
        raise ValueError("there is no such home directory") from error
    if not header.startswith(b"GGUF"):
        raise ValueError("this is not a GGUF file")
    if len(header) < _GGUF_HEADER:
        raise ValueError("this GGUF file is truncated")
    return path


def _readable_gguf_if_any(path: Path | None) -> Path | None:
    return None if path is None else _readable_gguf(path)


def _readable_template(path: str) -> str:
    from gateway.chat.template import read_template  # noqa: PLC0415 - Jinja takes 25 ms, and most name no file

    return read_template(path)


def _origins(value: object) -> object:
    """`a,b` means the same as giving `a` and `b`."""
    parts = value if isinstance(value, list) else [value]
    origins = [item.strip() for part in parts for item in str(part).split(",") if item.strip()]
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin!r} is no origin such as https://example.org, nor *")
    return origins


class Settings(BaseModel):
    """Everything an operator can choose. Times are in seconds unless the name says otherwise."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: Annotated[Path, AfterValidator(_readable_gguf)] = Field(
        embedded_model(),
        title="FILE",
        description="the GGUF model to serve; default: the demonstration model inside this package",
    )
    alias: str | None = Field(
        None, min_length=1, title="NAME", description="the model's name for clients; default: the file's name"
    )
    chat_template: Annotated[str | None, AfterValidator(_readable_template)] = Field(
        None, title="FILE", description="a Jinja chat template; default: the one in the model's file"
    )
    embedding_model: Annotated[Path | None, AfterValidator(_readable_gguf_if_any)] = Field(
        None, title="FILE", description="a GGUF model for /v1/embeddings; default: the one that is served"
    )
    host: str = Field("127.0.0.1", min_length=1, title="ADDRESS", description="where to listen")
    port: int = Field(8000, ge=0, le=65535, title="PORT", description="where to listen; 0 takes a free one")
    allow_origin: Annotated[tuple[str, ...], BeforeValidator(_origins)] = Field(
        (),
        title="ORIGIN",
        description="a web origin whose pages may call this server, such as https://example.org; may be "
        "repeated; default: none",
    )

    slots: int = Field(_ENGINE.slots, ge=1, le=256, title="N", description="sequences that run at the same time")
    context: int | None = Field(
        _ENGINE.context,
        ge=1,
        le=2**31 - 1,
        title="TOKENS",
        description="tokens a slot can hold; default: the model's own, capped to what memory allows",
    )
    threads: int | None = Field(
        _ENGINE.threads, ge=1, le=1024, title="N", description="CPU threads; default: one per core"
    )
    threads_batch: int | None = Field(
        _ENGINE.threads_batch,
        ge=1,
        le=1024,
        title="N",
        description="CPU threads while prompts are computed; default: as --threads",
    )
    gpu_layers: int = Field(
        _ENGINE.gpu_layers, ge=-1, le=2**31 - 1, title="N", description="layers on the GPU; -1 means all"
    )
    repack: Literal["auto", "on", "off"] = Field(
        "auto",
        description="whether llama.cpp rearranges the weights for this CPU: a slower start, more memory, and more "
        "or less speed",
    )
    flash_attention: Literal["auto", "on", "off"] = Field(
        "auto",
        description="whether attention is computed in blocks; off may be faster where contexts are long",
    )
    step_target_ms: float = Field(
        _ENGINE.step_target_ms,
        gt=0,
        le=60_000,
        title="MS",
        description="milliseconds that somebody's long prompt may put between two tokens of everybody else",
    )
    speculation: Literal["auto", "off"] = Field(
        "auto",
        description="whether several tokens are computed at once where a text seems to repeat itself and that is "
        "faster, as measured; requests may choose for themselves",
    )
    prefix_store: int | None = Field(
        _ENGINE.prefix_store,
        ge=0,
        le=2**50,
        title="BYTES",
        description="host memory for prompts whose slots were given away, the least recently used go; 0 is none; "
        "default: a tenth of what is free, at most 8 GiB",
    )
    partition_cache: bool = Field(
        False, description="share cached prompts only among requests with the same Authorization header"
    )
    queue_limit: int = Field(
        _ENGINE.queue_limit,
        ge=1,
        le=100_000,
        title="N",
        description="requests of which nothing has started that may wait for a slot; more are refused with 429",
    )

    request_timeout: float = Field(
        600, gt=0, le=604_800, title="SECONDS", description="the longest a request may take in all"
    )
    queue_timeout: float = Field(
        300, gt=0, le=604_800, title="SECONDS", description="the longest a request may wait for a slot"
    )
    client_patience: float = Field(
        30,
        gt=0,
        le=604_800,
        title="SECONDS",
        description="how long a client may leave text unread before its request is cancelled",
    )
    body_limit: int = Field(8 * 2**20, ge=1, le=2**31 - 1, title="BYTES", description="the largest request body")
    strict_fields: bool = Field(
        False, description="refuse requests with fields that this server does not know, instead of reporting them"
    )
    stored_responses: int = Field(
        1024, ge=1, le=1_000_000, title="N", description="responses kept for /v1/responses, the least recently used go"
    )
    stored_bytes: int = Field(
        64 * 2**20, ge=1, le=2**40, title="BYTES", description="the room for them, as JSON with their inputs"
    )
    grace: float = Field(
        20, ge=0, le=3600, title="SECONDS", description="how long open requests may go on after SIGTERM"
    )

    async_backend: Literal["trio", "asyncio"] = Field("trio", description="the event loop")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="what is logged")
    log_format: Literal["text", "json"] = Field("text", description="how it is logged, on standard error")

    @field_validator("*", mode="before")
    @classmethod
    def _plain_number(cls, value: object, info: ValidationInfo) -> object:
        """Pydantic would take `80_80` for 8080, as Python does."""
        numeric = cls.model_fields[str(info.field_name)].annotation in _NUMERIC
        if numeric and "_" in str(value):
            raise ValueError("should be a number without underscores")
        return value

    @property
    def served_name(self) -> str:
        """The model's name for clients."""
        return self.alias or self.model.stem

    def engine_config(self) -> EngineConfig:
        """What the engine process is told."""
        return EngineConfig(
            model=str(self.model),
            slots=self.slots,
            context=self.context,
            threads=self.threads,
            threads_batch=self.threads_batch,
            gpu_layers=self.gpu_layers,
            speculation=self.speculation == "auto",
            repack=_if_said(self.repack),
            flash_attention=_if_said(self.flash_attention),
            step_target_ms=self.step_target_ms,
            prefix_store=self.prefix_store,
            queue_limit=self.queue_limit,
            log_level=self.log_level,
            log_format=self.log_format,
        )

    def embedder_config(self) -> EngineConfig | None:
        """What the process of the embedding model is told, where there is one. Its context is the model's own."""
        if self.embedding_model is None:
            return None
        return replace(self.engine_config(), model=str(self.embedding_model), slots=1, context=None)


def _if_said(choice: Literal["auto", "on", "off"]) -> bool | None:
    return None if choice == "auto" else choice == "on"
