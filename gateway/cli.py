"""Command line, environment and configuration file, read once into `Settings`.

Flags take precedence over `LLAMA_GATEWAY_…` variables, and variables over the TOML file. Each source maps field names
to plain text.
"""

import argparse
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from gateway import __version__
from gateway.arguments import Help, Parser, without_values
from gateway.habits import ALIASES, LAYER_RANGE, add_habits, settings_of
from gateway.named_models import table_texts, with_tables
from gateway.refusals import TABLES, file_key, refusal
from gateway.settings import Settings
from gateway.settings.adapters import AdapterSettings
from gateway.settings.cluster import ClusterSettings
from gateway.settings.context_shift import ContextShiftSettings
from gateway.settings.embedding import EmbeddingSettings
from gateway.settings.engine import EngineSettings
from gateway.settings.hardware import HardwareSettings
from gateway.settings.kv_cache import KVCacheSettings
from gateway.settings.llama_server import LlamaServerSettings
from gateway.settings.model import ModelSettings
from gateway.settings.network import NetworkSettings
from gateway.settings.prefix_files import PrefixFileSettings
from gateway.settings.reasoning import ReasoningSettings
from gateway.settings.sampling import SamplingSettings

PREFIX = "LLAMA_GATEWAY_"
"""Prefix of environment variables."""
COMMANDS = {
    "doctor": "examine this machine and a model, and say how it would be served",
    "keys": "manage the API keys of a store",
    "pull": "download a model of the Hugging Face hub",
    "list": "list the models of the hub that are on this machine",
    "remove": "remove models of the hub from this machine",
    "bench": "measure an OpenAI-compatible server",
}
"""Commands with arguments of their own, and their help texts."""
OTHER_VARIABLES = {"api_key": "LLAMA_API_KEY"}
"""Variables of llama-server, read where that with the prefix is not set."""

_GROUPS = {
    "models, queue and log": EngineSettings,
    "each model": ModelSettings,
    "KV cache of each model": KVCacheSettings,
    "cached prompts on disk of each model": PrefixFileSettings,
    "full contexts of each model": ContextShiftSettings,
    "adapters of each model": AdapterSettings,
    "embeddings and re-ranking of each model": EmbeddingSettings,
    "reasoning of each model": ReasoningSettings,
    "sampling with each model": SamplingSettings,
    "hardware of each model": HardwareSettings,
    "network and keys": NetworkSettings,
    "llama-server's routes": LlamaServerSettings,
    "cluster": ClusterSettings,
    "requests, responses and program": Settings,
}
"""Groups of flags in the order of `--help`: their titles, and the classes that have their settings."""
_SEVERAL = re.compile(r'\s*\[\s*"')
"""Beginning of a variable with several values. One text, such as a stop string, may begin with a bracket, too."""


