"""Settings of the server: names, types, bounds, defaults and help texts."""

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
_SECRET = re.compile(r"[!-~]+")


def _expanded(path: Path | None) -> Path | None:
    try:
        return path and path.expanduser()
    except RuntimeError as error:
        raise ValueError("there is no such home directory") from error


def _readable_gguf(path: Path) -> Path:
    try:
        str(path).encode()  # sent to the engine as JSON
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
    from gateway.chat.template_file import read_template  # noqa: PLC0415 - Jinja takes 25 ms, and few set a template

    return read_template(path)


def _split(value: object) -> list[str]:
    """Return all items of one value or several, split at commas."""
    parts = value if isinstance(value, list) else [value]
    return [item.strip() for part in parts for item in str(part).split(",") if item.strip()]


def _api_keys(value: object) -> object:
    """Split values at commas and check that each can be sent in a header."""
    keys = _split(value)
    if not keys:
        raise ValueError("there is no key")
    if not all(_SECRET.fullmatch(key) for key in keys):
        raise ValueError("a key may have only visible ASCII characters, and no space")
    return keys


def _store_place(place: str | None) -> str | None:
    from gateway.storage.place import check_place  # noqa: PLC0415 - few servers have a store

    return None if place is None else check_place(place)


def _paths(value: object) -> object:
    """Split values at commas and check that each is a path."""
    paths = _split(value)
    for path in paths:
        if not path.startswith("/"):
            raise ValueError(f"{path!r} does not begin with a slash")
    return paths


def _origins(value: object) -> object:
    """Split values at commas and check that each is an origin or `*`."""
    origins = _split(value)
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin!r} is not an origin such as https://example.org, nor *")
    return origins


