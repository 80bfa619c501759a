"""The application connected to fake engines."""

from functools import cache
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from gateway.apis.endpoint import Api
from gateway.app import create_gateway
from gateway.keys.ring import KeyRing
from gateway.settings import Settings
from tests.gateway.fake_engine import FakeEngine

NAME = "tiny"
_THIS_FILE = Path(__file__)


def settings_for(**changes: object) -> Settings:
    """Return settings with this model file, which is never opened, under the alias `tiny`."""
    values: dict[str, Any] = {name: field.default for name, field in Settings.model_fields.items()}
    values |= {"model": _THIS_FILE, "alias": NAME} | changes
    return Settings.model_construct(**values)


def app_of(engine: FakeEngine, **changes: object) -> ASGIApp:
    """Return the application with a fake engine and some changed settings."""
    return create_gateway(engine.as_engine(), settings_for(**changes)).app


def app_with_keys(keys: KeyRing, engine: FakeEngine, **changes: object) -> ASGIApp:
    """Return an application that needs API keys."""
    return create_gateway(engine.as_engine(), settings_for(**changes), keys=keys).app


@cache
def apis() -> tuple[Api, ...]:
    """Return the APIs of an application, to read their tables."""
    return create_gateway(FakeEngine().as_engine(), settings_for()).apis