class SettingsError(Exception):
    """Invalid setting. The text is one line for the operator that names the flag, variable or key."""


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Return the settings from a command line, an environment and a configuration file.

    Args:
        arguments: the command line without the program's name.
        environment: the variables; others than `LLAMA_GATEWAY_…` and `LLAMA_API_KEY` are ignored.

    Raises:
        SettingsError: a setting is invalid.
        SystemExit: `--help` or `--version` has been printed.
    """
    flags, variables = _read_flags(arguments), _read_variables(environment)
    config = flags.pop("config", None) or environment.get(f"{PREFIX}CONFIG")
    file = _read_file(Path(config)) if config else {}

    values = {**file, **variables, **flags}
    origins = {name: f"{file_key(name)} in {config}" for name in file}
    origins |= {name: _variable(name, environment) for name in variables}
    origins |= {name: _flag(name) for name in flags}
    try:
        return Settings.model_validate(with_tables(values))
    except ValidationError as error:
        raise SettingsError(refusal(error, values, origins)) from error
    except ValueError as error:
        raise SettingsError(f"{origins['model']}: {error}") from error


def _read_variables(environment: Mapping[str, str]) -> dict[str, str | list[str]]:
    """Return the settings that variables have: one text each, or several as a JSON array if the flag is repeatable."""
    values: dict[str, str | list[str]] = {}
    for name, field in flag_fields().items():
        variable = _variable(name, environment)
        if text := environment.get(variable):
            values[name] = _items(variable, text) if _repeats(name, field) and _SEVERAL.match(text) else text
    return values


def _items(variable: str, text: str) -> list[str]:
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        items = None
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise SettingsError(f"{variable}: begins as a JSON array of strings, but is not one")
    return items


def _read_flags(arguments: Sequence[str]) -> dict[str, Any]:
    first = next(iter(arguments), "-")
    if first.startswith("-") and first not in ("-h", "--help", "--version"):
        raise SettingsError("a command comes first: llama-gateway serve [flags]; --help lists all commands")
    given = vars(_parser().read(arguments))
    try:
        return settings_of({name: value for name, value in given.items() if name != "command"})
    except ValueError as error:
        raise SettingsError(str(error)) from error


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
        if name == TABLES and isinstance(value, dict):
            values[name] = _tables(path, value)
            continue
        if name not in flag_fields():
            raise SettingsError(f"unknown key {key!r} in {path}")
        if isinstance(value, dict):
            raise SettingsError(f"{key} in {path}: should be a value in quotes, and no table")
        # Converted to text, so that `true` is not a number and values are parsed like those of flags.
        values[name] = [str(item) for item in value] if isinstance(value, list) else str(value)
    return values


def _tables(path: Path, tables: Mapping[str, object]) -> object:
    try:
        return table_texts(tables)
    except ValueError as error:
        raise SettingsError(f"{path}: {error}") from error


def flag_fields() -> dict[str, FieldInfo]:
    """Return the settings that are flags, in the order of their groups."""
    return {name: field for fields in flag_groups().values() for name, field in fields.items()}


def flag_groups() -> dict[str, dict[str, FieldInfo]]:
    """Return the settings that are flags by the titles of their groups."""
    fields = {name: field for name, field in Settings.model_fields.items() if name != TABLES}
    return {
        title: {name: fields[name] for name in group.__annotations__ if name in fields}
        for title, group in _GROUPS.items()
    }


class _Parser(Parser):
    """Parser that raises `SettingsError`, so that wrong flags are reported like other invalid settings."""

    stray = "a value stands without its flag; a model is --model FILE"

    def error(self, message: str) -> NoReturn:
        raise SettingsError(without_values(message))


@cache
def _parser() -> _Parser:
    parser = _Parser(
        prog="llama-gateway",
        description="An OpenAI-compatible gateway on llama.cpp.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"llama-gateway {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command", title="commands")
    serve = commands.add_parser(
        "serve",
        usage="llama-gateway serve [--model [NAME=]MODEL ...] [flags]",
        help="serve models over HTTP",
        description="Serve GGUF models over HTTP. Ctrl-C or SIGTERM stops it.",
        epilog=f"Each flag is also an environment variable (--queue-limit: {PREFIX}QUEUE_LIMIT; several values are a "
        "JSON array) and a key of the TOML file (queue-limit). Flags take precedence over variables, and variables "
        "over the file. The flags of llama-server are understood, too, or answered by what to use instead. Exit codes: "
        "0 stopped by a signal, 1 unexpected failure, 2 invalid setting or model file, 3 the model cannot be loaded, "
        "4 cannot listen.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        formatter_class=Help,
    )
    serve.add_argument(
        "--like",
        metavar="PROGRAM",
        type=_misplaced,
        help="understand the flags that follow, the variables and the defaults as llama-server does: "
        "serve --like llama-server [flags], or llama-gateway-server [flags]",
    )
    serve.add_argument("--config", metavar="FILE", help="TOML file with settings")
    for title, fields in flag_groups().items():
        group = serve.add_argument_group(title)
        for name, field in fields.items():
            names = (*ALIASES.get(name, ()), _flag(name))
            group.add_argument(*names, dest=name, help=_help(field), **_argument(name, field))
    add_habits(serve)
    for name, text in COMMANDS.items():
        commands.add_parser(name, help=text, add_help=False)  # it has its own arguments
    return parser


def _misplaced(_program: str) -> NoReturn:
    raise argparse.ArgumentTypeError("it comes first: serve --like llama-server [flags]")


def _argument(name: str, field: FieldInfo) -> dict[str, Any]:
    """Return the argparse options of a flag: a switch for booleans, a repeatable value for tuples, else one value."""
    if field.annotation is bool:
        return {"action": "store_const", "const": "true"}
    metavar = field.title or "|".join(_choices(field))
    if name == LAYER_RANGE:
        return {"nargs": "+", "metavar": metavar}
    return {"action": "append" if _repeats(name, field) else "store", "metavar": metavar}


def _repeats(name: str, field: FieldInfo) -> bool:
    return field.annotation == tuple[str, ...] or name == "model"


def _choices(field: FieldInfo) -> Iterator[str]:
    arguments: Any = getattr(field.annotation, "__args__", ())
    yield from arguments


def _help(field: FieldInfo) -> str:
    if isinstance(field.default, bool) or not isinstance(field.default, int | float | str):
        return str(field.description)
    default = f"{field.default:g}" if isinstance(field.default, float) else field.default
    return f"{field.description} (default: {default})"


def _flag(name: str) -> str:
    return f"--{file_key(name)}"


def _variable(name: str, environment: Mapping[str, str]) -> str:
    """Return the name of the variable that a setting is read from."""
    variable = PREFIX + name.upper()
    return variable if environment.get(variable) else OTHER_VARIABLES.get(name, variable)
