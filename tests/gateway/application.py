"""The application connected to fake engines."""

from functools import cache
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp

from gateway.apis.endpoint import Api
from gateway.app import Equipment, Gateway, create_gateway
from gateway.keys.ring import KeyRing
from gateway.serving.sources import OpenEngine
from gateway.settings import Settings
from gateway.stores import OpenStores
from tests.gateway.fake_engine import FakeEngine

NAME = "tiny"
_THIS_FILE = Path(__file__)


def settings_for(**changes: object) -> Settings:
    """Return settings with this model file, which is never opened, under the alias `tiny`."""
    values: dict[str, Any] = {name: field.default for name, field in Settings.model_fields.items()}
    values |= {"model": _THIS_FILE, "alias": NAME} | changes
    return Settings.model_construct(**values)


def gateway_of(
    engine: FakeEngine, embedder: FakeEngine | None = None, *, equipment: Equipment | None = None, **changes: Any
) -> Gateway:
    """Return the gateway with fake engines and some changed settings."""
    settings = settings_for(**changes)
    engines = [engine] if embedder is None else [engine, embedder]
    names = (model.name for model in settings.served)
    sources = {name: OpenEngine(one.as_engine()) for name, one in zip(names, engines, strict=True)}
    return create_gateway(sources, settings, equipment)


def app_of(engine: FakeEngine, **changes: Any) -> ASGIApp:
    """Return the application with a fake engine and some changed settings."""
    return gateway_of(engine, **changes).app


def app_with_keys(keys: KeyRing, engine: FakeEngine, **changes: Any) -> ASGIApp:
    """Return an application that needs API keys."""
    return gateway_of(engine, equipment=Equipment(stores=OpenStores(keys=keys)), **changes).app


@cache
def apis() -> tuple[Api, ...]:
    """Return the APIs of an application, to read their tables."""
    return gateway_of(FakeEngine()).apis
