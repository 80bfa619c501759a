"""The command `llama-gateway doctor`."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

import anyio
import orjson

from engine import EngineConfig
from gateway.arguments import ExitCode, exit_with
from gateway.cli import SettingsError, read_settings
from gateway.doctor.arguments import read_arguments
from gateway.doctor.diagnosis import Subject, diagnose
from gateway.doctor.findings import Level, findings
from gateway.doctor.report import object_of, text_of
from gateway.hub.errors import HubError
from gateway.hub.fetching import fetch
from gateway.hub.reference import HubReference
from gateway.residency.estimate import estimate
from gateway.residency.machine import machine_budget
from gateway.residency.memory import Memory
from gateway.settings import Settings
from gateway.settings.table import ServedModel

_JSON = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
_NAMES = {"model", "models", "models_dir", "embedding_model"}
"""Settings that name models."""


def doctor(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command and return its exit code.

    Args:
        arguments: the command line after the command's name.
        environment: has settings, as for `serve`.
    """
    given = read_arguments(arguments)
    try:
        settings = read_settings(["serve", *given.flags], environment)
        subjects = _subjects(settings)
    except SettingsError as error:
        return exit_with(ExitCode.SETTINGS, str(error), "doctor")
    except HubError as error:
        return exit_with(ExitCode.LOAD, error.message, "doctor")
    diagnosis = diagnose(subjects)
    found = findings(diagnosis)
    if given.json:
        sys.stdout.write(orjson.dumps(object_of(diagnosis, found), option=_JSON).decode())
    else:
        sys.stdout.write(text_of(diagnosis, found))
    return ExitCode.LOAD if any(finding.level is Level.PROBLEM for finding in found) else ExitCode.DONE


def _subjects(settings: Settings) -> list[Subject]:
    """Return the models that `serve` would serve, and those of a folder that it leaves out; none if none are named.

    Raises:
        HubError: a model of the hub is not on this machine.
    """
    if settings.model_fields_set.isdisjoint(_NAMES):
        return []
    shared = settings.on_demand
    budget = machine_budget(settings.models_memory, settings.models_gpu_memory) if shared else None
    left_out = [
        Subject(name=model.name, config=EngineConfig(model=str(model.file)), refusal=model.fault)
        for model in settings.unserved
    ]
    return [_subject(settings, model, budget) for model in settings.served] + left_out


def _subject(settings: Settings, model: ServedModel, budget: Memory | None) -> Subject:
    """Return a model with the configuration of its engine. A budget is shared with other models, and decides it, too.

    Raises:
        HubError: it is one of the hub that is not on this machine.
    """
    config, refusal = settings.engine_config(model), ""
    if isinstance(model.place, HubReference):
        config = replace(config, model=anyio.run(_cached, model.place))
    if budget is not None:
        found = estimate(config, budget)
        config = found.config
        if not found.need.fits(budget):
            refusal = f"it is estimated to need {found.need}, and --models-memory allows {budget} together"
    own = model.settings
    return Subject(
        name=model.name,
        config=config,
        template=own.chat_template,
        default_template=own.default_chat_template,
        sets_context=own.context is not None,
        embeds_only=model.embeds_only,
        refusal=refusal,
    )


async def _cached(reference: HubReference) -> str:
    try:
        return str(await fetch(reference, lambda _share: None, offline=True))
    except HubError as error:
        raise HubError(f"{reference} is not on this machine: llama-gateway pull {reference}") from error
