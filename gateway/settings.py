"""Flags, environment and configuration file, read once into one frozen value.

Flags win, then `LLAMA_GATEWAY_…`, then the TOML file. Each source gives plain text under a field's name. The model
below is the one table of what exists, what is allowed and what the help tells.
"""

import argparse
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo

from engine import embedded_model
from engine.config import EngineConfig
from gateway import __version__

PREFIX = "LLAMA_GATEWAY_"
_ENGINE = EngineConfig(model="")
_GGUF_HEADER = 24
_NUMERIC = (int, float, int | None)
_ORIGIN = re.compile(r"\*|[A-Za-z][A-Za-z0-9+.-]*://[^/\s]+/?")


class SettingsError(Exception):
    """A setting is wrong; the text is one line for the operator, naming the flag, variable or key."""


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


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """The settings that a command line (without the program's name), an environment and a file ask for.

    Raises `SettingsError`, or `SystemExit` once `--help` or `--version` has been printed.
    """
    flags = {name: value for name, value in vars(_parser().parse_args(arguments)).items() if name != "command"}
    variables = {
        name: text for name in (*Settings.model_fields, "config") if (text := environment.get(_variable(name)))
    }
    config = flags.pop("config", None) or variables.get("config")
    variables.pop("config", None)
    file = _read_file(Path(config)) if config else {}

    values = {**file, **variables, **flags}
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        origins = {name: f"{name} in {config}" for name in file}
        origins |= {name: _variable(name) for name in variables}
        origins |= {name: _flag(name) for name in flags}
        raise SettingsError(_complaint(error, values, origins)) from error


def _complaint(error: ValidationError, values: Mapping[str, object], origins: Mapping[str, str]) -> str:
    """One line about one wrong value, named as its source names it."""
    fault = error.errors()[0]
    name = str(fault["loc"][0])
    reason = fault["msg"].removeprefix("Value error, ").removeprefix("Input ").removeprefix("String ")
    return f"{origins[name]} {values[name]!r}: {reason}"


def _read_file(path: Path) -> dict[str, object]:
    try:
        table = tomllib.loads(path.expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"--config {str(path)!r}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"--config {str(path)!r}: not a TOML file: {error}") from error
    values: dict[str, object] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in Settings.model_fields or isinstance(value, dict):
            raise SettingsError(f"unknown key {key!r} in {path}")
        # As text, so that `true` is no number and the types are those of a flag.
        values[name] = [str(item) for item in value] if isinstance(value, list) else str(value)
    return values


class _Parser(argparse.ArgumentParser):
    """Reports what is wrong in the one line that every other wrong setting gets."""

    def error(self, message: str) -> NoReturn:
        raise SettingsError(message)


def _parser() -> _Parser:
    parser = _Parser(
        prog="llama-gateway",
        description="An OpenAI-compatible gateway on llama.cpp.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"llama-gateway {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("bench", help="measure an OpenAI-compatible server", add_help=False)  # has its own arguments
    serve = commands.add_parser(
        "serve",
        usage="llama-gateway serve [--model FILE] [flags]",
        help="serve a model over HTTP",
        description="Serve a GGUF model over HTTP. Ctrl-C or SIGTERM stops it.",
        epilog=f"Each flag is also a variable, --queue-limit being {PREFIX}QUEUE_LIMIT, and a key of the TOML file, "
        "queue-limit. Flags win over variables, variables over the file. Exit codes: 0 stopped when asked, "
        "1 unexpected failure, 2 a setting or the model file is wrong, 3 the model cannot be loaded, "
        "4 cannot listen.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    serve.add_argument("--config", metavar="FILE", help="a TOML file of settings")
    for name, field in Settings.model_fields.items():
        serve.add_argument(_flag(name), dest=name, help=_help(field), **_arity(field))
    return parser


def _arity(field: FieldInfo) -> dict[str, Any]:
    """What follows a flag: nothing where it only switches something on, else a value, perhaps more than once."""
    if field.annotation is bool:
        return {"action": "store_const", "const": "true"}
    repeated = field.annotation == tuple[str, ...]
    metavar = field.title or "|".join(_choices(field))
    return {"action": "append" if repeated else "store", "metavar": metavar}


def _choices(field: FieldInfo) -> Iterator[str]:
    arguments: Any = getattr(field.annotation, "__args__", ())
    yield from arguments


def _help(field: FieldInfo) -> str:
    if isinstance(field.default, bool) or not isinstance(field.default, int | float | str):
        return str(field.description)
    default = f"{field.default:g}" if isinstance(field.default, float) else field.default
    return f"{field.description} (default: {default})"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _variable(name: str) -> str:
    return PREFIX + name.upper()
