"""The command `llama-gateway doctor`."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import IntEnum

import anyio
import orjson

from engine import EngineConfig
from gateway.cli import SettingsError, read_settings
from gateway.doctor.arguments import read_arguments
from gateway.doctor.diagnosis import diagnose
from gateway.doctor.findings import Level, findings
from gateway.doctor.report import object_of, text_of
from gateway.hub.errors import HubError
from gateway.hub.fetching import fetch
from gateway.hub.reference import HubReference
from gateway.settings import Settings

_JSON = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


class ExitCode(IntEnum):
    """Exit codes of `doctor`. Codes that `serve` also uses have the same meaning there."""

    GOOD = 0
    """The model can be served, or without a model llama.cpp works."""
    SETTINGS = 2
    """Invalid arguments or settings."""
    LOAD = 3
    """The model cannot be served, or llama.cpp does not work at all."""


def doctor(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command and return its exit code.

    Args:
        arguments: the command line after the command's name.
        environment: has settings, as for `serve`.
    """
    given = read_arguments(arguments)
    try:
        settings = read_settings(["serve", *given.flags], environment)
        config = _config(settings) if given.has_model or "model" in settings.model_fields_set else None
    except SettingsError as error:
        return _fail(str(error), ExitCode.SETTINGS)
    except HubError as error:
        return _fail(error.message, ExitCode.LOAD)
    diagnosis = diagnose(config)
    found = findings(diagnosis, settings.chat_template)
    if given.json:
        sys.stdout.write(orjson.dumps(object_of(diagnosis, found, settings.chat_template), option=_JSON).decode())
    else:
        sys.stdout.write(text_of(diagnosis, found, settings.chat_template))
    return ExitCode.LOAD if any(finding.level is Level.PROBLEM for finding in found) else ExitCode.GOOD


def _fail(message: str, code: ExitCode) -> ExitCode:
    sys.stderr.write(f"llama-gateway doctor: {message}\n")
    return code


def _config(settings: Settings) -> EngineConfig:
    """Return the configuration of the engine. A model of the hub must be on this machine.

    Raises:
        HubError: It is not.
    """
    config = settings.engine_config()
    if isinstance(settings.model, HubReference):
        return replace(config, model=str(anyio.run(_cached, settings.model)))
    return config


async def _cached(reference: HubReference) -> str:
    try:
        return str(await fetch(reference, lambda _share: None, offline=True))
    except HubError as error:
        raise HubError(f"{reference} is not on this machine: llama-gateway pull {reference}") from error
