"""Models that flags, variables and the tables of the file name together."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway.flags import keys_by_name
from gateway.hub.reference import SCHEME
from gateway.settings.values import expanded


def with_tables(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of settings in which `model` is one file at most, and further models are tables of `models`.

    `NAME=FILE` becomes the table of that name, or its file if the TOML file has such a table. Several plain files are
    named by their stems. Those of `model` come first.

    Raises:
        ValueError: two models have the same name.
    """
    given = values.get("model")
    texts: Sequence[str] = [given] if isinstance(given, str) else given or []
    pairs = [_named(text) for text in texts]
    plain = [file for name, file in pairs if not name]
    if len(plain) > 1:
        pairs = [(name or _stem(file), file) for name, file in pairs]
    named = {name: file for name, file in pairs if name}
    if twice := [name for name, times in Counter(name for name, _ in pairs).items() if name and times > 1]:
        raise ValueError(f"several models have the name {twice[0]!r}; NAME=MODEL gives another one")
    tables = values.get("models", {})
    models = {name: {**tables.get(name, {}), "file": file} for name, file in named.items()}
    models |= {name: table for name, table in tables.items() if name not in named}
    rest = {name: value for name, value in values.items() if name not in {"model", "models"}}
    return rest | ({"model": plain[0]} if len(plain) == 1 else {}) | ({"models": models} if models else {})


def table_texts(tables: object) -> dict[str, Any]:
    """Return the tables of the TOML file with names of fields and texts of values, as those of flags.

    Raises:
        ValueError: there is something else than tables, a table inside one of them, or a setting twice.
    """
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise ValueError("models: each model is a table, [models.NAME]")
    return {name: _texts(f"models.{name}", table) for name, table in tables.items()}


def _texts(place: str, table: Mapping[str, object]) -> dict[str, str | list[str]]:
    if inner := [key for key, value in table.items() if isinstance(value, dict)]:
        raise ValueError(f"{place}.{inner[0]}: should be a value in quotes, and no table")
    try:
        values = {name: table[key] for name, key in keys_by_name(table).items()}
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error
    return {name: text_of(value) for name, value in values.items()}


def text_of(value: object) -> str | list[str]:
    """Return the text of a value of the TOML file, or those of a list, which are parsed like the values of flags.

    So `true` is not a number.
    """
    return [str(item) for item in value] if isinstance(value, list) else str(value)


def _stem(place: str) -> str:
    """Return the name of a model without one: that of the file, or of the repository on the hub."""
    if not place.startswith(SCHEME):
        return Path(place).stem
    return place.removeprefix(SCHEME).partition(":")[0].rpartition("/")[2]


def _named(text: str) -> tuple[str, str]:
    """Return the name and the file of `NAME=FILE`. A file that exists is no name, whatever its path contains."""
    name, equals, file = text.partition("=")
    if not equals or _exists(text):
        return "", text
    return name, file


def _exists(text: str) -> bool:
    try:
        return expanded(Path(text)).exists()
    except (OSError, ValueError):
        return False
