"""Checks of the settings' values."""

import json
import os
import re
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator

from engine.gguf.split_file import SplitFile, parts_of
from engine.regular_files import require_regular
from gateway.hub.reference import HOSTS, SCHEME, HubReference
from gateway.storage.place import check_folder, check_place, is_url

_URLS = (("http:",), ("https:",))
"""First parts of the paths that URLs look like."""
_GGUF_HEADER = 24
_ORIGIN = re.compile(r"\*|[A-Za-z][A-Za-z0-9+.-]*://[^/\s]+/?")
_SECRET = re.compile(r"[!-~]+")
_SIZE = re.compile(r"(\d{1,18})([KMGT])i?B?", re.ASCII | re.IGNORECASE)
_UNITS = "KMGT"
"""Units of sizes, each 1024 of the one before."""
_OF_HUB = re.compile(rf"(?:(?:{'|'.join(HOSTS)})/)?([\w-][\w.-]*/[\w.-]+(?::[\w.-]+)?)(?<!\.gguf)", re.ASCII)
"""Path that may be meant as a model on the hub, also in the form for Ollama."""
_OF_OLLAMA = re.compile(r"[\w.-]+:[\w.-]+", re.ASCII)
"""Path that may be meant as a model of Ollama."""
_HUB_FORM = "USER/REPO:QUANT"
_AS_OF_HUB = f"a model of the Hugging Face hub is written {SCHEME}"


def expanded(path: Path) -> Path:
    """Return a path with the home directory in place of `~`."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ValueError("there is no such home directory") from error


def for_engine(path: Path) -> Path:
    """Return a path as `expanded` does, if the engine's configuration, which is sent as JSON, can hold it."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise ValueError("the path is not UTF-8") from error
    return expanded(path)


def readable_gguf(path: Path) -> Path:
    """Return the path of a file that begins as GGUF files do."""
    path = for_engine(path)
    try:
        require_regular(path)
        with path.open("rb") as file:
            header = file.read(_GGUF_HEADER)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ValueError("there is no such file") from error
    except OSError as error:
        raise ValueError(f"the file cannot be read: {error.strerror}") from error
    if not header.startswith(b"GGUF"):
        raise ValueError("this is not a GGUF file")
    if len(header) < _GGUF_HEADER:
        raise ValueError("this GGUF file is truncated")
    return path


def model_place(place: object) -> object:
    """Return the model on the hub that a text names, if it begins with `hf:`, else the text, which names a file."""
    if not (isinstance(place, str) and place.startswith(SCHEME)):
        return place
    has_hub()
    return HubReference.parse(place)


def has_hub() -> Literal[True]:
    """Return True. Raises `ValueError` without the hub's package."""
    if find_spec("huggingface_hub") is None:
        raise ValueError('models from the hub need its package: pip install "llama-gateway[hub]"')
    return True


def readable_model(place: Path | HubReference) -> Path | HubReference:
    """Return what `readable_gguf` does; a model on the hub is checked when it is fetched."""
    if isinstance(place, HubReference):
        return place
    # Up to Python 3.13, the methods of a path raise errors where its folder cannot be read.
    if (meant := _meant_model(str(place))) and not os.path.lexists(place):
        raise ValueError(f"there is no such file; {_AS_OF_HUB}{meant}")
    if os.path.isdir(expanded(place)):  # noqa: PTH112
        raise ValueError("this is a folder; --models-dir serves the models in one")
    if place.parts[:1] in _URLS:
        raise ValueError(f"a URL is no file; {_AS_OF_HUB}{_HUB_FORM}")
    if (split := SplitFile.parse(place.name)) and split.part > 1:
        raise ValueError(
            f"this is part {split.part}; a split model is named by its first part, {parts_of(place.name)[0]}"
        )
    return readable_parts(place)


def readable_parts(path: Path) -> Path:
    """Return what `readable_gguf` does, of a split model for its first part. All parts are checked."""
    parts = parts_of(path.name)
    for part in parts:
        try:
            readable_gguf(path.with_name(part))
        except ValueError as error:
            raise ValueError(str(error) if len(parts) == 1 else f"{part}: {error}") from error
    return expanded(path)


