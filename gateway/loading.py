"""Progress of loading in the log and on the terminal."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import anyio

from engine import Engine, EngineState, LoadError, ModelInfo, Unavailable
from gateway.progress import progress_for
from gateway.serving.sources import EngineSource
from gateway.settings import Settings

logger = logging.getLogger("gateway")


async def log_loading(
    sources: Mapping[str, EngineSource], urls: Sequence[str], settings: Settings, shutdown: anyio.Event
) -> None:
    """Log the progress of loading, then the URLs unless the server stops. Sets `shutdown` if a model cannot be loaded.

    Where models are loaded on demand, they are only named: their downloads and loads are logged as they happen.
    """
    if settings.on_demand:
        logger.info("listening on %s, serving %s", " and ".join(urls), _by_load(sources, settings))
        return
    engines = {name: source.engine for name, source in sources.items() if source.engine is not None}
    loaded: dict[str, ModelInfo] = {}
    for name, engine in engines.items():
        if (model := await wait_until_loaded(name, engine)) is None:
            shutdown.set()
            return
        loaded[name] = model
    if shutdown.is_set():  # the sockets are closed
        return
    if settings.max_tokens is None and any(model.generates for model in loaded.values()):
        logger.info("an answer may fill its slot if its request has no limit; --max-tokens sets one for all")
    served = [describe(name, model) for name, model in loaded.items()]
    logger.info("listening on %s, serving %s", " and ".join(urls), " and ".join(served))


def _by_load(names: Iterable[str], settings: Settings) -> str:
    """Return one log phrase: the models that are loaded at the start, and those that are loaded on demand."""
    own = {model.name: model.settings for model in settings.served}
    at_start = [name for name, one in own.items() if one.keep_loaded or one.load_at_start]
    groups = {"loaded at the start": at_start, "on demand": [name for name in names if name not in at_start]}
    return " and ".join(f"{', '.join(group)} {how}" for how, group in groups.items() if group)


async def wait_until_loaded(name: str, engine: Engine) -> ModelInfo | None:
    """Wait until the model is loaded, show the progress, and return the model; None if it cannot be loaded any more."""
    await show_download(name, engine)
    await _show_progress(name, engine, EngineState.LOADING)
    with suppress(Unavailable):  # the server is stopping
        try:
            return await engine.ready()
        except LoadError:
            logger.error("cannot serve %s: %s", name, engine.status.cause)  # noqa: TRY400 - an error of the operator
    return None


async def show_download(name: str, engine: Engine) -> None:
    """Show the progress of the model's download. Ends with it, or at once without one."""
    await _file_or_progress(engine)
    await _show_progress(name, engine, EngineState.DOWNLOADING)


async def _file_or_progress(engine: Engine) -> None:
    """Wait until a download makes progress, or the model's file turns out to be on this machine."""
    while (status := engine.status).state is EngineState.DOWNLOADING and not status.progress:
        await engine.status_changed(status)


async def _show_progress(name: str, engine: Engine, state: EngineState) -> None:
    """Show the progress while the engine is in a state."""
    if engine.status.state is not state:
        return
    progress = progress_for(name, verb=state.value)
    try:
        while (status := engine.status).state is state:
            progress.show(status.progress)
            await engine.status_changed(status)
    finally:
        progress.close()


def describe(name: str, model: ModelInfo) -> str:
    """Return one log phrase: the model's name, description, and slots or use."""
    slots = (
        f"{model.slots} slots of {model.context} tokens each"
        if model.slots > 1
        else f"1 slot of {model.context} tokens"
    )
    if model.slots * model.context > model.cells > 0:
        slots = f"{model.slots} slots of up to {model.context} tokens, {model.cells} together"
    use = slots if model.generates else "ranking only" if model.ranks else "embeddings only"
    return f"{name} ({model.description}): {use}"
