"""The command line: flags, environment and configuration file, read once into `Settings`.

Flags win, then `LLAMA_GATEWAY_…`, then the TOML file. Each source gives plain text under a field's name.
"""

import argparse
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from gateway import __version__
from gateway.settings import Settings

PREFIX = "LLAMA_GATEWAY_"


class SettingsError(Exception):
    """A setting is wrong; the text is one line for the operator, naming the flag, variable or key."""


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