def _meant_model(path: str) -> str:
    """Return the name on the hub, or its form, if a path may be meant as a model of the hub or of Ollama."""
    if match := _OF_HUB.fullmatch(path):
        return match[1]
    return _HUB_FORM if _OF_OLLAMA.fullmatch(path) else ""


ModelPlace: TypeAlias = Annotated[Path | HubReference, BeforeValidator(model_place), AfterValidator(readable_model)]
"""GGUF file of a model, or its name on the hub."""


def model_name(place: Path | HubReference) -> str:
    """Return the default name of a model for clients: that of its file or of its repository."""
    return place.name if isinstance(place, HubReference) else place.stem


def readable_template(given: str) -> str:
    """Return the source of a chat template: of a file, of a name, or the text itself."""
    from gateway.chat.template_file import read_template  # noqa: PLC0415 - Jinja takes 25 ms, and few set a template

    return read_template(given)


def template_variables(text: str) -> str:
    """Return the variables of a chat template, a JSON object, as they are."""
    try:
        variables = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not valid JSON: {error}") from error
    if not isinstance(variables, dict):
        raise ValueError("should be a JSON object")  # noqa: TRY004 (pydantic reports ValueError only)
    return text


def byte_count(value: object) -> object:
    """Return the bytes of a size with a unit, such as `8G`; otherwise the value, which is to be a number of bytes."""
    match = _SIZE.fullmatch(str(value))
    return value if match is None else int(match[1]) * 1024 ** (1 + _UNITS.index(match[2].upper()))


def split_items(value: object) -> list[str]:
    """Return all items of one value or several, split at commas."""
    parts = value if isinstance(value, list) else [value]
    return [item.strip() for part in parts for item in str(part).split(",") if item.strip()]


def addresses(text: str) -> str:
    """Return addresses behind commas, none of which is empty."""
    if not all(map(str.strip, text.split(","))):
        raise ValueError("has an empty address")
    return text


def api_keys(value: object) -> object:
    """Split values at commas and check that each can be sent in a header."""
    keys = split_items(value)
    if not keys:
        raise ValueError("there is no key")
    if not all(_SECRET.fullmatch(key) for key in keys):
        raise ValueError("a key may have only visible ASCII characters, and no space")
    return keys


def hash_key(secret: str) -> str:
    """Return a secret that can be the key of a hash (BLAKE2b)."""
    if len(secret.encode()) > blake2b.MAX_KEY_SIZE:
        raise ValueError(f"should have at most {blake2b.MAX_KEY_SIZE} bytes")
    return secret


def some_names(text: str) -> str:
    """Return names of a model behind commas, if there is one and each can be one."""
    if not model_names(text):
        raise ValueError("has no name")
    return text


def model_names(value: object) -> list[str]:
    """Split names of a model at commas and check that each can be one."""
    names = split_items(value)
    for name in names:
        check_model_name(name)
    return names


def check_model_name(name: str) -> str:
    """Return a name of a model, if it can be one. Files may have any name, also one with blanks."""
    if not name.isprintable() or name != name.strip() or not name or "," in name:
        raise ValueError(f"{name!r} is not a name of a model: one has no comma, and no blank at its ends")
    return name


def folder(path: Path) -> Path:
    """Return the path of a folder."""
    path = expanded(path)
    check_folder(path)
    return path


def listed_folder(path: Path) -> Path:
    """Return the path of a folder whose files can be listed: `Path.glob` finds no files in any other."""
    path = folder(path)
    try:
        os.scandir(path).close()
    except OSError as error:
        raise ValueError(f"the folder cannot be read: {error.strerror}") from error
    return path


def shared_place(place: str) -> str:
    """Return the URL of a PostgreSQL database."""
    if not is_url(place):
        raise ValueError("this is no URL that begins with postgresql://")
    return check_place(place)


def paths(value: object) -> object:
    """Split values at commas and check that each is a path."""
    paths = split_items(value)
    for path in paths:
        if not path.startswith("/"):
            raise ValueError(f"{path!r} does not begin with a slash")
    return paths


def origins(value: object) -> object:
    """Split values at commas and check that each is an origin or `*`."""
    origins = split_items(value)
    for origin in origins:
        if origin != "localhost" and not _ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin!r} is not an origin such as https://example.org, nor localhost or *")
    return origins
