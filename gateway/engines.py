"""Engines of the models that the settings name: opened at the start, or on demand."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from anyio import to_thread

from engine import Engine, EngineConfig
from gateway.hub.engine import open_hub_engine
from gateway.residency.estimate import Estimate, estimate
from gateway.residency.machine import machine_budget
from gateway.residency.memory import Memory
from gateway.residency.policy import Residency
from gateway.residency.residents import Residents
from gateway.residency.terms import ModelTerms, ResidencyLimits
from gateway.serving.sources import EngineOnDemand, EngineSource, OpenEngine
from gateway.settings import Settings

logger = logging.getLogger("gateway")


@asynccontextmanager
async def open_engines(settings: Settings, clock: Callable[[], float]) -> AsyncIterator[Mapping[str, EngineSource]]:
    """Open the sources of the engines of all models, by the names of the models.

    A single model loads at once. Several models share the memory, and load when they are asked for.

    Args:
        settings: name the models.
        clock: clock of the engines' patience. It may stand still during stalls of the event loop.
    """
    open_config = partial(open_hub_engine, clock=clock, offline=settings.offline)
    if settings.on_demand:
        async with _open_on_demand(settings, open_config) as sources:
            yield sources
        return
    async with AsyncExitStack() as stack:
        sources = {}
        for model in settings.served:
            engine = await stack.enter_async_context(open_config(settings.engine_config(model)))
            sources[model.name] = OpenEngine(engine)
        yield sources


@asynccontextmanager
async def _open_on_demand(
    settings: Settings, open_config: Callable[[EngineConfig], AbstractAsyncContextManager[Engine]]
) -> AsyncIterator[Mapping[str, EngineSource]]:
    budget = await to_thread.run_sync(machine_budget, settings.models_memory, settings.models_gpu_memory)
    estimates = await to_thread.run_sync(_estimates, settings, budget)
    terms = [
        ModelTerms(
            model.name,
            estimates[model.name].need,
            keep_loaded=model.settings.keep_loaded,
            load_at_start=model.settings.load_at_start,
            idle_unload=model.settings.idle_unload,
        )
        for model in settings.served
    ]
    logger.info("loaded models may take %s together", budget)
    for one in terms:
        if not one.need.fits(budget):
            logger.warning("the model %s is estimated to need %s, which never fits", one.name, one.need)
    residency = Residency(terms, budget, ResidencyLimits(waiting=settings.queue_limit))

    def open_model(name: str) -> AbstractAsyncContextManager[Engine]:
        level = logging.getLevelName(logging.getLogger().level).lower()  # SIGHUP may have changed it
        return open_config(replace(estimates[name].config, log_level=level))

    residents = Residents(residency, open_model)
    async with residents.open():
        yield {one.name: EngineOnDemand(residents, one, timeout=settings.queue_timeout) for one in terms}


def _estimates(settings: Settings, budget: Memory) -> dict[str, Estimate]:
    return {model.name: estimate(settings.engine_config(model), budget) for model in settings.served}
