"""Command line, environment and configuration file, read once into `Settings`.

Flags take precedence over `LLAMA_GATEWAY_…` variables, and variables over the TOML file. Each source maps field names
to plain text.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gateway.arguments import hyphenated
from gateway.flags import PREFIX, TABLES, file_key, flag, flag_fields, flag_parser, keys_by_name, meant_key, repeats
from gateway.habits import SETTINGS, settings_of
from gateway.named_models import table_texts, text_of, with_tables
from gateway.refusals import refusal
from gateway.settings import Settings
from gateway.settings.effects import check_effects
from gateway.settings.values import expanded

OTHER_VARIABLES = {"api_key": "LLAMA_API_KEY"}
"""Variables of llama-server, read where that with the prefix is not set."""

_SEVERAL = re.compile(r'\s*\[\s*"')
"""Beginning of a variable with several values. One text, such as a stop string, may begin with a bracket, too."""


class SettingsError(Exception):
    """Invalid setting. The text is one line for the operator that names the flag, variable or key."""


def read_settings(
    arguments: Sequence[str], environment: Mapping[str, str], defaults: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings from a command line, an environment and a configuration file.

    Args:
        arguments: the command line without the program's name.
        environment: the variables; others than `LLAMA_GATEWAY_…` and `LLAMA_API_KEY` are ignored.
        defaults: texts of settings that no source has, instead of their own defaults; None for none. They do not count
            as set.

    Raises:
        SettingsError: a setting is invalid.
        SystemExit: `--help` or `--version` has been printed.
    """
    flags, variables = _read_flags(arguments), _read_variables(environment)
    variable, typed = f"{PREFIX}CONFIG", flags.pop("config", None)
    config = typed or environment.get(variable)
    file = _read_file(Path(config), "--config" if typed else variable) if config else {}

    sources = {**(defaults or {}), **file, **variables, **flags}
    values = {name: value for name, value in sources.items() if value is not None}
    origins = {name: flag(name) for name in defaults or {}}
    origins |= {name: f"{file_key(name)} in {config}" for name in file}
    origins |= {name: _variable(name, environment) for name in variables}
    origins |= {name: _typed(name, value, arguments) for name, value in flags.items()}
    try:
        unset = (defaults or {}).keys() - {*file, *variables, *flags}
        settings = Settings.model_validate(with_tables(values), context=unset)
    except ValidationError as error:
        raise SettingsError(refusal(error, values, origins)) from error
    except ValueError as error:
        raise SettingsError(f"{origins['model']}: {error}") from error
    try:
        check_effects(settings)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    return settings


def _read_variables(environment: Mapping[str, str]) -> dict[str, str | list[str]]:
    """Return the settings that variables have: one text each, or several as a JSON array if the flag is repeatable."""
    values: dict[str, str | list[str]] = {}
    for name, field in flag_fields().items():
        variable = _variable(name, environment)
        if text := environment.get(variable):
            values[name] = _items(variable, text) if repeats(name, field) and _SEVERAL.match(text) else text
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
    try:
        given = vars(flag_parser().read(arguments))
        return settings_of({name: value for name, value in given.items() if name != "command"})
    except ValueError as error:
        raise SettingsError(str(error)) from error


def _read_file(path: Path, origin: str) -> dict[str, object]:
    try:
        table = tomllib.loads(expanded(path).read_text(encoding="utf-8-sig"))
        keys = keys_by_name(table)
    except OSError as error:
        raise SettingsError(f"{origin} {str(path)!r}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{origin} {str(path)!r}: not a TOML file: {error}") from error
    except ValueError as error:
        raise SettingsError(f"{origin} {str(path)!r}: {error}") from error
    values: dict[str, object] = {}
    for name, key in keys.items():
        if name == TABLES:
            values[name] = _tables(path, table[key])
        else:
            _check_key(path, name, key, is_table=isinstance(table[key], dict))
            values[name] = text_of(table[key])
    return values


def _check_key(path: Path, name: str, key: str, *, is_table: bool) -> None:
    """Check that a key is that of a flag. Only models have tables."""
    if name not in flag_fields():
        raise SettingsError(f"unknown key {key!r} in {path}{meant_key(name, (TABLES,) if is_table else flag_fields())}")
    if is_table:
        meant = meant_key(name, (TABLES,))
        raise SettingsError(f"{key} in {path}: should be a value in quotes, and no table{meant}")


def _tables(path: Path, tables: object) -> object:
    try:
        return table_texts(tables)
    except ValueError as error:
        raise SettingsError(f"{path}: {error}") from error


def _typed(name: str, value: object, arguments: Sequence[str]) -> str:
    """Return the flag of a setting, by the name with which the command line gives it this value."""
    for word, following in pairwise([*map(hyphenated, arguments), ""]):
        name_typed, equals, given = word.partition("=")
        if SETTINGS.get(name_typed) == name and value == (given if equals else following):
            return name_typed
    return flag(name)


def _variable(name: str, environment: Mapping[str, str]) -> str:
    """Return the name of the variable that a setting is read from."""
    variable = PREFIX + name.upper()
    return variable if environment.get(variable) else OTHER_VARIABLES.get(name, variable)