class Settings(BaseModel):
    """All settings of the operator. Times are in seconds unless the name has another unit."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: Annotated[Path, AfterValidator(_readable_gguf)] = Field(
        embedded_model(),
        title="FILE",
        description="GGUF model to serve; default: the demonstration model inside this package",
    )
    alias: str | None = Field(
        None, min_length=1, title="NAME", description="name of the model for clients; default: the file's name"
    )
    chat_template: Annotated[str | None, AfterValidator(_readable_template)] = Field(
        None, title="FILE", description="Jinja chat template; default: the one in the model file"
    )
    parse_special: bool = Field(
        False,
        description="let names of control tokens in the texts of chats become these tokens; requests may override it",
    )
    embedding_model: Annotated[Path | None, AfterValidator(_readable_gguf_if_any)] = Field(
        None,
        title="FILE",
        description="GGUF model for /v1/embeddings, in an engine process of its own; default: the model of --model",
    )
    host: str = Field("127.0.0.1", min_length=1, title="ADDRESS", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, title="PORT", description="port to listen on; 0 takes a free port")
    unix_socket: Annotated[Path | None, AfterValidator(_expanded)] = Field(
        None,
        title="PATH",
        description="Unix socket to listen on, instead of a port, or besides it if --host or --port is given",
    )
    tls_certificate: Annotated[Path | None, AfterValidator(_expanded)] = Field(
        None, title="FILE", description="certificate of the server in PEM format, with its chain; default: no TLS"
    )
    tls_key: Annotated[Path | None, AfterValidator(_expanded)] = Field(
        None, title="FILE", description="private key in PEM format, not encrypted; default: in the certificate's file"
    )
    tls_client_ca: Annotated[Path | None, AfterValidator(_expanded)] = Field(
        None, title="FILE", description="CA in PEM format that must have signed the certificates of clients"
    )
    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        title="PORT",
        description="port of its own for /metrics, which --port then does not answer; 0 takes a free port; "
        "default: /metrics is on --port",
    )
    metrics_host: str | None = Field(
        None, min_length=1, title="ADDRESS", description="address of --metrics-port; default: same as --host"
    )
    allow_origin: Annotated[tuple[str, ...], BeforeValidator(_origins)] = Field(
        (),
        title="ORIGIN",
        description="web origin whose pages may call the server, such as https://example.org; * allows all; "
        "repeatable, or separated by commas; default: no origin",
    )

    # `repr=False` marks a secret: no message shows the value.
    api_key: Annotated[tuple[str, ...], BeforeValidator(_api_keys)] = Field(
        (),
        repr=False,
        title="KEY",
        description="API key without limits that requests may have; repeatable, or separated by commas; also the "
        "variable LLAMA_API_KEY; default: no key is needed, unless --keys is set",
    )
    keys: Annotated[str | None, AfterValidator(_store_place)] = Field(
        None,
        repr=False,
        min_length=1,
        title="STORE",
        description="store of API keys with limits, which `llama-gateway keys` fills: an SQLite file, or the URL of a "
        "PostgreSQL database; default: no store",
    )
    open_path: Annotated[tuple[str, ...], BeforeValidator(_paths)] = Field(
        (),
        title="PATH",
        description="path that needs no API key, such as /metrics; repeatable, or separated by commas; default: only "
        "/health, /livez and /readyz",
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

    max_tokens: int | None = Field(
        None,
        ge=1,
        le=2**31 - 1,
        title="TOKENS",
        description="maximum length of an answer whose request sets none; default: up to the end of its slot",
    )
    request_timeout: float = Field(
        600, gt=0, le=604_800, title="SECONDS", description="maximum total time of a request, including its answer"
    )
    queue_timeout: float = Field(
        300, gt=0, le=604_800, title="SECONDS", description="maximum time that a request waits for a slot"
    )
    client_patience: float = Field(
        30,
        gt=0,
        le=604_800,
        title="SECONDS",
        description="maximum time that a client leaves text unread; its request is then cancelled",
    )
    body_limit: int = Field(8 * 2**20, ge=1, le=2**31 - 1, title="BYTES", description="maximum size of a request body")
    body_budget: int = Field(
        64 * 2**20,
        ge=1,
        le=2**50,
        title="BYTES",
        description="total size of the request bodies in memory; further large bodies wait to be read",
    )
    strict_fields: bool = Field(
        False, description="refuse requests with unknown fields instead of reporting them in a header"
    )
    stored_responses: int = Field(
        1024,
        ge=1,
        le=100_000,
        title="N",
        description="stored responses of /v1/responses; beyond that, the client with the most loses its least recently "
        "used",
    )
    stored_bytes: int = Field(
        64 * 2**20,
        ge=1,
        le=2**40,
        title="BYTES",
        description="total size of the stored responses, as JSON with their inputs",
    )
    background_limit: int | None = Field(
        None,
        ge=1,
        le=100_000,
        title="N",
        description="background responses of one client that may run or wait; further ones get status 429; default: a "
        "quarter of --slots and --queue-limit",
    )
    usage: Annotated[str | None, AfterValidator(_store_place)] = Field(
        None,
        repr=False,
        min_length=1,
        title="STORE",
        description="store of one row of usage for each request: an SQLite file, or the URL of a PostgreSQL database; "
        "default: the store of --keys",
    )
    grace: float = Field(
        20, ge=0, le=3600, title="SECONDS", description="maximum time that open requests continue after SIGTERM"
    )

    async_backend: Literal["trio", "asyncio"] = Field("trio", description="event loop")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="lowest level that is logged")
    log_format: Literal["text", "json"] = Field("text", description="format of the log on standard error")
    access_log: Literal["on", "off"] = Field("on", description="log one line for each request, at the level info")
    log_content: bool = Field(False, description="log the beginning of each request's and each response's body")
    traces: Literal["auto", "on", "off"] = Field(
        "auto",
        description="send OpenTelemetry spans; auto sends them if OTEL_EXPORTER_OTLP_ENDPOINT is set",
    )

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

    @property
    def listens_on_port(self) -> bool:
        """True if the server listens on `host` and `port`: without a Unix socket, or if one of the two is given."""
        return self.unix_socket is None or not self.model_fields_set.isdisjoint({"host", "port"})

    @property
    def background_responses(self) -> int:
        """Number of background responses of one client. The default leaves room for other clients."""
        return self.background_limit or max(1, (self.slots + self.queue_limit) // 4)

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
