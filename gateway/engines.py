"""Engines of the models that the settings name: opened at the start, or on demand."""

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

import anyio
from anyio import to_thread
from typing_extensions import override

from engine import Engine, EngineConfig, LoadError
from gateway.hub.engine import open_hub_engine
from gateway.loading import show_download
from gateway.residency.estimate import Estimate, estimate
from gateway.residency.machine import machine_budget
from gateway.residency.memory import Memory
from gateway.residency.policy import Residency
from gateway.residency.residents import EngineOnDemand, Residents
from gateway.residency.terms import ModelTerms, ResidencyLimits
from gateway.serving.sources import EngineHost, EngineSource, OpenEngine
from gateway.settings import Settings
from gateway.settings.table import ServedModel

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
        async with _open_on_demand(settings, open_config) as on_demand:
            yield on_demand
        return
    async with AsyncExitStack() as stack:
        sources = {}
        for model in settings.served:
            engine = await stack.enter_async_context(open_config(settings.engine_config(model)))
            sources[model.name] = OpenEngine(engine)
        yield sources


class EnginesOnDemand(Mapping[str, EngineOnDemand], EngineHost):
    """Sources of the engines of all models that share the memory, by the names of the models."""

    def __init__(
        self,
        settings: Settings,
        budget: Memory,
        estimates: Mapping[str, Estimate],
        open_config: Callable[..., AbstractAsyncContextManager[Engine]],
    ) -> None:
        """Create the sources of the models that the settings name.

        Args:
            settings: name the models.
            budget: bytes that the loaded models may take together.
            estimates: what each model takes before it is loaded, by name.
            open_config: opens an engine as `open_hub_engine` does.
        """
        self._settings = settings
        self._budget = budget
        self._estimates = dict(estimates)
        self._open_config = open_config
        terms = [_terms(model, estimates[model.name].need) for model in settings.served]
        residency = Residency(terms, budget, ResidencyLimits(waiting=settings.queue_limit))
        self.residents = Residents(residency, self._open_model, show_download, timeout=settings.queue_timeout)
        """Owns the engines."""

    @override
    def __getitem__(self, name: str) -> EngineOnDemand:
        return self.residents.models[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self.residents.models)

    @override
    def __len__(self) -> int:
        return len(self.residents.models)

    @override
    async def join(self, model: ServedModel) -> EngineSource:
        found = await to_thread.run_sync(estimate, self._settings.engine_config(model), self._budget)
        before, self._estimates[model.name] = self._estimates.get(model.name), found
        if before is None:
            return self.residents.add(_terms(model, found.need))
        source = self[model.name]
        if before.config != found.config or source.engine is None:  # without an engine its load may have failed
            source.replace(found.need)
        return source

    @override
    async def leave(self, name: str) -> None:
        await self.residents.remove(name)
        del self._estimates[name]

    @override
    def used(self, name: str) -> bool:
        return self[name].account.used

    def _open_model(self, name: str) -> AbstractAsyncContextManager[Engine]:
        level = logging.getLevelName(logging.getLogger().level).lower()  # SIGHUP may have changed it
        config = replace(self._estimates[name].config, log_level=level)
        return self._open_config(config, decide=partial(self._decide, name))

    async def _decide(self, name: str, config: EngineConfig) -> EngineConfig:
        """Return the configuration of a model of the hub that has a file now.

        A new file may need more than was known. If there is no room for it, the load is ended here.
        """
        try:
            found = await to_thread.run_sync(estimate, config, self._budget)
        except RuntimeError as error:  # no thread can be started
            raise LoadError(
                f"the memory of the model cannot be estimated: {error}", code="model_unavailable"
            ) from error
        known = self._estimates[name]
        self._estimates[name] = replace(known, need=found.need)
        if found.need != known.need and not self[name].resize(found.need):
            await anyio.sleep_forever()  # until the end of the load arrives
        return found.config


def _terms(model: ServedModel, need: Memory) -> ModelTerms:
    own = model.settings
    return ModelTerms(
        model.name,
        need,
        keep_loaded=own.keep_loaded,
        load_at_start=own.load_at_start,
        idle_unload=own.idle_unload,
    )


@asynccontextmanager
async def _open_on_demand(
    settings: Settings, open_config: Callable[..., AbstractAsyncContextManager[Engine]]
) -> AsyncIterator[EnginesOnDemand]:
    budget = await to_thread.run_sync(machine_budget, settings.models_memory, settings.models_gpu_memory)
    estimates = await to_thread.run_sync(_estimates, settings, budget)
    logger.info("loaded models may take %s together", budget)
    for name, one in estimates.items():
        if not one.need.fits(budget):
            allowed = "more than --models-memory and --models-gpu-memory allow"
            logger.warning("the model %s is estimated to need %s, %s", name, one.need, allowed)
    engines = EnginesOnDemand(settings, budget, estimates, open_config)
    async with engines.residents.open():
        yield engines


def _estimates(settings: Settings, budget: Memory) -> dict[str, Estimate]:
    return {model.name: estimate(settings.engine_config(model), budget) for model in settings.served}
