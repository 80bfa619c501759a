"""Engines of models that may have to be downloaded first."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from engine import Engine, EngineConfig, open_engine
from gateway.hub.fetching import fetch
from gateway.hub.reference import SCHEME, HubReference


async def as_it_is(config: EngineConfig) -> EngineConfig:
    """Return the configuration."""
    return config


def open_hub_engine(
    config: EngineConfig,
    *,
    clock: Callable[[], float],
    offline: bool,
    decide: Callable[[EngineConfig], Awaitable[EngineConfig]] = as_it_is,
) -> AbstractAsyncContextManager[Engine]:
    """Open an engine as `open_engine` does.

    Args:
        config: configuration, whose model is a file or the name of a model on the hub.
        clock: as for `open_engine`.
        offline: True to use only models of the hub that are on this machine.
        decide: decides what the operator has left open, once a model of the hub has a file. The load waits for it.
    """
    if not config.model.startswith(SCHEME):
        return open_engine(config, clock=clock)
    reference = HubReference.parse(config.model)

    async def download(progress: Callable[[float], None]) -> EngineConfig:
        file = await fetch(reference, lambda at: progress(at.share), offline=offline)
        return await decide(replace(config, model=str(file)))

    return open_engine(config, clock=clock, download=download)
